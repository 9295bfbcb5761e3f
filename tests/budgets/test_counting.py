"""What is used is summed with the events, by the installation's day; what cannot be counted is said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import override_settings
from django.utils import timezone

from coordinator.actions.driving.hook_session_merging import try_remove_duplicate_hook_sessions
from coordinator.actions.runs.claiming import claim_next_run
from coordinator.actions.sessions import events
from coordinator.actions.usage import prices, recording
from coordinator.identity.actors import Actor
from coordinator.identity.keys import LOCAL_PROGRAM
from coordinator.lib import instants
from coordinator.mcp.gateway.binding import hash_ruling_as_policy_version
from coordinator.models import (
    ApiKey,
    Budget,
    DrivenSession,
    Run,
    Session,
    SessionOwner,
    SessionWriter,
    UsageDay,
)
from coordinator.policy.limits import budgets
from coordinator.policy.limits.budgets import BudgetRow, SpentBudget
from coordinator.policy.requests import policy_in_force
from coordinator.runs.waits import RunQueueState
from coordinator.sessions.events import DedupedEvent, NewEvent
from coordinator.usage import reading as usage
from coordinator.usage.amounts import MOST_TOKENS
from tests.runs.fleet import Fleet

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
ANNA = Actor("user", "anna")


def session(number: int = 0, **columns: Any) -> Session:
    values = {
        "status": "running",
        "created_at": NOW,
        "agent_name": "codex",
        "executor_profile": "codex",
    } | columns
    return Session.objects.create(session_id=f"ses_{number:012x}", **values)


def event(of: Session, kind: str = "pre_tool", *, at: datetime = NOW, **columns: Any) -> NewEvent:
    return NewEvent(
        event_type=kind, session_id=of.pk, timestamp=instants.format_canonical_instant(at), **columns
    )


def spent(of: Session, model: str | None = "claude-opus-4-5", *, input: int = 0, output: int = 0) -> NewEvent:
    return event(of, "model_request", model=model, input_tokens=input, output_tokens=output)


def budget(
    measure: str = "calls", *, reach: str = "everything", name: str = "", span: str = "day"
) -> BudgetRow:
    return BudgetRow(1, reach, name, span, measure, 100.0, "hold")


def test_calls_and_tokens_are_summed_with_the_events_that_are_written() -> None:
    one, two = session(1), session(2, agent_name="agent.two", executor_profile="gemini")
    told = DedupedEvent(
        event_type="pre_tool", session_id=one.pk, timestamp=instants.format_canonical_instant(NOW), origin="x"
    )
    events.record_events([event(one), event(one, "post_tool"), spent(one, input=5, output=7), told], NOW)
    events.record_events([told, event(two), spent(two, input=1, output=2), event(two, "message")], NOW)
    assert budgets.load_usage_of_budget(budget(), NOW).amount == 3  # the one that was told twice counts once
    assert budgets.load_usage_of_budget(budget("tokens"), NOW).amount == 15
    assert budgets.load_usage_of_budget(budget("tokens", reach="agent", name="agent.two"), NOW).amount == 3
    assert budgets.load_usage_of_budget(budget("tokens", reach="agent", name="codex"), NOW).amount == 12
    assert budgets.load_usage_of_budget(budget(span="session"), NOW, two.pk).amount == 1
    assert budgets.load_usage_of_budget(budget(), NOW + timedelta(days=1)).amount == 0


def test_a_refused_event_counts_nothing() -> None:
    one = session()
    gone = event(one)
    gone.session_id = "ses_gone"
    events.record_events([gone, event(one)], NOW)
    assert budgets.load_usage_of_budget(budget(), NOW).amount == 1


def test_calls_that_only_the_gateway_tells_count_in_every_session() -> None:
    own, bare = session(1), session(2, executor_profile="mcp-gateway")
    events.record_events([event(own), event(own, source="gateway"), event(bare, source="gateway")], NOW)
    assert budgets.load_usage_of_budget(budget(), NOW).amount == 3
    assert budgets.load_usage_of_budget(budget(reach="agent", name="codex"), NOW).amount == 3


def test_money_is_counted_by_prices_and_what_has_none_is_said() -> None:
    one = session()
    price = dict.fromkeys(("input", "output", "cache_read", "cache_write"), 1_000_000.0)
    prices.replace_prices_pricing_unpriced_requests({"own": price}, actor=ANNA, now=NOW)
    events.record_events([spent(one, "own", input=2, output=3), spent(one, "nobody-knows", output=40)], NOW)
    found = budgets.current_budget_state(budget("money"), NOW)
    assert (found.use.amount, found.use.unpriced) == (5.0, 40)
    assert found.used_amount_label == "at least $5.00"
    not_counted = "40 tokens of models without a price are not counted."
    assert (
        found.uncounted_usage_label
        == f"{not_counted} Until they have one, a person is asked about each call."
    )


@pytest.mark.parametrize("at_limit", ["ask", "hold"])
def test_a_budget_in_money_asks_while_something_that_was_used_has_no_price(at_limit: str) -> None:
    one = session()
    events.record_events([spent(one, "nobody-knows", output=40)], NOW)
    money = [replace(budget("money"), at_limit=at_limit)]
    asks = budgets.decide_by_budgets(money, [], one.pk, NOW)
    assert (asks.decision, asks.deny_at_deadline) == ("ask", True)
    assert "40 tokens are of models without a price" in asks.reason
    price = dict.fromkeys(("input", "output", "cache_read", "cache_write"), 0.0)
    prices.replace_prices_pricing_unpriced_requests({"nobody-knows": price}, actor=ANNA, now=NOW)
    assert budgets.decide_by_budgets(money, [], one.pk, NOW).decision == "observe"


def test_an_approval_of_a_call_over_budget_is_bound_to_that_budget() -> None:
    one = session()
    events.record_events([event(one)], NOW)
    asks = replace(budget(), amount=1.0, at_limit="ask")
    versions = {
        hash_ruling_as_policy_version(budgets.decide_by_budgets([found], [], one.pk, NOW))
        for found in (asks, replace(asks, id=2), replace(asks, amount=0.5), replace(asks, allowed_until=NOW))
    }
    assert len(versions) == 3  # that it was lifted for a day that is over changes nothing
    assert (
        policy_in_force.ruling_source_as_json(budgets.decide_by_budgets([asks], [], one.pk, NOW))["budget"][
            "amount"
        ]
        == 1.0
    )


def test_a_run_in_the_queue_waits_while_a_budget_holds_runs_and_says_so() -> None:
    fleet = Fleet()
    runner = fleet.runner()
    first, other = fleet.start(agent_name="agent.q"), fleet.start(agent_name="agent.free")
    made = Budget.objects.create(
        reach="agent",
        name="agent.q",
        span="day",
        measure="calls",
        amount=1.0,
        at_limit="hold",
        changed_at=NOW,
    )
    UsageDay.objects.create(
        day=budgets.installation_local_iso_date(fleet.now), session_id="ses_other", model="", agent="agent.q", calls=1,
        input_tokens=0, output_tokens=0, cache_read_tokens=0, cache_write_tokens=0,
    )  # fmt: skip
    assert claim_next_run(runner, fleet.tick()).run_id == other.run_id
    assert claim_next_run(runner, fleet.tick()) is None
    assert (
        RunQueueState.load_queue_state(
            fleet.now, budgets.load_spent_run_budgets(fleet.now)
        ).explain_waiting_run(first)
        == "The budget of 1 tool calls a day for agent.q is used up. The run starts once a person raises it or the day "
        "ends."
    )
    Budget.objects.filter(pk=made.pk).update(amount=2.0)
    assert claim_next_run(runner, fleet.tick()).run_id == first.run_id


def test_a_queue_asks_once_whose_a_session_is(django_assert_max_num_queries: Any) -> None:
    fleet = Fleet()
    for host in ("one", "two", "three"):
        fleet.runner(hostname=host)
    [fleet.start() for _ in range(3)]
    runs = list(Run.objects.select_related("hold", "ordered_with"))
    spent = [
        SpentBudget(budget(reach="person", name=name), owners) for owners in [{}] for name in ("anna", "bob")
    ]
    queue = RunQueueState.load_queue_state(fleet.now, spent)
    with django_assert_max_num_queries(
        4 * len(runs)
    ):  # its agent, who ordered it, who writes in it, whose key that is
        said = [queue.explain_waiting_run(run) for run in runs]
    assert not any("used up" in why for why in said)


@pytest.mark.parametrize("measure", ["calls", "tokens", "money"])
def test_a_budget_of_each_session_is_used_up_where_it_is_in_one_of_today(measure: str) -> None:
    one, two = session(1), session(2)
    price = dict.fromkeys(("input", "output", "cache_read", "cache_write"), 1_000_000.0)
    prices.replace_prices_pricing_unpriced_requests({"own": price}, actor=ANNA, now=NOW)
    wanted = replace(budget(measure, span="session"), amount=3.0)
    events.record_events([event(one), spent(one, "own", input=2), event(two), event(two)], NOW)
    assert not budgets.is_budget_spent_or_uncountable(wanted, NOW)
    events.record_events([event(two), spent(two, "own", input=3)], NOW)
    assert budgets.is_budget_spent_or_uncountable(wanted, NOW)
    assert not budgets.is_budget_spent_or_uncountable(wanted, NOW + timedelta(days=1))


def test_sessions_that_tell_no_tokens_are_said() -> None:
    telling, silent = session(1), session(2)
    events.record_events([event(telling), spent(telling, output=1), event(silent)], NOW)
    assert budgets.count_sessions_without_tokens(UsageDay.objects.all()) == 1


def test_a_session_is_whose_key_began_it_unless_a_person_ordered_it() -> None:
    hooked, ordered = session(1), session(2)
    ApiKey.objects.create(
        name="laptop", prefix="sbx", key_hash="h", scopes=["agent"], created_at=NOW, created_by="user:anna"
    )
    for one in (hooked, ordered):
        SessionWriter.objects.create(session=one, writer="laptop")
    SessionOwner.objects.create(session=ordered, person="bob")
    events.record_events([event(hooked), event(ordered), event(ordered)], NOW)
    assert [
        budgets.load_usage_of_budget(budget(reach="person", name=name), NOW).amount
        for name in ("anna", "bob")
    ] == [1, 2]
    assert [budgets.find_session_owner_username(one.pk) for one in (hooked, ordered)] == ["anna", "bob"]


@pytest.mark.parametrize(
    ("zone", "at", "day", "hours"),
    [
        ("UTC", "2026-11-22T23:59:59+00:00", "2026-11-22", 24),
        ("Europe/Berlin", "2026-11-22T23:30:00+00:00", "2026-11-23", 24),
        ("Asia/Kolkata", "2026-11-22T18:29:59+00:00", "2026-11-22", 24),
        ("Asia/Kolkata", "2026-11-22T18:30:00+00:00", "2026-11-23", 24),
        ("Europe/Berlin", "2026-03-29T00:30:00+00:00", "2026-03-29", 23),  # clocks go forward
        ("Europe/Berlin", "2026-10-25T00:30:00+00:00", "2026-10-25", 25),  # … and back
        ("America/New_York", "2026-11-01T05:30:00+00:00", "2026-11-01", 25),
    ],
)
def test_days_are_those_of_the_installation_s_time_zone(zone: str, at: str, day: str, hours: int) -> None:
    moment, one = datetime.fromisoformat(at), session()
    with override_settings(LOCAL_ZONE=ZoneInfo(zone)):
        events.record_events([event(one, at=moment)], moment)
        assert UsageDay.objects.get().day == day == budgets.installation_local_iso_date(moment)
        end = budgets.end_of_today(moment)
        begun = datetime.combine(
            moment.astimezone(ZoneInfo(zone)).date(), datetime.min.time(), ZoneInfo(zone)
        )
        assert end - begun.astimezone(UTC) == timedelta(hours=hours)
        assert budgets.load_usage_of_budget(budget(), end - timedelta(microseconds=1)).amount == 1
        assert budgets.load_usage_of_budget(budget(), end).amount == 0


def test_what_is_deleted_stays_used() -> None:
    one = session()
    now = timezone.now()
    events.record_events([event(one, at=now)], now)
    Session.objects.filter(pk=one.pk).delete()
    assert budgets.load_usage_of_budget(budget(), now).amount == 1


def test_odd_counts_of_tokens_neither_lower_a_sum_nor_overflow_it() -> None:
    one = session()
    told = [
        spent(one, input=-(10**15), output=50),
        spent(one, input=2**62, output=0),
        spent(one, input=2**62),
    ]
    events.record_events(told, NOW)
    assert budgets.load_usage_of_budget(budget("tokens"), NOW).amount == 2 * MOST_TOKENS + 50
    assert usage.load_usage_by_session([one.pk])[one.pk].total_tokens == 2 * MOST_TOKENS + 50


def test_tokens_count_where_only_the_input_is_told() -> None:
    one = session()
    events.record_events([event(one, "model_request", model="claude-opus-4-5", input_tokens=70)], NOW)
    assert budgets.load_usage_of_budget(budget("tokens"), NOW).amount == 70
    assert usage.load_usage_by_session([one.pk])[one.pk].input == 70


def test_whose_a_session_is_counts_from_the_moment_it_is_known() -> None:
    one = session(agent_name=None)
    events.record_events([event(one)], NOW)
    Session.objects.filter(pk=one.pk).update(agent_name="codex.two")
    SessionOwner.objects.create(session_id=one.pk, person="anna")
    events.record_events([event(one)], NOW)
    assert budgets.load_usage_of_budget(budget(reach="agent", name="codex.two"), NOW).amount == 2
    assert budgets.load_usage_of_budget(budget(reach="person", name="anna"), NOW).amount == 2
    Session.objects.filter(pk=one.pk).update(agent_name=None)
    events.record_events([event(one)], NOW)
    assert budgets.load_usage_of_budget(budget(reach="agent", name="codex.two"), NOW).amount == 3


def test_what_an_agent_uses_that_a_runner_drives_counts_for_its_program() -> None:
    driven = session(1, agent_name=None, executor_profile="signalbox")
    row = DrivenSession.objects.create(session=driven, runner_id="lnch_1")
    events.record_events([event(driven)], NOW)  # which agent it is, is told later
    assert budgets.load_usage_of_budget(budget(reach="agent", name="claude-code"), NOW).amount == 0
    row.agent = "claude"
    row.save()
    events.record_events([event(driven), spent(driven, output=7)], NOW)
    assert budgets.load_usage_of_budget(budget(reach="agent", name="claude-code"), NOW).amount == 2
    assert budgets.load_usage_of_budget(budget("tokens", reach="agent", name="claude-code"), NOW).amount == 7
    assert budgets.load_usage_of_budget(budget(reach="agent", name="signalbox"), NOW).amount == 0


def test_sums_that_name_a_runners_profile_are_put_right() -> None:
    driven, other = session(1, agent_name=None, executor_profile="signalbox"), session(2)
    events.record_events([event(driven), event(other)], NOW)
    DrivenSession.objects.create(session=driven, runner_id="lnch_1", agent="claude")
    recording.update_usage_day_agent_programs(NOW)
    assert budgets.load_usage_of_budget(budget(reach="agent", name="claude-code"), NOW).amount == 1
    assert budgets.load_usage_of_budget(budget(reach="agent", name="codex"), NOW).amount == 1


def test_calls_of_a_session_that_its_runner_takes_over_count_once() -> None:
    by_hooks = session(2, executor_session_id="abc", executor_profile="claude-code")
    SessionWriter.objects.create(session=by_hooks, writer=LOCAL_PROGRAM.name, is_runner=False)
    events.record_events([event(by_hooks, tool_name="Bash")], NOW)
    driven = DrivenSession.objects.create(
        session=session(1, executor_profile="signalbox"), runner_id="r", agent="claude"
    )
    assert try_remove_duplicate_hook_sessions(driven, "abc", NOW)
    assert not Session.objects.filter(pk=by_hooks.pk).exists()
    events.record_events([event(driven.session, tool_name="Bash")], NOW)  # by its runner
    calls = UsageDay.objects.values_list("session_id", "calls")
    assert list(calls.filter(model="")) == [(driven.session_id, 1)]


def test_calls_of_a_session_that_is_left_alone_still_count() -> None:
    by_hooks = session(2, executor_session_id="abc", executor_profile="claude-code")
    SessionWriter.objects.create(session=by_hooks, writer=LOCAL_PROGRAM.name, is_runner=False)
    events.record_events([event(by_hooks, tool_name="Bash")], NOW)
    events.record_events([event(by_hooks, "message", role="system")], NOW)  # which no runner reports
    driven = DrivenSession.objects.create(
        session=session(1, executor_profile="signalbox"), runner_id="r", agent="claude"
    )
    assert try_remove_duplicate_hook_sessions(driven, "abc", NOW)
    assert UsageDay.objects.get(session_id=by_hooks.pk, model="").calls == 1
