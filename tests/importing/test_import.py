"""An existing database comes in: whole, once, as it is; what clashes is told and nothing is overwritten."""

from __future__ import annotations

import hashlib
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.chat import attachments as storing
from coordinator.actions.importing import import_database
from coordinator.actions.importing.outcomes import TableOutcome
from coordinator.actions.upkeep import housekeeping
from coordinator.chat import attachments
from coordinator.chat import search as chat_search
from coordinator.errors import Conflict
from coordinator.identity.actors import system_actor
from coordinator.importing.source_database import TABLES, SourceDatabase
from coordinator.models import (
    Agent,
    AuditLog,
    ChatAttachment,
    ChatMessage,
    Event,
    EventContext,
    PermissionRequest,
    PluginSetting,
    Run,
    Session,
)
from tests.importing.sources import AGENT, CLOTOCORE, EVENT, MESSAGE, SESSION, STEPS, add, database
from tests.people import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def path(settings, tmp_path) -> Path:
    settings.DATA_DIR = tmp_path / "ours"
    return tmp_path / "theirs" / "data" / "cloto.db"


def brought(path: Path, *, write: bool = True, with_policy: bool = True) -> dict[str, TableOutcome]:
    source = SourceDatabase(path)
    try:
        done = import_database(source, now=timezone.now(), write=write, with_policy=with_policy)
    finally:
        source.delete_database_copy()
    return {one.table: one for one in done.outcomes}


def everything() -> dict[str, int]:
    with connection.cursor() as cursor:
        counts = {}
        for table in TABLES:
            cursor.execute(f"SELECT count(*) FROM {table.name}")
            counts[table.name] = cursor.fetchone()[0]
    return counts


@pytest.mark.parametrize("step", CLOTOCORE)
def test_a_database_of_any_step_comes_in(path, step):
    file = database(path, upto=step)
    add(file, "agents", {name: AGENT[name] for name in ("id", "name", "default_engine_id")})
    outcomes = brought(path)
    assert Agent.objects.get(pk="agent.watch").name == "Watch"
    assert outcomes["agents"].added == 1
    assert not [line for one in outcomes.values() for line in one.left_out]


def full(path: Path) -> Any:
    """Return a source with a row or more in every table."""
    file = database(path)
    now = timezone.now().isoformat()
    add(file, "agents", AGENT)
    add(file, "plugin_settings", {"plugin_id": "mind.x", "allowed_permissions": '["FileRead"]'})
    add(file, "plugin_configs", {"plugin_id": "mind.x", "config_key": "k", "config_value": "v"})
    add(
        file,
        "plugin_data",
        {"plugin_id": "mind.x", "key": "k", "value": "v", "updated_at": "2026-02-23 12:00:00"},
    )
    add(file, "agent_plugins", {"agent_id": "agent.watch", "plugin_id": "mind.x"})
    add(
        file,
        "runtime_plugins",
        {"plugin_id": "r", "script_name": "r.py", "code_content": "x", "created_at": 1},
    )
    add(file, "mcp_servers", {"name": "files", "command": "x", "created_at": 1771848000})
    grant = {"entry_type": "server_grant", "agent_id": "agent.watch", "server_id": "files", "granted_at": now}
    add(file, "mcp_access_control", grant, grant)
    add(
        file,
        "permission_requests",
        {
            "request_id": "r1",
            "created_at": now,
            "plugin_id": "p",
            "permission_type": "FileRead",
            "justification": "j",
        },
    )
    add(file, "revoked_keys", {"key_hash": "h", "revoked_at": 1})
    add(file, "chat_messages", MESSAGE)
    add(file, "audit_logs", {"timestamp": now, "event_type": "X", "result": "success"})
    add(
        file,
        "sessions",
        {**SESSION, "session_id": "ses_0", "parent_session_id": "ses_1"},  # before its parent
        SESSION,
    )
    add(
        file,
        "runs",
        {"run_id": "run_1", "session_id": "ses_1", "type": "start_session", "prompt": "p", "created_at": now},
    )
    add(file, "events", EVENT, EVENT, {**EVENT, "content": "no json"})
    return file


