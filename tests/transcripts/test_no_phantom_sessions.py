"""What agents report beside a session (their start, the naming of a conversation, sub-agents) makes no session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.sessions import reported_sessions
from coordinator.actions.sessions.events import record_events
from coordinator.dialects import codex
from coordinator.dialects.otlp_logs import convert_otlp_logs_to_reports
from coordinator.edge.ingest.otlp import create_sessions_and_assign_events
from coordinator.identity.keys import KeyIdentity
from coordinator.models import Event, EventContext, Session
from coordinator.sessions.reports import SessionLocation
from coordinator.usage import reading as usage
from tests.claude_code.test_telemetry import pairs
from tests.transcripts.recorded import sent

pytestmark = pytest.mark.django_db
PARENT, THREAD = "01a21910-6598-71c3-875e-e023bff84312", "01a21910-6724-70c3-8208-7a2c2be462f6"
TITLE = (
    "Your task is to generate a very short title for a conversation based on the user's first message. The"
)
STARTED = {"event__name": "managed_settings_resolved"}


def export(*records: dict[str, Any], service: str = "codex_exec") -> dict[str, Any]:
    """Return an export of log records, as its exporter sends it."""
    resource = {"attributes": pairs(service__name=service, host__name="vm")}
    told = [
        {"timeUnixNano": str((1_790_000_000 + number) * 10**9), "attributes": pairs(**record)}
        for number, record in enumerate(records)
    ]
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": told}]}]}


def prompt(conversation: str, text: str, originator: str = "codex_exec") -> dict[str, Any]:
    return {
        "event__name": "codex.user_prompt",
        "conversation__id": conversation,
        "prompt": text,
        "originator": originator,
    }


def spent(conversation: str, originator: str = "codex_exec") -> dict[str, Any]:
    tokens = {"input_token_count": "7", "output_token_count": "7", "cached_token_count": "0"}
    about = {"event__name": "codex.sse_event", "event__kind": "response.completed", "originator": originator}
    return {**about, "conversation__id": conversation, **tokens}


def tell(*records: dict[str, Any], **more: str) -> None:
    sent("logs", export(*records, **more), timezone.now())


def ids() -> list[str | None]:
    return sorted(Session.objects.values_list("executor_session_id", flat=True))


def test_the_start_of_claude_code_makes_no_session_and_is_kept_in_one_that_is_there() -> None:
    """It reports that under an id of its own before it knows which session it resumes."""
    tell(STARTED | {"session__id": "started-as"}, service="claude-code")
    assert ids() == []
    prompted = {"event__name": "user_prompt", "session__id": "resumed", "prompt": "More."}
    tell(prompted, STARTED | {"session__id": "resumed"}, service="claude-code")
    assert ids() == ["resumed"]
    assert Event.objects.filter(event_type="managed_settings_resolved").count() == 1


def test_naming_a_conversation_makes_no_session_whenever_its_tokens_come() -> None:
    tell(prompt("title", TITLE))
    tell(spent("title"))
    assert ids() == []


@pytest.mark.parametrize("text", ["Tidy the shop.", "[REDACTED]"])
def test_a_person_s_prompt_makes_one_recorded_or_not(text: str) -> None:
    tell(prompt(PARENT, text))
    tell(spent(PARENT))
    assert ids() == [PARENT]
    assert usage.load_usage_by_session([Session.objects.get().pk])[Session.objects.get().pk].output == 7


def test_what_else_a_codex_reports_that_our_runner_drives_makes_no_session() -> None:
    tell(prompt(THREAD, "Say hi.", "signalbox"), spent(THREAD, "signalbox"))
    assert ids() == []


def hook(name: str, **fields: Any) -> None:
    """Record a hook of Codex, as its door does."""
    body = {"session_id": PARENT, "hook_event_name": name, "cwd": "/home/dev/shop", **fields}
    read = codex.DIALECT.read_hook(json.dumps(body).encode(), "2026-11-26T18:00:00+00:00")
    known = reported_sessions.reopen_or_create_session(
        PARENT, SessionLocation(profile="codex"), timezone.now()
    )
    record_events([*codex.DIALECT.build_hook_and_transcript_events(read, known.session_id)], timezone.now())


def test_a_sub_agent_of_codex_is_told_in_the_session_that_started_it_with_its_tokens() -> None:
    hook("SessionStart", source="startup")
    hook("UserPromptSubmit", prompt="Say hi.", turn_id="t2", agent_id=THREAD, agent_type="default")
    tell(prompt(THREAD, "Say hi."), spent(THREAD), spent(PARENT))
    assert ids() == [PARENT]
    used = EventContext.objects.filter(output_tokens__isnull=False).order_by("event_id")
    assert list(used.values_list("subagent", flat=True)) == [f"default {THREAD}", None]
    said = Event.objects.filter(event_type="message")
    assert [(one.context.subagent, one.content[0]["text"]) for one in said] == [
        (f"default {THREAD}", "Say hi.")
    ]


def test_nobody_draws_another_s_telemetry_into_their_session() -> None:
    """Whoever claims a thread that is not theirs gets nothing of it."""
    hook("UserPromptSubmit", prompt="Say hi.", turn_id="t2", agent_id=THREAD, agent_type="default")
    reports = convert_otlp_logs_to_reports(export(prompt(THREAD, "Mine.")), timezone.now())
    stranger = KeyIdentity(id=9, name="other", scopes=frozenset({"agent"}), agent_id="other")
    events = create_sessions_and_assign_events(reports, stranger, timezone.now())
    assert {event.session_id for event in events} == {Session.objects.get(executor_session_id=THREAD).pk}


def test_a_thread_with_a_session_of_its_own_is_nobody_s_sub_agent() -> None:
    tell(prompt(THREAD, "Mine."))
    hook("UserPromptSubmit", prompt="Say hi.", turn_id="t2", agent_id=THREAD, agent_type="default")
    tell(spent(THREAD))
    own = Session.objects.get(executor_session_id=THREAD)
    assert EventContext.objects.filter(session_id=own.pk, output_tokens=7).count() == 1
