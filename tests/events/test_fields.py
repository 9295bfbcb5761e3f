"""An event's fields are the same in its table, its context, the doors' schemas and the one definition of an event."""

from __future__ import annotations

import msgspec

from coordinator.api.edge_operations import EventIn
from coordinator.api.sessions import EventOut, SessionOut
from coordinator.models import Event, EventContext
from coordinator.models.fields import JsonTextField
from coordinator.sessions.events import (
    CONTEXT_COLUMNS,
    CONTEXT_FIELDS,
    EVENT_COLUMNS,
    JSON_COLUMNS,
    TEXTS,
    NewEvent,
)
from coordinator.sessions.wire import SESSION_COLUMNS

RESULT = {"result_text", "result_data"}  # of an event of type `result`; kept in tool_output


def columns(model: type[Event | EventContext]) -> set[str]:
    return {field.column for field in model._meta.concrete_fields}


def test_the_tables_have_the_columns_that_are_written() -> None:
    assert columns(Event) == {"id", *EVENT_COLUMNS}
    assert columns(EventContext) == {"event_id", *CONTEXT_COLUMNS}


def test_what_holds_json_is_what_the_table_says() -> None:
    found = {field.column for field in Event._meta.concrete_fields if isinstance(field, JsonTextField)}
    assert found == set(JSON_COLUMNS)


def test_every_field_of_an_event_is_kept() -> None:
    assert {field.name for field in msgspec.structs.fields(NewEvent)} == {
        *EVENT_COLUMNS,
        *CONTEXT_FIELDS,
        *RESULT,
    }


def test_every_text_is_checked_before_it_is_written() -> None:
    assert {"session_id", "event_type", "timestamp", "tool_name", "error", "run_id", "model"} <= set(TEXTS)
    assert not {"tool_input", "exit_code", "duration_ms"} & set(TEXTS)


def test_the_doors_tell_the_same_fields() -> None:
    assert set(EventIn.model_fields) == {*EVENT_COLUMNS} | RESULT
    assert set(EventOut.model_fields) == {"id", *EVENT_COLUMNS} | RESULT
    assert set(SessionOut.model_fields) == set(SESSION_COLUMNS)