def test_every_table_comes_in_whole_and_once(path):
    full(path)
    first = brought(path)
    assert set(first) == {table.name for table in TABLES}
    assert not [line for one in first.values() for line in one.left_out + one.conflicts]
    stands = everything()
    second = brought(path)
    assert sum(one.added for one in second.values()) == 0
    assert not [line for one in second.values() for line in one.left_out + one.conflicts]
    assert {**everything(), "audit_logs": 0} == {**stands, "audit_logs": 0}
    assert Session.objects.get(pk="ses_0").parent_session_id == "ses_1"
    assert Run.objects.get().session_id == "ses_1"


def test_two_equal_events_stay_two_and_stand_in_their_timeline(path):
    full(path)
    brought(path)
    assert Event.objects.count() == 3
    assert EventContext.objects.count() == 3
    assert Event.objects.order_by("id").first().timestamp == EVENT["timestamp"]


def test_what_a_live_source_wrote_meanwhile_comes_in_the_next_time(path):
    file = full(path)
    brought(path)
    add(file, "events", {**EVENT, "timestamp": "2026-02-23T12:00:09Z"})
    assert brought(path)["events"].added == 1


def test_what_is_here_with_other_values_is_told_and_stays(path):
    full(path)
    Agent.objects.create(id="agent.watch", name="Ours", default_engine_id="mind.x")
    outcome = brought(path)["agents"]
    assert Agent.objects.get(pk="agent.watch").name == "Ours"
    assert any("agent.watch" in line and "name" in line for line in outcome.conflicts)


def test_a_dry_run_tells_the_same_and_changes_nothing(path):
    full(path)
    before = everything()
    dry = brought(path, write=False)
    assert everything() == before
    assert not (path.parents[2] / "ours").exists()
    wet = brought(path)
    assert {name: (one.added, one.left_out) for name, one in dry.items()} == {
        name: (one.added, one.left_out) for name, one in wet.items()
    }


def test_the_source_is_not_touched(path):
    full(path).close()
    before = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.parent.iterdir()}
    brought(path)
    after = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.parent.iterdir()}
    assert after == before


def test_a_source_in_use_is_read_as_of_one_moment(path):
    file = full(path)
    file.execute("PRAGMA journal_mode = wal")
    file.execute("BEGIN IMMEDIATE")
    file.execute("INSERT INTO agents (id, name, default_engine_id) VALUES ('agent.later', 'x', 'y')")
    assert brought(path)["agents"].added == 1
    assert not Agent.objects.filter(pk="agent.later").exists()


@pytest.mark.parametrize(
    "permissions",
    ["not json", "{}", None, '["Unheard"]'],
)
def test_odd_rows_stay_as_they_are(path, permissions):
    file = database(path)
    add(file, "plugin_settings", {"plugin_id": "odd", "allowed_permissions": permissions})
    brought(path)
    with connection.cursor() as cursor:
        cursor.execute("SELECT allowed_permissions FROM plugin_settings WHERE plugin_id = 'odd'")
        assert cursor.fetchone()[0] == permissions


def test_times_of_every_form_stay_as_they_are(path):
    file = database(path)
    forms = ["2026-02-23T12:00:00Z", "2026-02-23 12:00:00", "2026-02-23T14:00:00.5+02:00", "yesterday"]
    add(
        file,
        "sessions",
        *({**SESSION, "session_id": f"s{n}", "created_at": at} for n, at in enumerate(forms)),
    )
    brought(path)
    with connection.cursor() as cursor:
        cursor.execute("SELECT created_at FROM sessions ORDER BY session_id")
        assert [row[0] for row in cursor.fetchall()] == forms


