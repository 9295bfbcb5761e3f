"""Which calls of a session never came to a guard: counted, shown, and told of once."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from coordinator.actions.notifications import set_unguarded_call_notifications
from coordinator.actions.notifications.delivering import find_notification_drop_reason
from coordinator.actions.notifications.removed_people import move_notification_settings_to_name
from coordinator.actions.sessions import guards
from coordinator.actions.sessions.events import record_events
from coordinator.dialects import claude_code
from coordinator.identity.actors import Actor
from coordinator.models import (
    AuditLog,
    DrivenSession,
    Event,
    EventContext,
    Notification,
    NotificationChoice,
    NotificationTarget,
    PermissionContext,
    Session,
    SessionGuard,
)
from coordinator.models.gateway import BY_GATEWAY
from coordinator.notifications.messages import build_message_text
from coordinator.notifications.webhook_messages import build_webhook_payload
from coordinator.sessions import unguarded_calls
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.unguarded_calls import GuardReport, describe_permission_mode, load_guard_report
from tests.access.cases import add_agents
from tests.approvals.factories import asked as asked_request
from tests.people import person, signed_in
from tests.timelines import BEGAN, add_events, began, ended, make_session
from tests.transcripts.recorded import (
    brought,
    copied,
    read_recorded_hooks,
    the_session,
    told_by_hooks_one_by_one,
)

pytestmark = pytest.mark.django_db
CLAUDE = "claude-code"
ANNA = Actor("user", "anna")
LATER = BEGAN + timedelta(hours=1)


@pytest.fixture(autouse=True)
def first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards.CountingProgress, "upto", None)


@pytest.fixture
def session() -> Session:
    return make_session("ses_a", executor_profile=CLAUDE)


def call(
    use: str, *, before: str | None = CLAUDE, after: str = CLAUDE, tool: str = "Bash", **end: Any
) -> list[Any]:
    """Return a call whose beginning is told by `before` (None: by nobody) and whose result by `after`."""
    starts = [began(tool, tool_use_id=use, source=before)] if before else []
    return [*starts, ended(tool, tool_use_id=use, source=after, **end)]


def hook_came(name: str = "SessionStart") -> dict[str, Any]:
    return {"event_type": name, "source": CLAUDE}


def unguarded(session: Session) -> list[str]:
    report = load_guard_report(session)
    assert report is not None
    return [call.call_id for call in report.unguarded]


def test_a_call_whose_hook_came_is_guarded_and_one_that_only_its_result_tells_of_is_not(
    session: Session,
) -> None:
    add_events(session, [hook_came(), *call("a"), *call("b", before=None), *call("c", before="telemetry")])
    assert unguarded(session) == ["b", "c"]
    report = load_guard_report(session)
    assert report is not None
    assert (report.has_hooks, report.is_imported) == (True, False)


def test_a_call_from_the_transcript_of_a_session_with_hooks_is_unguarded(session: Session) -> None:
    add_events(session, [hook_came(), *call("a", before="transcript", after="transcript")])
    assert unguarded(session) == ["a"]


def test_imported_calls_from_before_the_first_hook_count_apart(session: Session) -> None:
    add_events(
        session, [*call("a", before="transcript", after="transcript"), hook_came(), *call("b", before=None)]
    )
    assert unguarded(session) == ["b"]
    report = load_guard_report(session)
    assert report is not None
    assert report.earlier_count == 1


def test_a_session_that_was_only_imported_alarms_nobody(session: Session) -> None:
    add_events(session, [*call("a", before="transcript", after="transcript")])
    report = load_guard_report(session)
    assert report is not None
    assert (report.is_imported, report.unguarded_count, report.earlier_count) == (True, 0, 1)


def test_where_telemetry_comes_and_no_hook_ever_every_call_is_unguarded(session: Session) -> None:
    add_events(session, [*call("a", before="telemetry", after="telemetry")])
    report = load_guard_report(session)
    assert report is not None
    assert (report.has_hooks, report.is_imported, unguarded(session)) == (False, False, ["a"])


def test_a_call_that_was_asked_about_or_that_the_gateway_took_is_guarded(session: Session) -> None:
    question = {
        "event_type": "permission_request",
        "tool_name": "Bash",
        "tool_use_id": "a",
        "source": "other",
    }
    through = call("b", before="transcript", after="transcript", tool="mcp__signalbox__github__issues")
    add_events(
        session, [hook_came(), question, *call("a", before=None), *through, *call("c", before=BY_GATEWAY)]
    )
    assert unguarded(session) == []


@pytest.mark.parametrize(
    "error",
    ["InputValidationError: no command", "Refused by Claude Code itself: …", "No such tool available: X"],
)
def test_a_call_that_did_not_run_needs_no_guard(session: Session, error: str) -> None:
    add_events(session, [hook_came(), *call("a", before="transcript", after="transcript", error=error)])
    assert unguarded(session) == []


def test_a_call_without_a_result_is_not_counted_yet(session: Session) -> None:
    add_events(session, [hook_came(), began("Bash", tool_use_id="a", source="transcript")])
    assert unguarded(session) == []


def test_tools_that_never_call_the_hook_count_apart() -> None:
    session = make_session("ses_c", executor_profile="codex")
    start = {"event_type": "session_start", "source": "codex"}
    add_events(
        session,
        [
            start,
            *call("a", before=None, after="telemetry", tool="write_stdin"),
            *call("b", before=None, after="codex"),
            *call("c", before=None, after="transcript", tool="WebSearch"),
        ],
    )
    report = load_guard_report(session)
    assert report is not None
    assert (report.without_hook_count, unguarded(session)) == (2, ["b"])
    assert set(unguarded_calls.TOOLS_WITHOUT_HOOK) <= set(AGENT_TITLES)


def test_other_sessions_have_no_hook_that_could_guard_them() -> None:
    assert load_guard_report(make_session("ses_x", executor_profile="my-executor")) is None
    assert load_guard_report(make_session("ses_y")) is None


def test_a_driven_agent_is_asked_by_its_runner_and_says_its_mode(session: Session) -> None:
    DrivenSession.objects.create(session=session, runner_id="r", mode="bypassPermissions")
    add_events(session, [*call("a", before=None)])
    report = load_guard_report(session)
    assert report is not None
    assert (report.is_driven, report.unguarded_count) == (True, 1)
    assert report.mode_note == unguarded_calls.APPROVES_ALL
    DrivenSession.objects.update(mode="default")
    assert unguarded(session) == []


def test_people_are_told_of_calls_of_a_driven_agent_that_approves_every_call(session: Session) -> None:
    listening()
    DrivenSession.objects.create(session=session, runner_id="r", mode="bypassPermissions")
    asked, *_ = add_events(session, call("a"))
    add_events(session, [*call("b"), *call("c", error="Denied by anna")])
    request = asked_request()
    PermissionContext.objects.filter(request=request).update(session_id=session.pk, event_id=asked.pk)
    assert unguarded(session) == ["b"]
    guards.update_recent_unguarded_call_counts(LATER)
    [message] = Notification.objects.filter(event="unguarded")
    assert "1 call ran without a question" in build_message_text(message, None, LATER).title
    page = " ".join(signed_in("viewer").get("/ui/sessions/ses_a/").content.decode().split())
    assert "1 call ran without a question" in page
    assert "never came to the hook" not in page


def test_the_mode_is_what_the_newest_hook_says(session: Session) -> None:
    for number, mode in enumerate(("default", "bypassPermissions")):
        body = {
            "hook_event_name": "PreToolUse",
            "session_id": "c1",
            "permission_mode": mode,
            "tool_name": "Bash",
            "tool_input": {"command": "ls"},
            "tool_use_id": f"toolu_{number}",
        }
        hook = claude_code.DIALECT.read_hook(json.dumps(body).encode(), "2026-11-20T09:00:00+00:00")
        record_events([*claude_code.DIALECT.build_hook_and_transcript_events(hook, session.pk)], BEGAN)
    report = load_guard_report(session)
    assert report is not None
    assert (report.mode, report.mode_note) == ("bypassPermissions", unguarded_calls.APPROVES_ALL)
    assert (
        describe_permission_mode("default"),
        describe_permission_mode(None),
        describe_permission_mode("plan"),
    ) == ("", "", "")
    assert (
        describe_permission_mode("full-auto")
        == describe_permission_mode("YOLO")
        == unguarded_calls.APPROVES_ALL
    )
    assert (
        describe_permission_mode("acceptEdits")
        == describe_permission_mode("auto-edit")
        == unguarded_calls.APPROVES_EDITS
    )


def test_only_the_newest_calls_of_a_long_session_are_looked_at(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unguarded_calls, "MOST_EVENTS", 3)
    add_events(session, [hook_came(), *call("a", before=None), *call("b"), *call("c", before=None)])
    report = load_guard_report(session)
    assert report is not None
    assert (report.is_cut, unguarded(session)) == (True, ["c"])


# --- results that name no call ------------------------------------------------------------------------------


def hooks_of_calls(agent: str) -> list[int]:
    """Return the places of the hooks before a call in the recording of an agent."""
    names = [json.loads(line)["hook_event_name"] for line in read_recorded_hooks(agent)]
    return [place for place, name in enumerate(names) if name in {"BeforeTool", "PreToolUse"}]


def guard_of_recording(agent: str, *left_out: int) -> GuardReport:
    """Return what guarded the recorded session where these hooks of it never came."""
    for place, tell in enumerate(told_by_hooks_one_by_one(agent)):
        if place not in left_out:
            tell()
    report = load_guard_report(the_session())
    assert report is not None
    return report


@pytest.mark.parametrize("agent", sorted(unguarded_calls.RESULTS_WITHOUT_ID))
def test_where_each_hook_came_no_result_without_an_id_is_unguarded(agent: str, tmp_path: Path) -> None:
    assert guard_of_recording(agent).unguarded_count == 0
    brought(agent, copied(agent, tmp_path))
    report = load_guard_report(the_session())
    assert report is not None
    assert report.unguarded_count == 0
    assert report.without_hook_count == {"copilot": 1, "gemini": 0}[agent]


@pytest.mark.parametrize(
    ("agent", "place"),
    [
        (agent, place)
        for agent in sorted(unguarded_calls.RESULTS_WITHOUT_ID)
        for place in hooks_of_calls(agent)
    ],
)
def test_a_result_without_an_id_is_unguarded_where_the_hook_before_it_never_came(
    agent: str, place: int
) -> None:
    hook = json.loads(read_recorded_hooks(agent)[place])
    [call] = guard_of_recording(agent, place).unguarded
    assert call.tool == hook["tool_name"]
    assert call.call_id is None
    assert Event.objects.get(pk=call.event_id).tool_input == hook["tool_input"]


def test_without_any_hook_before_a_call_every_result_is_unguarded() -> None:
    places = hooks_of_calls("gemini")
    assert guard_of_recording("gemini", *places).unguarded_count == len(places) == 3


def gemini_session(*events: tuple[str, str]) -> list[int]:
    """Return the places of the unguarded results among calls of one tool: what each event is, and its input."""
    session = make_session("ses_g", executor_profile="gemini")
    make = {"before": began, "after": ended}
    rows = add_events(
        session,
        [
            make[kind]("run_shell_command", {"command": command}, source="gemini")
            | ({"tool_use_id": f"made:{place}"} if kind == "before" else {})
            for place, (kind, command) in enumerate(events)
        ],
    )
    report = load_guard_report(session)
    assert report is not None
    places = {row.pk: place for place, row in enumerate(rows)}
    return [places[call.event_id] for call in report.unguarded]


def test_of_equal_calls_each_hook_guards_one_result_after_it() -> None:
    assert gemini_session(("before", "ls"), ("after", "ls"), ("after", "ls")) == [2]


def test_a_hook_guards_no_result_from_before_it() -> None:
    events = [("after", "ls"), *[("before", "wait"), ("after", "wait")] * 3, ("before", "ls")]
    assert gemini_session(*events) == [0]


def test_nothing_is_said_of_a_result_whose_input_may_have_changed_on_the_way() -> None:
    assert gemini_session(("before", "ls"), ("after", "ls -la")) == []


def test_of_two_such_results_one_is_unguarded() -> None:
    assert gemini_session(("before", "ls"), ("after", "ls -la"), ("after", "rm x")) == [2]


# --- counting and telling ---------------------------------------------------------------------------------


def listening(name: str = "anna", **columns: Any) -> NotificationTarget:
    person("approver", name)
    return NotificationTarget.objects.create(
        person=name, kind="email", address=f"{name}@example.org", created_at=BEGAN, **columns
    )


def test_people_are_told_once_a_session(session: Session) -> None:
    target = listening()
    add_events(session, [hook_came(), *call("a", before=None)])
    assert guards.update_recent_unguarded_call_counts(LATER) == 1
    [message] = Notification.objects.all()
    assert (message.target, message.event) == (target, "unguarded")
    text = build_message_text(message, None, LATER)
    assert "1 call never came to the hook" in text.title
    assert text.link.endswith("/ui/sessions/ses_a/")
    assert build_webhook_payload(message, None, LATER)["session_id"] == "ses_a"
    add_events(session, [*call("b", before=None)])
    guards.update_recent_unguarded_call_counts(LATER)
    assert Notification.objects.count() == 1
    assert SessionGuard.objects.get().unguarded == 2


def test_a_guarded_session_is_counted_and_nobody_is_told(session: Session) -> None:
    listening()
    add_events(session, [hook_came(), *call("a")])
    guards.update_recent_unguarded_call_counts(LATER)
    assert SessionGuard.objects.get().unguarded == 0
    assert not Notification.objects.exists()


def test_what_has_just_come_is_counted_a_minute_later(session: Session) -> None:
    add_events(session, [hook_came(), *call("a", before=None)])
    EventContext.objects.update(received_at=LATER)
    assert guards.update_recent_unguarded_call_counts(LATER) == 0
    assert guards.update_recent_unguarded_call_counts(LATER + guards.SETTLED_AFTER) == 1
    assert SessionGuard.objects.get().unguarded == 1


def test_who_switched_it_off_or_hears_of_some_requests_alone_is_not_told(session: Session) -> None:
    listening("anna")
    listening("ben", about="marked")
    set_unguarded_call_notifications(user=User.objects.get(username="anna"), notify=False, now=BEGAN)
    assert "NOTIFICATION_CHOICE_SET" in AuditLog.objects.values_list("event_type", flat=True)
    add_events(session, [hook_came(), *call("a", before=None)])
    guards.update_recent_unguarded_call_counts(LATER)
    assert SessionGuard.objects.get().unguarded == 1
    assert not Notification.objects.exists()


def test_a_message_that_waits_is_dropped_where_its_person_switches_it_off(session: Session) -> None:
    target = listening("anna")
    add_events(session, [hook_came(), *call("a", before=None)])
    guards.update_recent_unguarded_call_counts(LATER)
    message = Notification.objects.get()
    assert find_notification_drop_reason(message, None, LATER) is None
    set_unguarded_call_notifications(user=User.objects.get(username="anna"), notify=False, now=BEGAN)
    assert find_notification_drop_reason(message, None, LATER) == "it was switched off"
    assert target.person == "anna"


def test_the_choice_follows_a_person_to_a_new_name() -> None:
    set_unguarded_call_notifications(user=person("approver", "cleo"), notify=False, now=BEGAN)
    move_notification_settings_to_name("cleo", "dora", actor=ANNA, now=BEGAN)
    assert NotificationChoice.objects.get().person == "dora"


# --- pages ------------------------------------------------------------------------------------------------


def test_the_session_says_which_calls_and_where_to_mend_it(session: Session) -> None:
    rows = add_events(session, [hook_came(), *call("a", before=None, tool="Write")])
    page = signed_in("viewer").get("/ui/sessions/ses_a/").content.decode()
    assert "1 call never came to the hook" in " ".join(page.split())
    assert f"?event={rows[-1].pk}#event-{rows[-1].pk}" in page
    assert "/ui/connections/claude-code/" in page


def test_an_imported_session_says_so(session: Session) -> None:
    add_events(session, [*call("a", before="transcript", after="transcript")])
    page = signed_in("viewer").get("/ui/sessions/ses_a/").content.decode()
    assert "Imported; nobody could have been asked" in page
    assert "never came to the hook" not in page


def test_the_agents_page_lists_its_sessions(session: Session) -> None:
    add_agents("reviewer")
    add_events(session, [hook_came(), *call("a", before=None)])
    guards.update_recent_unguarded_call_counts(LATER)
    Session.objects.update(created_at=timezone.now() - timedelta(days=1))
    page = signed_in("viewer").get(reverse("agents:detail", args=["reviewer"]))
    assert page.status_code == 200
    assert "1 call never came to the hook" in " ".join(page.content.decode().split())


def test_the_settings_show_the_switch() -> None:
    client = signed_in("approver")
    assert 'value="yes" checked' in " ".join(
        client.get("/ui/approvals/notifications/").content.decode().split()
    )
    client.post("/ui/approvals/notifications/unguarded/", {})
    assert 'value="yes" checked' not in " ".join(
        client.get("/ui/approvals/notifications/").content.decode().split()
    )
