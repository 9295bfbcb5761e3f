"""A turn: one run of a session, from its prompt to its end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from coordinator.runner.errors import ServerRefused
from coordinator.runner.orders import RunnerOrder


@dataclass(slots=True)
class RunnerTurn:
    """One run: what became of it so far. `ended` is set when the agent is done, `over` when that is reported."""

    order: RunnerOrder
    last_received_at: float = field(default_factory=time.monotonic)
    cost: Any = None
    denials: list[str] = field(default_factory=list)
    is_prompted: bool = False
    is_cancelled: bool = False
    is_silent: bool = False
    refused: ServerRefused | None = None
    started: asyncio.Task[None] | None = None
    was_killed: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
