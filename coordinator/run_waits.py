"""Why a run waits: said in a sentence, from the same rules by which runners take runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coordinator.actions.runners import is_alive
from coordinator.actions.runs import ACTIVE, OPEN
from coordinator.demands import PROPERTIES, meets, tags_of
from coordinator.models import Run, Runner

WORDS = {"hostname": "host", "project_dir": "directory", "executor_profile": "profile"}


@dataclass(frozen=True, slots=True)
class Queue:
    """What decides how long runs wait: the runners that are there, and the sessions that are busy."""

    runners: list[Runner]
    busy: frozenset[str]

    @classmethod
    def at(cls, now: datetime) -> Queue:
        """Return the queue's surroundings at `now`: two queries."""
        runners = [
            runner for runner in Runner.objects.filter(deregistered_at__isnull=True) if is_alive(runner, now)
        ]
        busy = Run.objects.filter(status__in=ACTIVE).values_list("session_id", flat=True)
        return cls(runners, frozenset(busy))

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
        able = [runner for runner in self.runners if meets(runner, run.demands)]
        if able:
            names = ", ".join(runner.hostname for runner in able[:3])
            return f"Will be taken by the next poll of a runner that can: {names}."
        return f"No online runner has {missing(run.demands, self.runners)}."


def missing(demands: Any, runners: Iterable[Runner]) -> str:
    """Return what is demanded that no runner offers, or everything, where only the combination is missing."""
    if not isinstance(demands, Mapping):
        return "no need of matching tags, and this run names none"
    runners = list(runners)
    wanted = [(name, demands[name]) for name in PROPERTIES if demands.get(name) is not None]
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
        else "no need of matching tags, and this run names none"
    )
