"""Which runner may take a run: what a run demands, how demands join, and whether a runner meets them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from coordinator.models.runners import AUTONOMOUS, PROCEDURAL

PROPERTIES = ("hostname", "project_dir", "executor_profile")
NAMED = (*PROPERTIES, "executor_type")


class RunnerProperties(Protocol):
    """What a runner offers; coordinator.models.Runner has it."""

    hostname: Any
    project_dir: Any
    executor_profile: Any
    tags: Any
    require_matching_tags: Any

    @property
    def executor_type(self) -> str:
        """`autonomous` or `procedural`."""


def merge_run_demands_by_precedence(*parts: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Join demands, the most binding first: the first to name a property decides, tags add up.

    Returns them as they are stored and sent (`tags` is there whenever anything is demanded), or None where
    nothing is demanded.
    """
    matching_parts = [part for part in parts if part]
    merged: dict[str, Any] = {}
    for name in NAMED:
        value = next((part[name] for part in matching_parts if part.get(name) is not None), None)
        if value is not None:
            merged[name] = value
    tags = list(dict.fromkeys(tag for part in matching_parts for tag in demanded_tags(part)))
    if not merged and not tags:
        return None
    return {**merged, "tags": tags}


def demanded_tags(demands: Mapping[str, Any]) -> Iterable[str]:
    """Return the tags demanded; none where an old row holds something else."""
    tags = demands.get("tags")
    return tags if isinstance(tags, list) else ()


def demands_procedural_runner(demands: Any) -> bool:
    """Say whether only a runner of scripts may take a run with these demands, so none that drives agents."""
    return isinstance(demands, Mapping) and demands.get("executor_type") == PROCEDURAL


def runner_meets_demands(runner: RunnerProperties, demands: Any) -> bool:
    """Say whether `runner` may take a run with these demands (None: no demands).

    A runner that requires matching tags takes only runs that name at least one of its tags, and one of procedural
    agents only runs that demand it. Demands that cannot be read are met by nobody: better to wait than to run in the
    wrong place.
    """
    if demands is None:
        return not runner.require_matching_tags and runner.executor_type == AUTONOMOUS
    if not isinstance(demands, Mapping):
        return False
    if (demands.get("executor_type") or AUTONOMOUS) != runner.executor_type:
        return False
    if any(demands.get(name) not in (None, getattr(runner, name)) for name in PROPERTIES):
        return False
    wanted_tags, offered = set(demanded_tags(demands)), set(runner.tags or ())
    if runner.require_matching_tags and not wanted_tags & offered:
        return False
    return wanted_tags <= offered
