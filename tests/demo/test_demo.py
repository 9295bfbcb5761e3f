"""The demo fills an empty database with a week that hangs together, and never one that is in use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coordinator.actions.policy import tool_rules
from coordinator.demo import fill
from coordinator.demo.week import WeekPlanner
from coordinator.errors import Conflict
from coordinator.identity.actors import system_actor
from coordinator.models import (
    Session,
)
from coordinator.policy.rules.tool_rules import DecisionRule, digest_tool_rules, load_saved_tool_rules

NOW = datetime.now(UTC).replace(microsecond=0)


def test_same_seed_and_clock_tell_the_same_week() -> None:
    one, two = (WeekPlanner(seed=7, now=NOW).plan_week_stories() for _time in range(2))
    assert [(s.session_id, s.status, len(s.moments)) for s in one] == [
        (s.session_id, s.status, len(s.moments)) for s in two
    ]


@pytest.mark.parametrize("seed", range(20))
def test_no_story_reaches_beyond_now_and_every_child_has_its_parent(seed: int) -> None:
    stories = WeekPlanner(seed=seed, now=NOW).plan_week_stories()
    ids = {story.session_id for story in stories}
    assert all(story.parent is None or story.parent.session_id in ids for story in stories)
    assert all((story.ends or story.begins) < NOW + timedelta(hours=1) for story in stories)
    assert any(story.status == "running" for story in stories)
    assert any(question.verdict == "pending" for story in stories for question in story.questions)


@pytest.mark.usefixtures("few_sessions")
def test_rules_that_are_there_are_left_alone(db: None) -> None:
    Session.objects.create(session_id="ses_real", status="finished", created_at=NOW)
    mine = DecisionRule(1, "Bash", "deny", "mine")
    tool_rules.replace_tool_rules(
        [mine], seen_version=digest_tool_rules([]), actor=system_actor("test"), now=NOW
    )
    fill.fill_demo_database(seed=7, days=1, now=NOW, anyway=True)
    assert load_saved_tool_rules() == (mine,)


@pytest.mark.django_db
def test_database_in_use_is_left_alone() -> None:
    Session.objects.create(session_id="ses_real", status="finished", created_at=NOW)
    with pytest.raises(Conflict, match="in use"):
        fill.fill_demo_database(seed=7, days=7, now=NOW)
    assert Session.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.usefixtures("few_sessions")
def test_database_in_use_is_filled_when_told_so() -> None:
    Session.objects.create(session_id="ses_real", status="finished", created_at=NOW)
    fill.fill_demo_database(seed=7, days=1, now=NOW, anyway=True)
    assert Session.objects.count() > 10


@pytest.mark.django_db
@pytest.mark.usefixtures("few_sessions")
def test_failure_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> int:
        raise RuntimeError(str(system_actor("demo")))

    monkeypatch.setattr("coordinator.demo.chats.write_demo_chats", fail)
    with pytest.raises(RuntimeError):
        fill.fill_demo_database(seed=7, days=1, now=NOW)
    assert not Session.objects.exists()