def test_rows_without_their_parent_are_told_and_the_others_come_in(path):
    file = database(path)
    add(file, "agents", AGENT)
    add(file, "chat_messages", MESSAGE, {**MESSAGE, "id": "m2", "agent_id": "agent.gone"})
    add(file, "sessions", {**SESSION, "parent_session_id": "ses_gone"})
    add(file, "events", {**EVENT, "session_id": "ses_gone"})
    outcomes = brought(path)
    assert ChatMessage.objects.get().pk == "m1"
    assert "agent.gone" in outcomes["chat_messages"].left_out[0]
    assert "ses_gone" in outcomes["events"].left_out[0]
    assert "without its parent" in outcomes["sessions"].notes[0]


def test_an_older_column_name_is_understood_and_an_unknown_one_told(path):
    file = database(path, upto=STEPS[0])
    file.execute(
        "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, status TEXT, created_at TEXT,"
        " executor_type TEXT, mood TEXT)"
    )
    add(file, "sessions", {**SESSION, "executor_type": "coding", "mood": "calm"})
    outcome = brought(path)["sessions"]
    assert Session.objects.get().executor_profile == "coding"
    assert any("mood" in note for note in outcome.notes)


def test_messages_that_came_in_are_found_by_their_words(path):
    full(path)
    brought(path)
    assert [hit.message.pk for hit in chat_search.find_chat_messages("pool")] == ["m1"]


def with_file(path: Path, disk_path: str) -> Any:
    file = database(path)
    add(file, "agents", AGENT)
    add(file, "chat_messages", MESSAGE)
    row = {"message_id": "m1", "filename": "a.png", "mime_type": "image/png", "created_at": 1}
    add(
        file,
        "chat_attachments",
        {**row, "id": "small", "size_bytes": 3, "storage_type": "inline", "inline_data": b"\x00\xff1"},
        {**row, "id": "large", "size_bytes": 70_000, "storage_type": "disk", "disk_path": disk_path},
    )
    return file


@pytest.mark.parametrize("disk_path", ["data/attachments/m1/image_0.png", "attachments/m1/image_0.png"])
def test_attachments_come_in_with_their_files(path, disk_path):
    with_file(path, disk_path)
    stored = path.parent / "attachments" / "m1" / "image_0.png"
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"x" * 70_000)
    brought(path)
    row = ChatAttachment.objects.get(pk="large")
    assert attachments.open_attachment(row).read() == b"x" * 70_000
    assert bytes(ChatAttachment.objects.get(pk="small").inline_data) == b"\x00\xff1"
    files = list((path.parents[2] / "ours" / "attachments").rglob("*.png"))
    assert brought(path)["chat_attachments"].present == 2
    assert list((path.parents[2] / "ours" / "attachments").rglob("*.png")) == files


@pytest.mark.django_db(transaction=True)
def test_no_transaction_waits_while_files_are_stored(path, monkeypatch):
    with_file(path, "attachments/x.png")
    (path.parent / "attachments").mkdir()
    (path.parent / "attachments" / "x.png").write_bytes(b"x")
    keep, waits = storing.store_and_fingerprint_attachment_file, []

    def slow(*given: Any, **options: Any) -> storing.WrittenFile:
        waits.append(connection.in_atomic_block)
        return keep(*given, **options)

    monkeypatch.setattr(storing, "store_and_fingerprint_attachment_file", slow)
    assert brought(path)["chat_attachments"].added == 2
    assert waits == [False]


@pytest.mark.parametrize(
    "disk_path", ["/etc/passwd", "../../../../etc/passwd", "data/attachments/../cloto.db", ""]
)
def test_a_file_from_elsewhere_is_never_copied(path, disk_path):
    with_file(path, disk_path)
    outcome = brought(path)["chat_attachments"]
    assert "was not found" in outcome.left_out[0]
    assert not (path.parents[2] / "ours" / "attachments").exists()


def test_a_file_that_turns_up_later_comes_in_then(path):
    with_file(path, "attachments/x.png")
    brought(path)
    (path.parent / "attachments").mkdir()
    (path.parent / "attachments" / "x.png").write_bytes(b"x")
    assert brought(path)["chat_attachments"].added == 1


