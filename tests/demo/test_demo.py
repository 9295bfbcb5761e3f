"""The demo fills an empty database with a week that hangs together, and never one that is in use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coordinator.actions import tool_rules
from coordinator.demo import fill, programs
from coordinator.demo.week import Week
from coordinator.errors import Conflict
from coordinator.identity.actors import system
from coordinator.models import (
    AuditLog,
    ChatAttachment,
    Event,
    EventContext,
    Grant,
    PermissionRequest,
    Run,
    Session,
)
from coordinator.policy.history import Budget
from coordinator.policy.suggestions import Search
from coordinator.policy.tool_rules import Rule, saved, version
from coordinator.policy.trials import Judge, Trial
from coordinator.sessions.agent_programs import AGENTS
from dashboard.rules.recorded import READER

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def filled(db: None) -> fill.FilledCounts:
    return fill.fill(seed=7, days=7, now=NOW)


def test_same_seed_and_clock_tell_the_same_week() -> None:
    one, two = (Week(seed=7, now=NOW).plan() for _time in range(2))
    assert [(s.session_id, s.status, len(s.moments)) for s in one] == [
        (s.session_id, s.status, len(s.moments)) for s in two
    ]


@pytest.mark.parametrize("seed", range(20))
def test_no_story_reaches_beyond_now_and_every_child_has_its_parent(seed: int) -> None:
    stories = Week(seed=seed, now=NOW).plan()
    ids = {story.session_id for story in stories}
    assert all(story.parent is None or story.parent.session_id in ids for story in stories)
    assert all((story.ends or story.begins) < NOW + timedelta(hours=1) for story in stories)
    assert any(story.status == "running" for story in stories)
    assert any(question.verdict == "pending" for story in stories for question in story.questions)


def test_week_has_some_of_everything(filled: fill.FilledCounts) -> None:
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
    assert ChatAttachment.objects.filter(mime_type="image/png").exists()
    assert Grant.objects.filter(permission="deny").exists()


def test_every_event_has_its_context_and_every_session_of_a_runner_its_run(filled: fill.FilledCounts) -> None:
    assert EventContext.objects.count() == Event.objects.count()
    at_terminals = Session.objects.filter(executor_profile__in=AGENTS)
    assert Run.objects.count() == Session.objects.count() - at_terminals.count()


def test_every_agent_program_has_sessions_and_calls_that_rules_can_be_tried_on(
    filled: fill.FilledCounts,
) -> None:
    assert set(AGENTS) <= set(Session.objects.values_list("executor_profile", flat=True))
    assert set(AGENTS) == set(programs.PROGRAMS)
    trial = Trial.beginning(READER)
    judge = Judge(saved(), NOW)
    trial.go_on(READER, judge, judge, Budget(60))
    assert trial.is_done
    assert trial.tally.calls > 500
    assert {by for by in trial.tally.by if by.startswith("rule")} >= {"rule 3", "rule 4"}


def test_rules_and_grants_can_be_suggested_from_the_week(filled: fill.FilledCounts) -> None:
    search = Search.beginning(READER)
    while not search.is_done:
        search.go_on(READER, saved(), NOW, Budget(60))
    assert any(one.is_grant for one in search.tried)
    assert any(one.pattern for one in search.tried)
    assert search.refused_calls > 0


def test_codex_makes_no_calls_that_it_has_not(filled: fill.FilledCounts) -> None:
    tools = Event.objects.filter(context__source="codex", tool_name__isnull=False).values_list(
        "tool_name", flat=True
    )
    assert {name for name in tools if not name.startswith("mcp__")} == {"Bash", "apply_patch"}


def test_rules_that_are_there_are_left_alone(db: None) -> None:
    Session.objects.create(session_id="ses_real", status="finished", created_at=NOW)
    mine = Rule(1, "Bash", "deny", "mine")
    tool_rules.save([mine], seen=version([]), by=system("test"), now=NOW)
    fill.fill(seed=7, days=1, now=NOW, anyway=True)
    assert saved() == (mine,)


def test_every_decision_is_in_the_audit_log(filled: fill.FilledCounts) -> None:
    decided = PermissionRequest.objects.filter(status__in=["approved", "denied"]).values_list(
        "request_id", flat=True
    )
    audited = AuditLog.objects.filter(event_type__startswith="PERMISSION_REQUEST_").values_list(
        "target_id", flat=True
    )
    assert set(decided) <= set(audited)


@pytest.mark.django_db
def test_database_in_use_is_left_alone() -> None:
    Session.objects.create(session_id="ses_real", status="finished", created_at=NOW)
    with pytest.raises(Conflict, match="in use"):
        fill.fill(seed=7, days=7, now=NOW)
    assert Session.objects.count() == 1


@pytest.mark.django_db
def test_database_in_use_is_filled_when_told_so() -> None:
    Session.objects.create(session_id="ses_real", status="finished", created_at=NOW)
    fill.fill(seed=7, days=1, now=NOW, anyway=True)
    assert Session.objects.count() > 100


@pytest.mark.django_db
def test_failure_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> int:
        raise RuntimeError(str(system("demo")))

    monkeypatch.setattr("coordinator.demo.chats.write", fail)
    with pytest.raises(RuntimeError):
        fill.fill(seed=7, days=1, now=NOW)
    assert not Session.objects.exists()
