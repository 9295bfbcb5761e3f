"""One server for many tests: each finds the database as it was seeded, and a program that has run for a while.

What the program keeps in memory follows the feed, so rows that are put back are noticed as any other change is. A test
that ends the server or one of its workers, or needs settings of its own, starts one with the fixture `serve`; where
one was ended all the same, the next test gets a new one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend
from pytest_django import DjangoDbBlocker

from coordinator.feed import triggers
from tests.served import Served, Template
from tests.standing import Standing


class SharedServer:
    """The server of this test process. `folder` is where its data folders lie."""

    def __init__(self, template: Template, folder: Path, blocker: DjangoDbBlocker) -> None:
        self._template, self._folder, self._blocker = template, folder, blocker
        self._started = 0
        self._served: Served | None = None
        self._workers: list[int] = []
        self._standing: Standing | None = None
        self._triggers: dict[str, tuple[str, str]] = {}

    def fresh(self) -> Served:
        """Return the server, at work, with the seeded rows and no others, no files and an empty log."""
        with self._looking_into_the_database():
            return self._fresh()

    def _fresh(self) -> Served:
        if self._served is None or self._standing is None or not self._is_whole(self._served):
            self.close()
            return self._start()
        if triggers.load_current_trigger_fingerprints(self._standing.on) != self._triggers:
            self.close()
            return self._start()
        self._standing.restore(keep_changes=True)
        shutil.rmtree(self._served.folder / "attachments", ignore_errors=True)
        self._served.log.write_bytes(b"")  # it is written to by appending
        return self._served

    def close(self) -> None:
        """Stop the server and remove its database."""
        with self._looking_into_the_database():
            if self._standing is not None:
                self._standing.on.close()
        if self._served is not None:
            self._served.close()
        self._served = self._standing = None

    @contextmanager
    def _looking_into_the_database(self) -> Iterator[None]:
        with self._blocker.unblock(), pytest.MonkeyPatch.context() as patch:
            patch.setenv(
                "DJANGO_ALLOW_ASYNC_UNSAFE", "1"
            )  # a browser's loop may run in this thread, and waits
            yield

    def _start(self) -> Served:
        self._started += 1
        self._served = Served(self._template, self._folder / f"server-{self._started}", workers=2, env={})
        self._served.start()
        self._workers = self._served.all_worker_pids()
        self._standing = Standing(wrapper_for(self._served))
        self._triggers = triggers.load_current_trigger_fingerprints(self._standing.on)
        return self._served

    def _is_whole(self, served: Served) -> bool:
        alive = served.process is not None and served.process.poll() is None
        return alive and sorted(served.worker_pids()) == sorted(self._workers)


def wrapper_for(served: Served) -> BaseDatabaseWrapper:
    """Return a connection of Django's kind to a server's database."""
    name = served.database if connection.vendor == "postgresql" else str(served.folder / "signalbox.sqlite3")
    settings = {**connection.settings_dict, "NAME": name}
    backend = load_backend(settings["ENGINE"])
    wrapper = backend.DatabaseWrapper(settings, alias="served")
    wrapper.features.supports_json_field = (
        True  # Django would look for it by the alias, which it does not know
    )
    return wrapper  # type: ignore[no-any-return]
