"""A filled installation on SQLite, made in one process of its own, and an empty PostgreSQL database beside it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.served import ROOT, drop_database, postgres_url, run_on_postgres, with_database

FILL = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from tests.moving import installation
installation.fill()
"""


def fill() -> None:
    """Write some of everything into the database of this process."""
    from django.contrib.auth.models import Group, User
    from django.utils import timezone

    from coordinator.actions.agents.agents import DEFAULT_AGENT
    from coordinator.actions.audit import audit
    from coordinator.identity.actors import system_actor
    from coordinator.models import Budget, ChatMessage, Event, EventContext, PluginData, Run, Session

    now = timezone.now()
    User.objects.create(username="somebody", last_login=now)
    Group.objects.create(name="replaced")
    PluginData.objects.create(plugin_id="a", key="b", value='{"broken', updated_at=now)
    Budget.objects.create(
        reach="all", span="day", measure="cost", amount=0.1, at_limit="warn", changed_at=now, changed_by="x"
    )
    for number in range(20):
        name = f"ses_{number:012x}"
        Session.objects.create(session_id=name, status="finished", created_at=now)
        Run.objects.create(
            run_id=f"run_{number:012x}", session_id=name, type="start_session", prompt="ü€😀", created_at=now
        )
        events = [Event(session_id=name, event_type="message", timestamp="now-ish") for _ in range(100)]
        for event in Event.objects.bulk_create(events):
            EventContext.objects.create(
                event_id=event.pk, session_id=name, instant_us=event.pk, received_at=now, source="api"
            )
        ChatMessage.objects.create(
            id=f"m{number}", agent_id=DEFAULT_AGENT, user_id="u", source="user", content="[]", created_at=now
        )
        audit.record_audit_entry(
            "TEST", actor=system_actor("test"), target=name, result="success", metadata={"n": number}
        )


@dataclass
class Installation:
    """A data folder with its SQLite file, and the database that it is to be moved to."""

    folder: Path
    name: str
    made_by_migrations: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "signalbox.sqlite3"

    @property
    def url(self) -> str:
        return with_database(postgres_url() or "", self.name)

    @property
    def env(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
        env.pop("DATABASE_URL", None)
        return env | {
            "SIGNALBOX_DATA_DIR": str(self.folder),
            "DJANGO_SETTINGS_MODULE": "coordinator.settings",
        }

    def move_to(self, *words: str, kill_at: str | None = None, whole: bool = False) -> tuple[int, str]:
        """Run `move_to`, killed where it says `kill_at`; return how it ended and what it said.

        As its second half, which is what the first turns into; `whole` runs both, for the time that takes.
        """
        command = [sys.executable, "manage.py", "move_to", self.url, *words]
        env = self.env
        if not whole:
            command += ["--from", str(self.file)]
            env |= {"DATABASE_URL": self.url, "SIGNALBOX_MOVING": "on"}
        said = []
        with subprocess.Popen(
            command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if kill_at and kill_at in line:
                    process.kill()
        return process.returncode, "".join(said)

    def sql(
        self, statement: str, parameters: tuple[Any, ...] = (), *, careful: bool = True
    ) -> list[tuple[Any, ...]]:
        """Run SQL on SQLite, as another program would, one that keeps its foreign keys or one that is not careful."""
        with contextlib.closing(sqlite3.connect(self.file, timeout=10)) as db, db:
            db.execute(f"PRAGMA foreign_keys = {careful:d}")
            return db.execute(statement, parameters).fetchall()

    def there(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL on PostgreSQL."""
        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def installed(folder: Path, name: str) -> Iterator[Installation]:
    run_on_postgres(f"CREATE DATABASE {name}")
    made = Installation(folder, name)
    try:
        subprocess.run([sys.executable, "-c", FILL], cwd=ROOT, env=made.env, check=True, timeout=300)
        yield made
    finally:
        drop_database(name)
