"""Fixtures named for the thing they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

from tests.browser import chromium, person_at  # noqa: F401 - fixtures for every test
from tests.served import Served, Template, running
from tests.standing import Standing


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """pytest-django's test database; a test that commits leaves it as it was (tests/standing.py)."""
    with django_db_blocker.unblock():
        standing = Standing()
    with pytest.MonkeyPatch.context() as patch:
        # Where Django flushes: after tests with `django_db(transaction=True)`, `transactional_db`, `live_server`.
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda self: standing.restore())
        yield


@pytest.fixture(scope="session")
def served_template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    """A migrated, seeded data folder and database that servers are copied from."""
    template = Template(tmp_path_factory.mktemp("served-template"))
    yield template
    template.drop()


@pytest.fixture
def serve(served_template: Template, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """A function that starts a server: `serve(workers=3, SIGNALBOX_RUNNER_POLL_TIMEOUT="5")`."""
    with ExitStack() as servers:
        started: list[Served] = []

        def start(*, workers: int = 2, **env: str) -> Served:
            folder = tmp_path / f"server-{len(started)}"
            started.append(servers.enter_context(running(served_template, folder, workers=workers, **env)))
            return started[-1]

        yield start


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A server with two workers and a database of its own."""
    return serve()
