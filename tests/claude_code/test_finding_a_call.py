"""Which of a session's calls a question is about, and that its input is masked once to find it, not for each call."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.sessions import tool_calls
from coordinator.actions.sessions.tool_calls import copy_request_with_call_id
from coordinator.models import Event, EventContext, Session
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.secrets.masking import mask_secrets_in_value
from tests.secrets.corpus import SECRETS

pytestmark = pytest.mark.django_db

INPUT = {"command": f"login --token {SECRETS['github']}"}


def begun(call_id: str, tool_input: Any, subagent: str | None = None) -> int:
    """Record a call's beginning as it is stored and return the event's id."""
    now = timezone.now()
    session, _ = Session.objects.get_or_create(
        session_id="ses_1", defaults={"status": "running", "created_at": now}
    )
    event = Event.objects.create(
        session=session,
        event_type="pre_tool",
        timestamp="t",
        tool_name="Bash",
        tool_input=mask_secrets_in_value(tool_input),
    )
    EventContext.objects.create(
        event=event,
        session_id="ses_1",
        instant_us=0,
        received_at=now,
        tool_use_id=call_id,
        subagent=subagent,
    )
    return event.pk


def asked(call_id: str | None = None) -> ToolCallRequest:
    return ToolCallRequest(
        "PermissionRequest", "ses_1", None, 0, "Bash", INPUT, INPUT["command"], "claude-code", call_id=call_id
    )


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was masked while the call was looked for."""
    values: list[Any] = []

    def counted(value: Any, **how: Any) -> Any:
        values.append(value)
        return mask_secrets_in_value(value, **how)

    monkeypatch.setattr(tool_calls, "mask_secrets_in_value", counted)
    return values


def test_the_newest_free_call_alike_is_found_and_the_input_read_once(read: list[Any]) -> None:
    begun("older", INPUT)
    event_id = begun("ours", INPUT)
    begun("taken", INPUT)
    begun("a subagent's", INPUT, subagent="helper")
    for number in range(3):
        begun(f"other {number}", {"command": f"ls {number}"})

    found = copy_request_with_call_id(asked(), taken_ids={"taken"})

    assert (found.call_id, found.event_id) == ("ours", event_id)
    assert read == [INPUT]


def test_a_call_that_is_named_is_found_without_reading_inputs(read: list[Any]) -> None:
    event_id = begun("ours", {"command": "as it was before it was edited"})
    begun("other", INPUT)

    assert copy_request_with_call_id(asked("ours")).event_id == event_id
    assert copy_request_with_call_id(asked("unknown")) == asked("unknown")
    assert read == []
