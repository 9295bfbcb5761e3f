"""Where too many wait already, a call that its agent is denied for that has an end in its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.sessions.events import record_events
from coordinator.edge.hooks import pending_hooks as held_hooks
from coordinator.edge.ingest.write_queue import MakeEvents, WriteResult
from coordinator.models import Event, Session
from coordinator.policy.rules.tool_rules import DecisionRule
from coordinator.sessions.events import NewEvent
from coordinator.sessions.timeline import CallRow, SessionTimeline, load_window_rows
from tests.claude_code import test_failing_closed as failing
from tests.claude_code.test_failing_closed import RULES, Inline, Steps, answer, hook, key, lay_down

pytestmark = pytest.mark.django_db
__all__ = ["key"]  # a fixture


class Writer(failing.Writer):
    """A writer that writes at once, and into the database."""

    async def write_and_read_back(
        self, items: Sequence[NewEvent] = (), *, make: MakeEvents | None = None, **_how: Any
    ) -> WriteResult:
        def write() -> WriteResult:
            made, events = make() if make is not None else (None, items)
            return WriteResult(record_events(events, timezone.now()), made)

        return await Inline().run_in_thread(write)


@pytest.fixture(autouse=True)
def _no_place_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_hooks, "MOST_WAITING", 0)
    monkeypatch.setattr(failing, "Writer", Writer)


def ask(key: str, rule: DecisionRule, agent: str = "claude-code") -> tuple[str | None, CallRow]:
    """Have the agent ask whether a call may run; return the decision, and the call's row."""
    lay_down(rule)
    decision = answer(key, Steps(), hook("Bash", command=rule.pattern), agent=agent)
    session = Session.objects.get()
    timeline = SessionTimeline(session.pk)
    [row] = [
        row
        for row in load_window_rows(timeline, timeline.read_last_window(10), session)
        if isinstance(row, CallRow)
    ]
    return decision, row


@pytest.mark.parametrize(("word", "agent"), [("careful", "claude-code"), ("danger", "codex")])
def test_a_call_that_is_denied_has_the_denial_as_its_result(key: str, word: str, agent: str) -> None:
    decision, row = ask(key, RULES[word], agent)
    assert (decision, row.call_state) == ("deny", "failed")
    assert row.end is not None
    assert row.end.error is not None
    assert "Signalbox could not ask anyone: Too many calls that wait for people" in row.end.error


def test_a_call_that_is_left_to_the_agents_own_prompt_goes_on(key: str) -> None:
    decision, row = ask(key, RULES["danger"])
    assert (decision, row.call_state) == ("ask", "running")
    assert not Event.objects.filter(event_type="post_tool").exists()
