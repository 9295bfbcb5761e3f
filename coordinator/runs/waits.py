"""Why a run waits: said in a sentence, from the same rules by which runners take runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from coordinator.models import Brake, LivingExecutor, Run, Runner
from coordinator.models.brakes import reaches
from coordinator.runs import offers
from coordinator.runs.demands import NAMED, meets, tags_of
from coordinator.runs.liveness import is_alive
from coordinator.runs.statuses import ACTIVE, OPEN

WORDS = {
    "hostname": "host",
    "project_dir": "directory",
    "executor_profile": "profile",
    "executor_type": "executor type",
}


@dataclass(frozen=True, slots=True)
class Queue:
    """What decides how long runs wait: the runners that are there, and the sessions that are busy."""

    runners: list[Runner]
    busy: frozenset[str]
    living: Mapping[str, str] = field(default_factory=dict)  # whose process waits in a session
    offers: Mapping[str, Any] = field(default_factory=dict)  # of runners that drive agents, by their ids
    brakes: Sequence[Brake] = ()  # that are on

    @classmethod
    def at(cls, now: datetime) -> Queue:
        """Return the queue's surroundings at `now`: five queries."""
        runners = [
            runner for runner in Runner.objects.filter(deregistered_at__isnull=True) if is_alive(runner, now)
        ]
        busy = Run.objects.filter(status__in=ACTIVE).values_list("session_id", flat=True)
        living = dict(LivingExecutor.objects.values_list("session_id", "runner_id"))
        offered = offers.of_runners(runner.pk for runner in runners)
        brakes = list(Brake.objects.filter(released_at__isnull=True))
        return cls(runners, frozenset(busy), living, offered, brakes)

    def why(self, run: Run) -> str:
        """Return why a run is held or, if it is pending, not taken yet; else an empty text."""
        hold = getattr(run, "hold", None)
        if hold is not None and run.status in OPEN:
            return f"Held until somebody releases it: {hold.why[:1].lower()}{hold.why[1:]}"
        if run.status != Run.Status.PENDING:
            return ""
        if run.session_id in self.busy:
            return "Its session is busy with an earlier run."
        if not self.runners:
            return "No runner is online."
        return self._braked(run) or self._for_whom(run)

    def _braked(self, run: Run) -> str:
        """Return that a brake is on, where it holds every runner that is online."""
        for brake in self.brakes:
            if all(
                reaches(brake.reach, brake.name, offers.agents_meant(run, runner), runner.hostname)
                for runner in self.runners
            ):
                return "The brake is on. It begins once a person releases that."
        return ""

    def _lacks(self, runner: Runner, run: Run) -> str:
        return offers.lacks(self.offers.get(runner.pk), offers.agent_of(run), run.project_dir)

    def _for_whom(self, run: Run) -> str:
        """Return which runner has yet to come for the run, or what no runner has."""
        if run.session_id in self.living:
            return (
                f"The process of its session waits on runner {self.living[run.session_id]}, which takes it."
            )
        meeting = [runner for runner in self.runners if meets(runner, run.demands)]
        lacks = {runner.pk: self._lacks(runner, run) for runner in meeting}
        able = [runner for runner in meeting if not lacks[runner.pk]]
        if meeting and not able:
            return f"No online runner has {next(iter(lacks.values()))}."
        if able:
            names = ", ".join(runner.hostname for runner in able[:3])
            return f"The next poll of one of these runners takes it: {names}."
        return f"No online runner has {missing(run.demands, self.runners)}."


def missing(demands: Any, runners: Iterable[Runner]) -> str:
    """Return what is demanded that no runner offers, or everything, where only the combination is missing."""
    if not isinstance(demands, Mapping):
        return "a setting to take runs without tags; this run names no tag"
    runners = list(runners)
    wanted = [(name, demands[name]) for name in NAMED if demands.get(name) is not None]
    lacks = [
        f"{WORDS[name]} {value}" for name, value in wanted if all(getattr(r, name) != value for r in runners)
    ]
    lacks += [f"tag {tag}" for tag in tags_of(demands) if all(tag not in (r.tags or ()) for r in runners)]
    if lacks:
        return ", ".join(lacks)
    asked = [f"{WORDS[name]} {value}" for name, value in wanted] + [f"tag {tag}" for tag in tags_of(demands)]
    return (
        f"all of this at once: {', '.join(asked)}"
        if asked
        else "a setting to take runs without tags; this run names no tag"
    )
