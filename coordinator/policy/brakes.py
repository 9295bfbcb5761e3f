"""Which brake holds a call or a run: people put brakes on everything, an agent or a host, and release them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.models import Brake
from coordinator.models.brakes import BrakeReach, reaches


@dataclass(frozen=True, slots=True)
class Braked:
    """A brake in force, as whoever is held by it is told."""

    id: int
    reach: str
    name: str
    reason: str
    set_by: str

    def holds(self, agents: Iterable[str | None], host: str | None) -> bool:
        """Say whether it holds a call of an agent, known by any of the names `agents`, on `host`."""
        return reaches(self.reach, self.name, agents, host)

    def may_hold(self, agents: Iterable[str | None]) -> bool:
        """Say whether it may hold a call of which the host is not known."""
        return self.reach == BrakeReach.HOST or self.holds(agents, None)

    @property
    def words(self) -> str:
        """What an agent is told."""
        held = {BrakeReach.AGENT: f"the agent {self.name}", BrakeReach.HOST: f"the host {self.name}"}
        what = held.get(BrakeReach(self.reach), "everything") if self.reach in BrakeReach else "everything"
        why = f": {self.reason}" if self.reason else ""
        by = self.set_by.removeprefix("user:")
        return (
            f"{by} put the brake on {what}{why}. No call runs until a person releases it in Signalbox. "
            "Stop here and wait; then make the call again."
        )


def in_force() -> tuple[Braked, ...]:
    """Return every brake in force, oldest first."""
    rows = Brake.objects.filter(released_at__isnull=True).order_by("id")
    return tuple(Braked(*row) for row in rows.values_list("id", "reach", "name", "reason", "set_by"))


def holding(agents: Iterable[str | None], host: str | None) -> Braked | None:
    """Return the oldest brake that holds a call or run of an agent, known by any of `agents`, on `host`; or None."""
    names = list(agents)
    return next((one for one in in_force() if one.holds(names, host)), None)