def test_audit_rows_beyond_their_ninety_days_are_told_and_left(path):
    file = database(path)
    for (trigger,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        file.execute(f"DROP TRIGGER {trigger}")  # the source's own clean-up
    add(file, "audit_logs", {"timestamp": "2001-01-01T00:00:00Z", "event_type": "OLD", "result": "x"})
    assert any("90 days" in note for note in brought(path)["audit_logs"].notes)
    assert not AuditLog.objects.filter(event_type="OLD").exists()


def test_text_that_is_no_utf8_is_marked_and_counted(path):
    file = database(path)
    file.execute("INSERT INTO plugin_settings (plugin_id) VALUES (CAST(x'6162ff' AS TEXT))")
    file.commit()
    source = SourceDatabase(path)
    import_database(source, now=timezone.now())
    assert source.replaced > 0
    assert PluginSetting.objects.filter(plugin_id="ab\ufffd").exists()


def test_a_request_keeps_its_id_and_gets_a_number_of_ours(path):
    full(path)
    brought(path)
    assert PermissionRequest.objects.get(request_id="r1").status == "pending"


def test_the_import_is_written_down(path):
    full(path)
    brought(path)
    row = AuditLog.objects.get(event_type="DATABASE_IMPORTED")
    assert row.metadata["added"]["events"] == 3


def test_the_command_tells_what_it_did(path):
    full(path)
    out = StringIO()
    call_command("import_db", str(path), "--dry-run", stdout=out)
    assert "Nothing was changed" in out.getvalue()
    call_command("import_db", str(path), stdout=(out := StringIO()))
    assert "chat_messages" in out.getvalue()


@pytest.mark.parametrize("content", [None, b"", b"hello, this is no database at all" * 40])
def test_what_is_no_such_database_is_refused_in_one_line(path, content):
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandError):
        call_command("import_db", str(path))


@pytest.mark.parametrize("status", ["pending", "claimed", "running", "stopping"])
def test_an_open_run_is_held_until_a_person_releases_it(path, status):
    file = database(path)
    now, old = timezone.now(), "2026-02-23T12:00:00+00:00"
    add(file, "sessions", SESSION | {"status": "finished"})
    add(
        file,
        "runs",
        {
            "run_id": "run_1", "session_id": "ses_1", "type": "resume_session", "prompt": "rm -rf", "status": status,
            "created_at": old, "claimed_at": old, "started_at": old, "timeout_at": old, "runner_id": "lnch_gone",
        },
    )  # fmt: skip
    assert "1 had not ended" in brought(path, write=False)["runs"].notes[0]
    assert "1 had not ended" in brought(path)["runs"].notes[0]
    runner = runners.register_runner_and_recover_runs(runners.RunnerRegistration("h", "/", "p"), now)
    housekeeping.run_housekeeping(now)
    assert runners.claim_next_runner_work(runner.pk, now) is None
    assert Run.objects.get().status == status
    assert brought(path)["runs"].present == 1
    runs.release_held_run("run_1", actor=system_actor("tests"), now=now)
    housekeeping.run_housekeeping(now)
    polled = runners.claim_next_runner_work(runner.pk, now)
    assert (polled is not None) == (status in {"pending", "claimed"})
    with pytest.raises(Conflict):
        runs.release_held_run("run_1", actor=system_actor("tests"), now=now)


def test_a_held_run_says_so_and_is_released_on_its_page(path):
    file = database(path)
    add(file, "sessions", SESSION)
    run = {
        "run_id": "run_1",
        "session_id": "ses_1",
        "type": "start_session",
        "prompt": "x",
        "created_at": "2026-01-01",
    }
    add(file, "runs", run)
    brought(path)
    browser = signed_in("approver")
    assert "On hold until somebody releases it" in browser.get("/ui/runs/").content.decode()
    browser.post("/ui/runs/run_1/release/")
    assert "On hold until" not in browser.get("/ui/runs/").content.decode()
    assert AuditLog.objects.get(event_type="RUN_RELEASED").actor_id == "user:approver"
