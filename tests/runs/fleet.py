"""Words for tests of the coordinator: order runs, play a runner, move the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.upkeep import housekeeping
from coordinator.identity.actors import key_actor_by_name
from coordinator.models import Event, Run, Runner, Session
from coordinator.runs.statuses import RESUME, START

# Of today: the audit log drops, by the database's own clock, what is older than 90 days.
NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
OPERATOR = key_actor_by_name("operator")


class Fleet:
    """A coordinator and its runners at one moment; `pass_time` moves on."""

    def __init__(self) -> None:
        self.now = NOON

    def pass_time(self, seconds: float) -> None:
        """Let time go by, and housekeeping run."""
        self.now += timedelta(seconds=seconds)
        housekeeping.run_housekeeping(self.now)

    def tick(self) -> datetime:
        """Return the next moment, so that no two things happen at one."""
        self.now += timedelta(milliseconds=10)
        return self.now

    def runner(self, hostname: str = "vm", **offers: Any) -> Runner:
        """Register a runner."""
        registration = runners.RunnerRegistration(hostname, "/home/dev/project", "test-executor", **offers)
        return runners.register_runner_and_recover_runs(registration, self.tick())

    def start(self, prompt: str = "hello", **order: Any) -> Run:
        """Order a run that starts a session."""
        return runs.queue_start_or_resume_run(
            kind=START, prompt=prompt, actor=OPERATOR, now=self.tick(), **order
        )

    def resume(self, session_id: str, prompt: str = "go on", **order: Any) -> Run:
        """Order a run that resumes a session."""
        order = {"session_id": session_id, **order}
        return runs.queue_start_or_resume_run(
            kind=RESUME, prompt=prompt, actor=OPERATOR, now=self.tick(), **order
        )

    def poll(self, runner: Runner) -> dict[str, Any] | None:
        """Ask once for work."""
        return runners.claim_next_runner_work(runner.runner_id, self.tick())

    def running(self, runner: Runner, run: Run) -> Run:
        """Have the runner take the run and start it."""
        answer = self.poll(runner)
        assert answer is not None
        assert answer["run"]["run_id"] == run.run_id
        runs.record_start_or_order_stop(run.run_id, runner, self.tick())
        return self.fresh(run)

    def complete(self, runner: Runner, run: Run) -> None:
        """Report the run as completed."""
        runs.record_run_completed(run.run_id, runner, self.tick())

    def fail(self, runner: Runner, run: Run, error: str = "Process exited with code 1") -> None:
        """Report the run as failed."""
        runs.record_run_failed(run.run_id, runner, error, self.tick())

    def stopped(self, runner: Runner, run: Run) -> None:
        """Report the run as stopped."""
        runs.record_run_stopped(run.run_id, runner, self.tick())

    def stop(self, run: Run) -> runs.StopResult:
        """Ask for the run to be stopped."""
        return runs.request_run_stop(run.run_id, actor=OPERATOR, now=self.tick())

    def stop_session(self, session_id: str) -> runs.StopResult:
        """Ask for the session to be stopped."""
        return runs.request_session_stop(session_id, actor=OPERATOR, now=self.tick())

    @staticmethod
    def fresh(run: Run) -> Run:
        """Return the run as it stands."""
        return Run.objects.get(pk=run.pk)

    @staticmethod
    def status(session_id: str) -> str:
        """Return how a session stands."""
        return Session.objects.get(pk=session_id).status

    @staticmethod
    def said(session_id: str) -> list[str]:
        """Return the types of a session's events."""
        return list(
            Event.objects.filter(session_id=session_id).order_by("id").values_list("event_type", flat=True)
        )
