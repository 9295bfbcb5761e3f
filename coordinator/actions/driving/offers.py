"""The capabilities of a runner that drives agents, and the check whether it can take a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.models import Runner, RunnerOffers


def save_runner_offers(runner: Runner, offers: Mapping[str, Any] | None) -> None:
    """Save the runner's offers; none for a runner that reports none."""
    if offers is None:
        RunnerOffers.objects.filter(pk=runner.pk).delete()
    else:
        RunnerOffers.objects.update_or_create(runner_id=runner.pk, defaults={"offers": dict(offers)})
