"""A dry run does what the run does, up to the commit, and keeps nobody from writing."""

from __future__ import annotations

import sqlite3
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as product
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from coordinator.actions.importing import ImportOutcome, import_database
from coordinator.importing.source_database import SourceDatabase
from coordinator.models import AuditLog, HeldRun, Run, RunParameters, Session
from tests.importing.sources import AGENT, EVENT, MESSAGE, RUN, SESSION, add, brought, newest


def odd(path: Path) -> None:
    """A source of the newest versions in which every kind of thing happens to rows."""
    file = newest(path)
    add(file, "agents", AGENT, {**AGENT, "id": None}, {**AGENT, "id": "agent.f", "last_seen": 1.5})
    add(
        file,
        "chat_messages",
        {**MESSAGE, "parent_id": "m0", "branch_index": 1},
        {**MESSAGE, "id": "m2", "agent_id": "gone"},
    )
    add(file, "mcp_servers", {"name": "files", "command": "x", "created_at": 1, "env": '{"A": "b"}'})
    add(file, "sessions", SESSION, {**SESSION, "session_id": "ses_2", "parent_session_id": "ses_1"})
    runs = [{**RUN, "run_id": f"run_{n}", "parameters": '{"prompt": "Hello"}'} for n in range(30)]
    add(file, "runs", *runs, {**RUN, "run_id": "run_p", "parameters": '{"depth": 3}', "status": "pending"})
    add(
        file, "events", EVENT, {**EVENT, "session_id": "gone"}, {**EVENT, "content": b"[1]", "exit_code": 1.5}
    )
    add(file, "cron_jobs", {"id": "c", "every": 5})
    file.close()


def as_told(done: ImportOutcome) -> list[dict[str, Any]]:
    return [one.as_report_dict() for one in done.outcomes]


@pytest.mark.django_db
def test_a_dry_run_tells_exactly_what_the_run_then_does(path: Path) -> None:
    odd(path)
    dry = as_told(brought(path, write=False))
    assert not (path.parents[2] / "ours").exists()
    assert not Run.objects.exists()
    assert as_told(brought(path)) == dry
    assert Run.objects.count() == 31


@pytest.mark.django_db
def test_runs_of_the_newest_coordinator_come_in_with_their_prompt(path: Path) -> None:
    odd(path)
    brought(path)
    brought(path)
    assert Run.objects.filter(prompt="Hello").count() == 30
    procedural = Run.objects.select_related("ordered_with").get(pk="run_p")
    assert (procedural.status, procedural.prompt) == ("pending", "")
    assert procedural.ordered_with.parameters == {"depth": 3}
    assert RunParameters.objects.count() == 1
    assert HeldRun.objects.filter(pk="run_p").exists()


@pytest.mark.django_db
def test_a_column_that_has_a_place_of_another_name_is_not_called_lost(path: Path) -> None:
    file = newest(path)
    add(file, "sessions", SESSION)
    add(file, "runs", {**RUN, "parameters": '{"prompt": "Hello"}'})
    add(file, "mcp_servers", {"name": "files", "command": "x", "created_at": 1, "env": '{"A": "b"}'})
    notes = "".join(note for one in brought(path).outcomes for note in one.notes)
    assert not [
        name for name in ("parameters", "env", "parent_id", "result_text") if f"column {name};" in notes
    ]
    assert "no column scope; it held nothing" in notes


@pytest.mark.django_db(transaction=True)
def test_others_write_while_a_dry_run_is_at_work_and_nothing_of_it_stays(path: Path) -> None:
    odd(path)
    wrote = []

    def somebody_writes(table: str, *_: int) -> None:
        if table == "runs":
            wrote.append(write_from_elsewhere(f"by_another_{len(wrote)}"))

    source = SourceDatabase(path)
    done = import_database(source, now=timezone.now(), write=False, progress=somebody_writes)
    source.delete_database_copy()
    assert wrote
    assert {one.table: one.added for one in done.outcomes}["sessions"] == 2
    assert not Session.objects.filter(pk="ses_1").exists()
    assert not AuditLog.objects.filter(event_type="DATABASE_IMPORTED").exists()
    assert Session.objects.filter(pk="by_another_0").exists()


def write_from_elsewhere(session_id: str) -> str:
    """Write a session on a connection of its own, and wait for nobody."""
    sql = "INSERT INTO sessions (session_id, status, created_at) VALUES (%s, 'finished', 'x')"
    if connection.vendor == "sqlite":
        with sqlite3.connect(product.DATABASES["default"]["NAME"], timeout=0) as file:
            file.execute(sql.replace("%s", "?"), (session_id,))
        file.close()
        return session_id
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SET lock_timeout = 1000")
        cursor.execute(sql, [session_id])
    other.close()
    return session_id


@pytest.mark.django_db
def test_the_command_says_that_nothing_was_changed(path: Path) -> None:
    odd(path)
    out = StringIO()
    call_command("import_db", str(path), "--dry-run", stdout=out)
    assert "Nothing was changed" in out.getvalue()
    assert "cron_jobs has no counterpart here; its 1 rows are kept aside" in out.getvalue()
