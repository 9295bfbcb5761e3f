"""A card by which no hook waits any more closes by itself, unless its call may still come again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine

from coordinator.actions.sessions import tool_calls, unawaited_calls
from coordinator.actions.sessions.events import record_events
from coordinator.mcp.gateway import workers
from coordinator.models import PermissionRequest, Session
from coordinator.policy.rules.tool_rules import ASK, Ruling
from coordinator.sessions import inactivity
from coordinator.sessions.events import NewEvent
from tests.approvals.factories import AGENT, MINUTE, NOW, fresh, trail
from tests.approvals.test_inbox import html_of
from tests.approvals.test_told_to_wait import call, decide

pytestmark = pytest.mark.django_db
RULE = Ruling(ASK, "Ask.", "rule 1")
SECOND = timedelta(seconds=1)
HERE = workers.get_own_worker_name()
DEAD = f"{HERE.rpartition(':')[0]}:1"  # this process's number, as it was when another process had it
FAR = "another-machine:7:7"


def asks(by: str, *, outlasts: bool = False, now: datetime = NOW, **changes: Any) -> PermissionRequest:
    """Have a hook ask that waits in the process `by`."""
    asked = call(**changes)
    ends = now + 5 * MINUTE
    return tool_calls.request_tool_approval(
        asked, RULE, actor=AGENT, deadline=ends, outlasts=outlasts, waited_by=by, now=now
    )


def status(row: PermissionRequest) -> tuple[str, str | None]:
    row = fresh(row)
    return row.status, row.context.reason


def event(kind: str, at: datetime, **more: Any) -> None:
    record_events([NewEvent(event_type=kind, session_id="ses_1", timestamp=at.isoformat(), **more)], at)


def test_a_card_whose_server_was_killed_closes_where_its_hook_does_not_come_again() -> None:
    row = asks(DEAD)
    assert unawaited_calls.close_abandoned_requests(NOW + SECOND) == 1
    assert status(row) == ("withdrawn", tool_calls.GONE)
    assert trail(row) == ["PERMISSION_REQUEST_CREATED", "PERMISSION_REQUEST_WITHDRAWN"]


@pytest.mark.parametrize("by", [HERE, FAR], ids=["alive", "elsewhere"])
def test_a_card_stays_while_its_process_lives_or_nothing_is_known_of_it(by: str) -> None:
    row = asks(by)
    assert unawaited_calls.close_abandoned_requests(NOW + SECOND) == 0
    assert status(row) == ("pending", None)


def test_a_call_that_may_come_again_has_half_a_minute_for_it() -> None:
    row = asks(DEAD, outlasts=True)
    assert unawaited_calls.close_abandoned_requests(NOW + SECOND) == 0
    assert asks(HERE, outlasts=True, now=NOW + 2 * SECOND) == row
    assert unawaited_calls.close_abandoned_requests(NOW + 2 * MINUTE) == 0
    assert status(row) == ("pending", None)


def test_a_call_that_does_not_come_again_closes(signed_in: Any) -> None:
    row = asks(DEAD, outlasts=True)
    unawaited_calls.close_abandoned_requests(NOW + SECOND)
    with time_machine.travel(NOW + 2 * SECOND, tick=False):
        page = " ".join(html_of(signed_in()).split())
    assert "Nobody waits for this any more. Approving lets the same call run once." in page
    assert unawaited_calls.close_abandoned_requests(NOW + 20 * SECOND) == 0
    assert unawaited_calls.close_abandoned_requests(NOW + 32 * SECOND) == 1
    assert status(row) == ("withdrawn", tool_calls.GONE)


def test_an_approval_meanwhile_runs_the_call_that_is_made_again() -> None:
    row = asks(DEAD, outlasts=True)
    unawaited_calls.close_abandoned_requests(NOW + SECOND)
    decide(row, after=10 * SECOND)
    assert unawaited_calls.close_abandoned_requests(NOW + 2 * MINUTE) == 0
    again = asks(HERE, outlasts=True, now=NOW + 3 * MINUTE, call_id="toolu_2")
    assert again == row
    assert tool_calls.try_consume_call_verdict(
        row.request_id, call("toolu_2"), actor=AGENT, now=NOW + 3 * MINUTE
    )
    assert not tool_calls.try_consume_call_verdict(
        row.request_id, call("toolu_3"), actor=AGENT, now=NOW + 3 * MINUTE
    )


def test_an_agent_that_was_told_to_wait_keeps_its_card_whatever_dies() -> None:
    row = asks(DEAD, outlasts=True)
    assert tool_calls.defer_tool_call(
        row.request_id, actor=AGENT, reason="Nobody answered.", now=NOW + MINUTE
    )
    assert unawaited_calls.close_abandoned_requests(NOW + 60 * MINUTE) == 0
    assert status(row) == ("pending", None)


@pytest.mark.parametrize(
    "news",
    [
        {"kind": "post_tool", "tool_name": "Bash", "tool_use_id": "toolu_1"},
        {"kind": "turn_end"},
        {"kind": "session_stop"},
        {"kind": "message", "role": "user", "content": []},
    ],
    ids=lambda news: news["kind"],
)
def test_news_of_the_session_closes_what_another_machines_process_left(news: dict[str, Any]) -> None:
    Session.objects.create(session_id="ses_1", status="running", created_at=NOW)
    row, other = asks(FAR), asks(FAR, session_id="ses_2")
    event(**(news | {"at": NOW + MINUTE}))
    assert unawaited_calls.close_abandoned_requests(NOW + 2 * MINUTE) == 1
    assert status(row) == ("withdrawn", unawaited_calls.WENT_ON)
    assert status(other) == ("pending", None)


def test_news_of_another_call_closes_nothing() -> None:
    Session.objects.create(session_id="ses_1", status="running", created_at=NOW)
    asks(FAR)
    event("post_tool", NOW + MINUTE, tool_name="Bash", tool_use_id="toolu_2")
    assert unawaited_calls.close_abandoned_requests(NOW + 2 * MINUTE) == 0


def test_what_nobody_waits_for_does_not_keep_its_session_from_ending(settings: Any) -> None:
    Session.objects.create(
        session_id="ses_1",
        status="running",
        created_at=NOW,
        executor_session_id="e",
        executor_profile="claude-code",
    )
    asks(FAR, outlasts=True)
    settings.SESSION_SILENT_AFTER = 60
    assert inactivity.silent_session_ids_to_end(NOW + 4 * MINUTE) == []
    assert inactivity.silent_session_ids_to_end(NOW + 6 * MINUTE) == ["ses_1"]


def test_equal_calls_that_outlive_their_hooks_have_cards_of_their_own_and_are_counted(
    signed_in: Any,
) -> None:
    rows = [asks(HERE, outlasts=True, call_id=name) for name in ("a", "b", "a")]
    assert rows[0] == rows[2] != rows[1]
    with time_machine.travel(NOW + SECOND, tick=False):
        assert "2 equal calls wait" in html_of(signed_in())
    for row in rows[:2]:
        tool_calls.defer_tool_call(
            row.request_id, actor=AGENT, reason="Nobody answered.", now=NOW + 6 * MINUTE
        )
    again = [asks(HERE, outlasts=True, call_id=name, now=NOW + 7 * MINUTE) for name in ("c", "d", "e")]
    assert {row.pk for row in again[:2]} == {row.pk for row in rows}
    assert again[2] not in rows


def test_a_twin_that_waits_on_keeps_the_card_of_one_whose_process_died() -> None:
    row = asks(DEAD)
    assert asks(HERE, now=NOW + SECOND) == row
    assert unawaited_calls.close_abandoned_requests(NOW + 2 * SECOND) == 0
    assert status(row) == ("pending", None)


def test_news_does_not_close_the_card_of_a_call_that_may_wait_again_elsewhere() -> None:
    """On another machine, the same call may have been made again after what happened since it was first asked."""
    Session.objects.create(session_id="ses_1", status="running", created_at=NOW)
    row = asks(FAR, outlasts=True)
    event("turn_end", NOW + MINUTE)
    assert unawaited_calls.close_abandoned_requests(NOW + 2 * MINUTE) == 0
    assert unawaited_calls.close_abandoned_requests(NOW + 6 * MINUTE) == 1
    assert status(row) == ("withdrawn", tool_calls.GONE)
