"""What the database itself takes and refuses, from any program: the recorded cases of ClotoCore's schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

CASES = json.loads((Path(__file__).parent.parent / "data" / "conformance" / "schema.json").read_text())
# The name that the default agent had when the cases were recorded.
OLD_NAME, NAME = "agent.exiv_default", "agent.cloto_default"

pytestmark = pytest.mark.django_db


def run(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def count(table: str) -> int:
    return int(run(f"SELECT count(*) FROM {table}")[0][0])


@pytest.mark.parametrize("case", CASES["schema_constraints"], ids=lambda case: case["id"])
def test_an_insert_is_taken_or_refused_as_recorded(case: dict[str, Any]) -> None:
    sql = case["sql"].replace("?", "%s")
    params = [NAME if value == OLD_NAME else value for value in case["params"]]
    if case["schema_result"] == "accepted":
        run(sql, *params)
        return
    kind = case["schema_result"].removeprefix("rejected: ").split()[0]
    said = {"NOT": "not.null", "FOREIGN": "foreign key", "CHECK": "check", "UNIQUE": "unique"}[kind]
    with pytest.raises(IntegrityError, match=f"(?i){said}"):
        run(sql, *params)


def test_all_cases_were_read() -> None:
    assert len(CASES["schema_constraints"]) == 16


def send_message() -> None:
    run(
        "INSERT INTO chat_messages (id, agent_id, source, content, created_at) VALUES ('m', %s, 'user', '[]', 1)",
        NAME,
    )


def test_an_agent_with_messages_is_not_deleted() -> None:
    send_message()
    with pytest.raises(IntegrityError):
        run("DELETE FROM agents")
    assert count("agents") == 1


def test_an_agents_plugins_go_with_it_and_its_grants_stay() -> None:
    run(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, granted_at) "
        "VALUES ('server_grant', %s, 's', 't')",
        NAME,
    )
    assert count("agent_plugins") == 2
    run("DELETE FROM agents")
    assert (count("agent_plugins"), count("mcp_access_control")) == (0, 1)


def test_a_messages_attachments_go_with_it() -> None:
    send_message()
    run(
        "INSERT INTO chat_attachments (id, message_id, filename, mime_type, size_bytes, storage_type, created_at) "
        "VALUES ('a', 'm', 'f', 'image/png', 1, 'inline', 1)"
    )
    run("DELETE FROM chat_messages")
    assert count("chat_attachments") == 0


def test_a_sessions_events_and_runs_go_with_it_and_its_children_are_freed() -> None:
    run("INSERT INTO sessions (session_id, status, created_at) VALUES ('parent', 'running', 't')")
    run(
        "INSERT INTO sessions (session_id, status, created_at, parent_session_id) "
        "VALUES ('child', 'running', 't', 'parent')"
    )
    run("INSERT INTO events (id, session_id, event_type, timestamp) VALUES (99, 'parent', 'x', 't')")
    run(
        "INSERT INTO event_context (event_id, session_id, instant_us, received_at) VALUES (99, 'parent', 1, 1)"
    )
    run(
        "INSERT INTO runs (run_id, session_id, type, prompt, created_at) "
        "VALUES ('r', 'parent', 'start_session', 'p', 't')"
    )
    run("DELETE FROM sessions WHERE session_id = 'parent'")
    assert run("SELECT session_id, parent_session_id FROM sessions") == [("child", None)]
    assert (count("events"), count("event_context"), count("runs")) == (0, 0, 0)


def test_a_parent_that_is_not_there_is_refused() -> None:
    with pytest.raises(IntegrityError):
        run(
            "INSERT INTO sessions (session_id, status, created_at, parent_session_id) VALUES ('s', 'x', 't', 'none')"
        )
