"""What a runner that drives agents offers, and whether a run may go to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.models import Runner, RunnerOffers


def save_runner_offers(runner: Runner, offers: Mapping[str, Any] | None) -> None:
    """Keep what the runner offers from now on; none for a runner that says nothing of it."""
    if offers is None:
        RunnerOffers.objects.filter(pk=runner.pk).delete()
    else:
        RunnerOffers.objects.update_or_create(runner_id=runner.pk, defaults={"offers": dict(offers)})
