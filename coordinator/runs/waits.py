"""Why a run waits: said in a sentence, from the same rules by which runners take runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from django.db.models import Exists, OuterRef

from coordinator.models import Brake, LivingExecutor, Run, Runner
from coordinator.models.brakes import is_covered_by_brake
from coordinator.runs import offers
from coordinator.runs.demands import NAMED, demanded_tags, runner_meets_demands
from coordinator.runs.liveness import is_runner_alive
from coordinator.runs.statuses import ACTIVE, OPEN

WORDS = {
    "hostname": "host",
    "project_dir": "directory",
    "executor_profile": "profile",
    "executor_type": "executor type",
}


class RunBlockingBudget(Protocol):
    """A budget of a period that is used up and lets no run begin (policy.limits.budgets)."""

    @property
    def title(self) -> str: ...

    @property
    def span(self) -> str: ...

    def covers_session(self, agents: Iterable[str | None], session_id: str) -> bool:
        """Say whether it counts what one of these agents does in a session."""


@dataclass(frozen=True, slots=True)
class RunQueueState:
    """What decides how long runs wait: the runners that are there, and the sessions that are busy."""

    runners: list[Runner]
    busy: frozenset[str]
    living: Mapping[str, str] = field(default_factory=dict)  # whose process waits in a session
    offers: Mapping[str, Any] = field(default_factory=dict)  # of runners that drive agents, by their ids
    brakes: Sequence[Brake] = ()  # that are on
    spent: Sequence[RunBlockingBudget] = ()  # that let no run begin
    behind: frozenset[str] = frozenset()  # pending runs whose session has an earlier pending one

    @classmethod
    def load_queue_state(cls, now: datetime, spent: Sequence[RunBlockingBudget] = ()) -> RunQueueState:
        """Return the queue's surroundings at `now`: six queries."""
        runners = [
            runner
            for runner in Runner.objects.filter(deregistered_at__isnull=True)
            if is_runner_alive(runner, now)
        ]
        busy = Run.objects.filter(status__in=ACTIVE).values_list("session_id", flat=True)
        living = dict(LivingExecutor.objects.values_list("session_id", "runner_id"))
        offered = offers.load_offers_by_runner_id(runner.pk for runner in runners)
        brakes = list(Brake.objects.filter(released_at__isnull=True))
        pending = Run.objects.filter(status=Run.Status.PENDING)
        earlier = pending.filter(
            session=OuterRef("session"), created_at__text__lt=OuterRef("created_at__text")
        )
        behind = pending.filter(Exists(earlier)).values_list("run_id", flat=True)
        return cls(runners, frozenset(busy), living, offered, brakes, spent, frozenset(behind))

    def explain_waiting_run(self, run: Run) -> str:
        """Return why a run is held or, if it is pending, not taken yet; else an empty text."""
        hold = getattr(run, "hold", None)
        if hold is not None and run.status in OPEN:
            return f"On hold until somebody releases it: {hold.why[:1].lower()}{hold.why[1:]}"
        if run.status != Run.Status.PENDING:
            return ""
        if run.session_id in self.busy:
            return "Its session is busy with an earlier run."
        if run.pk in self.behind:
            return "An earlier run of its session waits, and comes first."
        if not self.runners:
            return "No runner is online."
        agent_names = self.runners_with_agent_names(run) if self.brakes or self.spent else []
        return (
            self.brake_reason_or_empty(agent_names)
            or self.spent_budget_reason_or_empty(run, agent_names)
            or self.explain_missing_runner_for_run(run)
        )

    def runners_with_agent_names(self, run: Run) -> list[tuple[Runner, set[str | None]]]:
        """Return each runner with the names by which a brake or a budget may mean the run's agent there: one query."""
        chosen = offers.load_agents_chosen_for_run(run)
        return [
            (runner, offers.agent_names_for_run(run, chosen, runner, self.offers.get(runner.pk)))
            for runner in self.runners
        ]

    def spent_budget_reason_or_empty(
        self, run: Run, candidates: Sequence[tuple[Runner, set[str | None]]]
    ) -> str:
        """Return that a budget is used up, where it concerns the run on every runner that is online."""
        for budget in self.spent:
            if all(budget.covers_session(agents, run.session_id) for _, agents in candidates):
                reason = f"The budget of {budget.title} is used up."
                return f"{reason} The run starts once a person raises it or the {budget.span} ends."
        return ""

    def brake_reason_or_empty(self, candidates: Sequence[tuple[Runner, set[str | None]]]) -> str:
        """Return that a brake is on, where it holds every runner that is online."""
        for brake in self.brakes:
            if all(
                is_covered_by_brake(brake.reach, brake.name, agents, runner.hostname)
                for runner, agents in candidates
            ):
                return "The brake is on. The run starts once a person releases it."
        return ""

    def describe_missing_offer_of_runner(self, runner: Runner, run: Run) -> str:
        return offers.describe_missing_offer(
            self.offers.get(runner.pk), offers.ordered_agent_name(run), run.project_dir
        )

    def explain_missing_runner_for_run(self, run: Run) -> str:
        """Return which runner has yet to come for the run, or what no runner has."""
        if run.session_id in self.living:
            return (
                f"Its session's process is waiting on runner {self.living[run.session_id]}, which takes "
                "this run."
            )
        meeting = [runner for runner in self.runners if runner_meets_demands(runner, run.demands)]
        lacks = {runner.pk: self.describe_missing_offer_of_runner(runner, run) for runner in meeting}
        able = [runner for runner in meeting if not lacks[runner.pk]]
        if meeting and not able:
            return f"No online runner has {next(iter(lacks.values()))}."
        if able:
            names = ", ".join(runner.hostname for runner in able[:3])
            return f"One of these runners takes it with its next poll: {names}."
        return f"No online runner has {describe_missing_demands(run.demands, self.runners)}."


def describe_missing_demands(demands: Any, runners: Iterable[Runner]) -> str:
    """Return what is demanded that no runner offers, or everything, where only the combination is missing."""
    if not isinstance(demands, Mapping):
        return "the setting to take runs without tags, and this run has none"
    runners = list(runners)
    wanted_values = [(name, demands[name]) for name in NAMED if demands.get(name) is not None]
    lacks = [
        f"{WORDS[name]} {value}"
        for name, value in wanted_values
        if all(getattr(r, name) != value for r in runners)
    ]
    lacks += [
        f"tag {tag}" for tag in demanded_tags(demands) if all(tag not in (r.tags or ()) for r in runners)
    ]
    if lacks:
        return ", ".join(lacks)
    wanted_labels = [f"{WORDS[name]} {value}" for name, value in wanted_values] + [
        f"tag {tag}" for tag in demanded_tags(demands)
    ]
    return (
        f"all of this at once: {', '.join(wanted_labels)}"
        if wanted_labels
        else "the setting to take runs without tags, and this run has none"
    )
