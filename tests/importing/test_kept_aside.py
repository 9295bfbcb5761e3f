"""What has no place here is named, counted and kept in a private file; what means something here has a place."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.urls import reverse

from coordinator.importing.import_files import RejectedRows
from coordinator.mcp.servers import credentials
from coordinator.models import (
    Agent,
    AuditLog,
    ChatBranch,
    ChatMessage,
    Event,
    McpCredential,
    McpServer,
    PluginConfig,
    PluginData,
    Run,
    RunParameters,
)
from tests.importing.sources import AGENT, EVENT, MESSAGE, RUN, SESSION, add, brought, kept, newest
from tests.people import signed_in
from tests.secrets.corpus import SECRETS

pytestmark = pytest.mark.django_db

TOKEN = SECRETS["github"]
UNKNOWN = ("cron_jobs", "llm_providers", "memory_locks", "model_history", "trusted_commands")


def with_unknown_tables(path: Path) -> None:
    file = newest(path)
    add(
        file,
        "cron_jobs",
        {"id": "c1", "agent_id": "agent.watch", "prompt": "look", "every": 60},
        {"id": "c2"},
    )
    add(file, "llm_providers", {"id": "p", "api_key": "very-secret-1"})
    add(file, "model_history", {"provider": "p", "model": "m", "seen": b"\x00\xff"})
    add(file, "memory_locks", {"name": "b"}, {"name": "a"})
    add(file, "trusted_commands", {"command": 'ls "x"\nmore'})
    file.close()


def test_tables_without_a_place_are_named_counted_and_kept(path: Path) -> None:
    with_unknown_tables(path)
    done = brought(path)
    assert {one.table: one.rows for one in done.outcomes if not one.is_known} == dict(
        zip(UNKNOWN, (2, 1, 2, 1, 1), strict=True)
    )
    assert kept(done, table="cron_jobs")[0]["row"] == {
        "id": "c1",
        "agent_id": "agent.watch",
        "prompt": "look",
        "every": 60,
    }
    assert kept(done, table="model_history")[0]["row"]["seen"] == {"base64": "AP8="}
    assert kept(done, table="trusted_commands")[0]["row"]["command"] == 'ls "x"\nmore'
    assert [line["row"]["name"] for line in kept(done, table="memory_locks")] == ["a", "b"]


def test_the_file_and_the_report_are_their_owners_alone(path: Path) -> None:
    with_unknown_tables(path)
    done = brought(path)
    assert done.aside is not None
    assert done.report is not None
    for file in (done.aside, done.report):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    told = json.loads(done.report.read_text())
    assert told["kept"]["rows"] == 8  # with the type of the agent that every installation has
    assert {one["table"] for one in told["tables"]} >= set(UNKNOWN)


def test_the_audit_log_counts_what_was_kept_aside(path: Path) -> None:
    with_unknown_tables(path)
    brought(path)
    row = AuditLog.objects.get(event_type="DATABASE_IMPORTED")
    assert row.metadata["unknown_tables"] == dict(zip(UNKNOWN, (2, 1, 2, 1, 1), strict=True))


def test_the_same_rows_are_not_kept_twice(path: Path) -> None:
    with_unknown_tables(path)
    first, second = brought(path), brought(path)
    assert second.aside == first.aside
    assert second.report != first.report
    assert len(list(path.parents[2].rglob("kept.jsonl"))) == 1


def test_what_goes_beyond_the_bound_is_counted(tmp_path: Path) -> None:
    kept_rows = RejectedRows(tmp_path, Path("x.db"), datetime(2026, 1, 1, tzinfo=UTC), most_bytes=200)
    for number in range(10):
        kept_rows.write_rejected_row_within_limit("t", "why", row={"n": number})
    kept_rows.write_import_report_and_close({})
    assert kept_rows.rejected_rows_path.stat().st_size <= 200
    assert kept_rows.rows + kept_rows.left_out == 10
    assert kept_rows.left_out > 0


def test_values_without_a_column_are_counted_and_kept_with_their_rows_key(path: Path) -> None:
    file = newest(path)
    add(file, "agents", {**AGENT, "agent_type": "system"})
    add(file, "chat_messages", {**MESSAGE, "conversation_id": "conv"})
    add(file, "sessions", SESSION)
    add(file, "runs", {**RUN, "parameters": '{"prompt": "p"}', "scope": "{}"})
    done = brought(path)
    assert kept(done, table="agents", key={"id": "agent.watch"})[0]["values"] == {"agent_type": "system"}
    assert kept(done, table="chat_messages")[0]["values"] == {"conversation_id": "conv"}
    assert kept(done, table="runs")[0]["values"] == {"scope": "{}"}
    notes = [note for one in done.outcomes for note in one.notes]
    assert "Signalbox has no column scope; its 1 values are kept aside." in notes


def test_a_servers_variables_are_sealed_and_stand_on_its_page_by_name(path: Path) -> None:
    file = newest(path)
    env = json.dumps({"API_KEY": "very-secret-1", "LOG_LEVEL": "debug"})
    add(
        file, "mcp_servers", {"name": "files", "command": "x", "created_at": 1, "env": env, "auth_token": "t"}
    )
    done = brought(path)
    rows = {row.name: credentials.decrypt_credential_value(row) for row in McpCredential.objects.all()}
    assert rows == json.loads(env)
    assert kept(done, table="mcp_servers")[0]["values"] == {"auth_token": "t"}
    page = signed_in("viewer").get(reverse("mcp:server", args=["files"])).content.decode()
    assert "API_KEY" in page
    assert "LOG_LEVEL" in page
    assert "very-secret-1" not in page + str(list(McpCredential.objects.values()))
    McpServer.objects.get().delete()
    assert not McpCredential.objects.exists()


@pytest.mark.parametrize("env", ["no json", "[1]", "3", '{"A": "nul \\u0000"}'])
def test_an_environment_that_is_none_is_kept_aside(path: Path, env: str) -> None:
    file = newest(path)
    add(file, "mcp_servers", {"name": "files", "command": "x", "created_at": 1, "env": env})
    assert kept(brought(path), table="mcp_servers")[0]["values"] == {"env": env}
    assert not McpCredential.objects.exists()


def test_branches_of_a_chat_are_told_apart_in_their_thread(path: Path) -> None:
    file = newest(path)
    add(file, "agents", AGENT)
    add(
        file,
        "chat_messages",
        {**MESSAGE, "id": "asked"},
        {**MESSAGE, "id": "first", "parent_id": "asked"},
        {**MESSAGE, "id": "again", "parent_id": "asked", "branch_index": 1},
    )
    brought(path)
    assert sorted(ChatBranch.objects.values_list("pk", "parent_id", "branch_index")) == [
        ("again", "asked", 1),
        ("first", "asked", 0),
    ]
    page = signed_in("viewer").get(thread := reverse("chat:thread", args=["agent.watch"])).content.decode()
    assert "version 1 of 2" in page
    assert "version 2 of 2" in page
    assert f"{thread}?message=asked" in page
    assert brought(path).outcomes[0].present > 0
    ChatMessage.objects.get(pk="again").delete()
    assert ChatBranch.objects.count() == 1


def test_a_result_of_the_newest_executors_stands_where_the_doors_put_it(path: Path) -> None:
    file = newest(path)
    add(file, "sessions", SESSION)
    result = {"session_id": "ses_1", "event_type": "result", "timestamp": "2026-02-23T12:00:09Z"}
    add(file, "events", {**result, "result_data": '{"return_code": 0}'}, {**result, "result_data": "no json"})
    done = brought(path)
    outputs = list(Event.objects.order_by("id").values_list("tool_output", flat=True))
    assert outputs == [{"result_text": None, "result_data": {"return_code": 0}}, None]
    assert kept(done, table="events")[0]["values"] == {"result_data": "no json"}


def test_what_changes_on_its_way_is_told_each_time_and_kept_as_it_was(path: Path) -> None:
    file = newest(path)
    file.executescript(
        "DROP TABLE agents; CREATE TABLE agents (id, name, default_engine_id, last_seen, enabled)"
    )
    add(
        file,
        "agents",
        {"id": "agent.f", "name": b"Fine", "default_engine_id": 7, "last_seen": 1.5, "enabled": "off"},
    )
    add(file, "sessions", SESSION)
    add(file, "events", {**EVENT, "content": b"[]"}, {**EVENT, "exit_code": 2.5}, {**EVENT, "exit_code": 4.0})
    first, second = brought(path), brought(path)
    for done in (first, second):
        told = {what: number for one in done.outcomes for what, number in one.changed.items()}
        assert told == {
            "name was a BLOB and became text": 1,
            "default_engine_id was a number and became text": 1,
            "last_seen was rounded to a whole number": 1,
            "enabled was a word and became true or false": 1,
            "content was a BLOB and became text": 1,
            "exit_code was rounded to a whole number": 1,
        }
        assert kept(done, column="exit_code")[0]["was"] == 2.5
    agent = Agent.objects.get(pk="agent.f")
    assert (agent.name, agent.default_engine_id, agent.enabled) == ("Fine", "7", False)
    assert {one.table: one.added for one in second.outcomes}["events"] == 0
    assert sorted(Event.objects.values_list("exit_code", flat=True), key=str) == [2, 4, None]


def test_secrets_are_masked_in_events_and_in_what_is_kept_of_them(path: Path) -> None:
    file = newest(path)
    add(file, "sessions", SESSION)
    said = json.dumps([{"type": "text", "text": f"use {TOKEN}"}])
    add(
        file,
        "events",
        {**EVENT, "content": said, "error": f"no {TOKEN}"},
        {**EVENT, "session_id": "gone", "content": said},
        {**EVENT, "event_type": "pre_tool", "tool_input": json.dumps({"password": SECRETS["word"]})},
    )
    add(
        file,
        "runs",
        {
            **RUN,
            "parameters": json.dumps({"prompt": f"p {TOKEN}", "key": TOKEN}),
            "error": TOKEN,
            "scope": TOKEN,
        },
    )
    done = brought(path)
    assert done.aside is not None
    stored = repr(list(Event.objects.values())) + repr(list(Run.objects.values())) + done.aside.read_text()
    assert TOKEN not in stored
    assert SECRETS["word"] not in stored
    assert stored.count("[masked: GitHub token") >= 4
    event = Event.objects.select_related("context").order_by("id")[0]
    assert event.context.masked == 2
    assert TOKEN not in repr(RunParameters.objects.get().parameters)
    assert any("3 secrets are masked" in note for one in done.outcomes for note in one.notes)


def test_where_masking_is_off_it_is_said(path: Path, settings: object) -> None:
    settings.MASK_SECRETS = False  # type: ignore[attr-defined]
    file = newest(path)
    add(file, "sessions", SESSION)
    add(file, "events", {**EVENT, "error": TOKEN})
    done = brought(path)
    assert Event.objects.get().error == TOKEN
    assert any("SIGNALBOX_MASK_SECRETS is off" in note for one in done.outcomes for note in one.notes)


def test_the_command_says_where_it_kept_them(path: Path) -> None:
    with_unknown_tables(path)
    call_command("import_db", str(path), stdout=(out := StringIO()))
    told = out.getvalue()
    for name in UNKNOWN:
        assert f"{name} has no counterpart here" in told
    assert "Kept aside in " in told
    assert "report.json" in told


def test_secrets_among_the_values_of_plugins_are_masked(path: Path) -> None:
    file = newest(path)
    values = {
        "api_key": "hunter2",
        "token": "12345678",
        "endpoint": "postgres://ann:pass@db/x",
        "options": f'{{"headers": {{"authorization": "Bearer {TOKEN}"}}}}',
        "model_id": "small-model",
        "max_tokens": "400",
        "from_environment_key": "${API_KEY}",
    }
    for name, value in values.items():
        add(file, "plugin_configs", {"plugin_id": "mind.x", "config_key": name, "config_value": value})
        add(file, "plugin_data", {"plugin_id": "mind.x", "key": name, "value": value})
    file.close()
    outcomes = {one.table: one for one in brought(path).outcomes}
    stored = dict(PluginConfig.objects.filter(plugin_id="mind.x").values_list("config_key", "config_value"))
    assert {name for name, value in stored.items() if value == values[name]} == {
        "model_id",
        "max_tokens",
        "from_environment_key",
    }
    assert all(secret not in json.dumps(stored) for secret in ("hunter2", "12345678", "ann:pass", TOKEN))
    assert dict(PluginData.objects.filter(plugin_id="mind.x").values_list("key", "value")) == stored
    assert "4 secrets are masked" in " ".join(outcomes["plugin_configs"].notes)
    again = {one.table: one for one in brought(path).outcomes}
    assert (again["plugin_configs"].added, again["plugin_configs"].conflicts.total) == (0, 0)
    assert again["plugin_configs"].present >= len(values)


def test_a_value_that_differs_here_is_kept_aside_without_its_secret(path: Path) -> None:
    file = newest(path)
    add(file, "plugin_configs", {"plugin_id": "mind.x", "config_key": "login", "config_value": f"a {TOKEN}"})
    PluginConfig.objects.create(plugin_id="mind.x", config_key="login", config_value="ours")
    done = brought(path)
    assert PluginConfig.objects.get(plugin_id="mind.x").config_value == "ours"
    (line,) = kept(done, table="plugin_configs")
    assert TOKEN not in json.dumps(line)
