"""Trials of an MCP server's tool by a person, and the registered function that runs them in this process.

Pages cannot await the gateway, which runs on the worker's event loop. So the gateway registers what runs a trial when
it starts, and a page waits for the outcome in its own thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coordinator.errors import ServiceBusy

ANSWER_WITHIN = 30  # seconds for which a page waits


@dataclass(frozen=True, slots=True)
class ToolTrial:
    """A call that a person makes. `definition` is the digest of the definition that the person saw."""

    server_id: str
    tool: str
    arguments: dict[str, Any]
    definition: str
    user_id: int
    username: str


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What came of a trial. `outcome` is ok, error (the tool's own) or failed, with the `problem` in words.

    `response` is what an agent would get. `is_sent`: the server may have run the call.
    """

    outcome: str
    response: bytes | None
    problem: str = ""
    is_sent: bool = True
    upstream_ms: float = 0.0


_runners: list[Callable[[ToolTrial], TrialOutcome]] = []  # of this process: at most one
_one_at_a_time = threading.Lock()  # a page's thread waits for each


def register_trial_runner(run: Callable[[ToolTrial], TrialOutcome]) -> None:
    """Have trials of this process run by `run`, which is called in threads."""
    _runners[:] = [run]


def run_tool_trial(trial: ToolTrial) -> TrialOutcome:
    """Run a trial and return what came of it.

    Raises ServiceBusy where another one is under way here, and what refuses the call: Forbidden, NotFound, Conflict.
    """
    if not _runners:
        raise ServiceBusy("Tools can be tried only while Signalbox is served.", retry_after=5)
    if not _one_at_a_time.acquire(blocking=False):
        raise ServiceBusy("Another tool is being tried. Try again in a moment.", retry_after=5)
    try:
        return _runners[0](trial)
    finally:
        _one_at_a_time.release()
