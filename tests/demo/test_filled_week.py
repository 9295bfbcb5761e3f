"""The demo's week, once it is in the database: some of everything, and all of it hangs together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.db import transaction
from pytest_django import DjangoDbBlocker

from coordinator.demo import fill, programs
from coordinator.demo.cast import AT_TERMINALS, PEOPLE
from coordinator.demo.long_session import plan_long_session
from coordinator.models import (
    AuditLog,
    ChatAttachment,
    Event,
    EventContext,
    Grant,
    PermissionRequest,
    Run,
    Session,
    SessionOwner,
)
from coordinator.policy.rules.tool_rules import load_saved_tool_rules
from coordinator.policy.suggestions.history import WalkTimeLimit
from coordinator.policy.suggestions.rule_trials import RecordedCallJudge, RuleTrial
from coordinator.policy.suggestions.search import SuggestionSearch
from coordinator.sessions.agent_programs import AGENT_TITLES
from dashboard.rules.recorded import READER

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def filled_once(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[fill.DemoRowCounts]:
    """The week, filled in once for all tests here, in a transaction that is undone after them."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield fill.fill_demo_database(seed=7, days=7, now=NOW)
        transaction.set_rollback(True)


@pytest.fixture
def filled(filled_once: fill.DemoRowCounts, db: None) -> fill.DemoRowCounts:
    return filled_once


def test_week_has_some_of_everything(filled: fill.DemoRowCounts) -> None:
    assert filled.agents >= 40
    assert filled.sessions > 250
    assert filled.events > 4000
    assert {"running", "finished", "error", "stopped"} <= set(
        Session.objects.values_list("status", flat=True)
    )
    assert {"pending", "approved", "denied", "expired"} <= set(
        PermissionRequest.objects.values_list("status", flat=True)
    )
    assert Session.objects.filter(parent_session__isnull=False).exists()
    assert set(SessionOwner.objects.values_list("person", flat=True)) == set(PEOPLE)
    assert ChatAttachment.objects.filter(mime_type="image/png").exists()
    assert Grant.objects.filter(permission="deny").exists()


def test_one_long_session_has_all_that_a_timeline_can_show(filled: fill.DemoRowCounts) -> None:
    story = plan_long_session(seed=7, now=NOW)
    rows = Event.objects.filter(session_id=story.session_id)
    assert 4_800 <= rows.count() <= 5_600
    assert {"PreCompact", "compaction", "SubagentStart", "SubagentStop"} <= set(
        rows.values_list("event_type", flat=True)
    )
    assert rows.exclude(context__subagent=None).values("context__subagent").distinct().count() == 4
    assert rows.filter(tool_name="ExitPlanMode").exists()
    assert rows.filter(event_type="post_tool", error__contains="make: ***").count() == 1
    assert any(
        output["type"] == "image"
        for output in rows.filter(
            event_type="post_tool", tool_name="Read", tool_input__contains="suite-"
        ).values_list("tool_output", flat=True)
    )
    assert Session.objects.get(pk=story.session_id).status == "finished"


def test_every_event_has_its_context_and_every_session_of_a_runner_its_run(
    filled: fill.DemoRowCounts,
) -> None:
    assert EventContext.objects.count() == Event.objects.count()
    at_terminals = Session.objects.filter(executor_profile__in=programs.PROGRAMS)
    assert Run.objects.count() == Session.objects.count() - at_terminals.count()


def test_every_agent_program_has_sessions_and_calls_that_rules_can_be_tried_on(
    filled: fill.DemoRowCounts,
) -> None:
    assert set(programs.PROGRAMS) <= set(Session.objects.values_list("executor_profile", flat=True))
    assert set(AT_TERMINALS) == set(programs.PROGRAMS) <= set(AGENT_TITLES)
    trial = RuleTrial.start_rule_trial_over_history(READER)
    judge = RecordedCallJudge(load_saved_tool_rules(), NOW)
    trial.continue_rule_trial(READER, judge, judge, WalkTimeLimit(60))
    assert trial.is_done
    assert trial.tally.calls > 500
    assert {by for by in trial.tally.by if by.startswith("rule")} >= {"rule 3", "rule 4"}


def test_rules_and_grants_can_be_suggested_from_the_week(filled: fill.DemoRowCounts) -> None:
    search = SuggestionSearch.start_suggestion_search_over_history(READER)
    while not search.is_done:
        search.continue_suggestion_search(READER, load_saved_tool_rules(), NOW, WalkTimeLimit(60))
    assert any(one.is_grant for one in search.tried)
    assert any(one.runs or one.touches for one in search.tried)
    assert search.refused_calls > 0


def test_codex_makes_no_calls_that_it_has_not(filled: fill.DemoRowCounts) -> None:
    tools = Event.objects.filter(context__source="codex", tool_name__isnull=False).values_list(
        "tool_name", flat=True
    )
    assert {name for name in tools if not name.startswith("mcp__")} == {"Bash", "apply_patch"}


def test_every_decision_is_in_the_audit_log(filled: fill.DemoRowCounts) -> None:
    decided = PermissionRequest.objects.filter(status__in=["approved", "denied"]).values_list(
        "request_id", flat=True
    )
    audited = AuditLog.objects.filter(event_type__startswith="PERMISSION_REQUEST_").values_list(
        "target_id", flat=True
    )
    assert set(decided) <= set(audited)
