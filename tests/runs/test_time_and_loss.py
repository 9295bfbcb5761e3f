"""What housekeeping and the runners' own comings and goings repair."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.sessions import sessions
from coordinator.errors import Conflict, NotFound, Unauthorized
from coordinator.identity.actors import key_actor_by_name
from coordinator.models import Brake, Budget, Runner, UsageDay
from coordinator.policy.limits import budgets
from coordinator.runs.liveness import runner_stale_after
from tests.runs.fleet import Fleet
from tests.runs.test_events import Said


def test_demands_that_nobody_meets_fail_after_the_timeout(fleet: Fleet) -> None:
    run = fleet.start(additional_demands={"tags": ["nobody"]})
    fleet.pass_time(299)
    assert fleet.fresh(run).status == "pending"
    fleet.pass_time(2)
    assert (fleet.fresh(run).status, fleet.fresh(run).error) == ("failed", runs.NOBODY_CAME)
    assert fleet.status(run.session_id) == "error"


def test_a_run_without_demands_waits_for_ever(fleet: Fleet) -> None:
    run = fleet.start()
    fleet.pass_time(1_000_000)
    assert fleet.fresh(run).status == "pending"


def test_waiting_for_ones_own_session_is_not_waiting_for_a_runner(fleet: Fleet) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    queued = fleet.resume(first.session_id, additional_demands={"hostname": "vm"})
    for _ in range(4):
        fleet.pass_time(100)
        runners.record_runner_heartbeat(runner.runner_id, fleet.now)
    assert fleet.fresh(queued).status == "pending"
    fleet.complete(runner, first)
    fleet.pass_time(299)
    assert fleet.fresh(queued).status == "pending"


def pass_time_with_heartbeats(fleet: Fleet, runner: Runner, seconds: int) -> None:
    """Let time go by with a runner that polls every 20 seconds and gets nothing."""
    for _ in range(seconds // 20):
        fleet.pass_time(20)
        runners.record_runner_heartbeat(runner.runner_id, fleet.now)
        assert fleet.poll(runner) is None


def put_brake_on(fleet: Fleet, reach: str, name: str = "") -> Brake:
    return Brake.objects.create(reach=reach, name=name, set_by="user:ann", set_at=fleet.now)


def use_up_budget(fleet: Fleet) -> None:
    Budget.objects.create(
        reach="everything", name="", span="day", measure="calls", amount=1.0, at_limit="hold", changed_at=fleet.now
    )  # fmt: skip
    UsageDay.objects.create(
        day=budgets.installation_local_iso_date(fleet.now), session_id="ses_other", model="", agent="a", calls=1,
        input_tokens=0, output_tokens=0, cache_read_tokens=0, cache_write_tokens=0,
    )  # fmt: skip


def test_a_run_that_a_brake_keeps_from_its_runner_does_not_fail_for_want_of_one(fleet: Fleet) -> None:
    runner, run = fleet.runner(), fleet.start(additional_demands={"hostname": "vm"})
    brake = put_brake_on(fleet, "everything")
    pass_time_with_heartbeats(fleet, runner, 680)
    assert fleet.fresh(run).status == "pending"
    Brake.objects.filter(pk=brake.pk).update(released_at=fleet.now)
    fleet.running(runner, run)


def test_a_run_that_a_used_up_budget_keeps_from_its_runner_does_not_fail_for_want_of_one(
    fleet: Fleet,
) -> None:
    runner, run = fleet.runner(), fleet.start(additional_demands={"hostname": "vm"})
    use_up_budget(fleet)
    pass_time_with_heartbeats(fleet, runner, 400)
    assert fleet.fresh(run).status == "pending"
    Budget.objects.update(amount=2.0)
    fleet.running(runner, run)


@pytest.mark.parametrize(
    ("demands", "brake"),
    [
        ({"tags": ["gpu"]}, ("everything", "")),  # the brake is on, and no runner has the tag
        ({"hostname": "gone"}, ("everything", "")),  # its runner gives no sign of life
        ({"tags": ["gpu"]}, ("host", "gone")),
    ],
)
def test_a_brake_keeps_no_run_waiting_that_no_living_runner_could_take(
    fleet: Fleet, demands: dict[str, Any], brake: tuple[str, str]
) -> None:
    fleet.runner("gone")
    runner, run = fleet.runner(), fleet.start(additional_demands=demands)
    put_brake_on(fleet, *brake)
    pass_time_with_heartbeats(fleet, runner, 320)
    assert (fleet.fresh(run).status, fleet.fresh(run).error) == ("failed", runs.NOBODY_CAME)


def test_a_claimed_run_that_is_never_started_waits_again(fleet: Fleet) -> None:
    vanishing, run = fleet.runner("a"), fleet.start()
    fleet.poll(vanishing)
    fleet.pass_time(61)
    assert (fleet.fresh(run).status, fleet.fresh(run).runner_id) == ("pending", None)
    fleet.running(fleet.runner("b"), run)


def test_a_poll_that_broke_off_gives_its_run_back_at_once(fleet: Fleet) -> None:
    gone, run = fleet.runner("a"), fleet.start()
    answer = fleet.poll(gone)
    runners.requeue_undelivered_poll_answer(gone.runner_id, answer, fleet.tick())
    fleet.running(fleet.runner("b"), run)


def test_a_start_that_is_reported_late_takes_the_run_up_again(fleet: Fleet) -> None:
    slow, run = fleet.runner(), fleet.start()
    fleet.poll(slow)
    fleet.pass_time(61)
    runs.record_start_or_order_stop(run.run_id, slow, fleet.tick())
    assert (fleet.fresh(run).status, fleet.fresh(run).runner_id) == ("running", slow.runner_id)


def test_a_runner_that_vanished_loses_its_runs(fleet: Fleet) -> None:
    gone = fleet.runner("a")
    running = fleet.running(gone, fleet.start())
    stopping = fleet.running(gone, fleet.start())
    fleet.stop(stopping)
    fleet.pass_time(601)
    assert not Runner.objects.exists()
    assert (fleet.fresh(running).status, fleet.fresh(running).error) == (
        "failed",
        "Runner vanished during execution",
    )
    assert fleet.fresh(stopping).status == "stopped"


def test_a_silent_runner_is_stale_and_one_that_speaks_again_is_not(fleet: Fleet) -> None:
    runner = fleet.runner()
    fleet.pass_time(121)
    assert Runner.objects.get().heartbeat_age_or_max(fleet.now) >= runner_stale_after()
    runners.record_runner_heartbeat(runner.runner_id, fleet.now)
    assert Runner.objects.get().heartbeat_age_or_max(fleet.now) < runner_stale_after()


def test_a_runner_that_leaves_has_its_runs_recovered(fleet: Fleet) -> None:
    leaving = fleet.runner("a")
    running, claimed = fleet.running(leaving, fleet.start()), fleet.start()
    fleet.poll(leaving)
    runners.remove_own_runner_or_deregister(
        leaving.runner_id, actor=key_actor_by_name("k"), itself=True, now=fleet.tick()
    )
    assert fleet.fresh(running).status == "failed"
    assert fleet.fresh(claimed).status == "pending"
    with pytest.raises(Unauthorized, match="Runner not registered"):
        fleet.poll(leaving)


def test_a_runner_that_others_deregister_is_told_on_its_poll(fleet: Fleet) -> None:
    runner = fleet.runner()
    runners.remove_own_runner_or_deregister(
        runner.runner_id, actor=key_actor_by_name("k"), itself=False, now=fleet.tick()
    )
    assert fleet.poll(runner) == {"deregistered": True}
    with pytest.raises(NotFound, match="Runner not found"):
        runners.remove_own_runner_or_deregister(
            runner.runner_id, actor=key_actor_by_name("k"), itself=False, now=fleet.tick()
        )


def test_a_live_identity_cannot_be_registered_again(fleet: Fleet) -> None:
    runner = fleet.runner(tags=["x"])
    with pytest.raises(Conflict) as refused:
        fleet.runner(tags=["y"])
    assert refused.value.detail["runner_id"] == runner.runner_id
    assert Runner.objects.get().tags == ["x"]


def test_a_stale_identity_is_taken_up_again_and_its_former_runs_are_recovered(fleet: Fleet) -> None:
    run = fleet.running(fleet.runner(), fleet.start())
    fleet.pass_time(121)
    again = fleet.runner(tags=["new"])
    assert Runner.objects.get().tags == ["new"]
    assert fleet.fresh(run).status == "failed"
    assert fleet.poll(again) is None


def test_a_runner_whose_poll_broke_off_may_come_back_at_once(fleet: Fleet) -> None:
    runner = fleet.runner()
    runners.requeue_undelivered_poll_answer(runner.runner_id, None, fleet.tick())
    assert fleet.runner().runner_id == runner.runner_id


def test_a_lost_report_does_not_leave_a_finished_session_with_a_running_run(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    sessions.advance_session_and_decide_storage(run.session_id, Said("session_stop"), fleet.tick())
    for _ in range(7):
        fleet.pass_time(10)
        runners.record_runner_heartbeat(runner.runner_id, fleet.now)
    assert fleet.fresh(run).status == "completed"
