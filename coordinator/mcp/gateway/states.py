"""The state that a stateless client carries for us between two tries of a call: sealed, bound to the call, expiring."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

from coordinator.secrets.sealing import seal_for_purpose, unseal_for_purpose

SEALED_AS = "mcp-gateway-state"
PREFIX = "sbx1."


@dataclass(frozen=True, slots=True)
class WaitState:
    """A call that waits for a person: its request, its binding, and how often the client was notified."""

    call_id: str
    request_id: str
    key: str
    until: float
    round: int


@dataclass(frozen=True, slots=True)
class ContinuationState:
    """An approved call whose server asked for more: `inner` is the server's own state, None where it gave none."""

    call_id: str
    key: str
    until: float
    round: int
    inner: str | None


def seal_call_state(state: WaitState | ContinuationState) -> str:
    """Return the state as `requestState` carries it."""
    kind = "wait" if isinstance(state, WaitState) else "go on"
    return PREFIX + seal_for_purpose(SEALED_AS, json.dumps({"kind": kind, **asdict(state)}).encode()).decode()


def unseal_call_state_or_none(text: object) -> WaitState | ContinuationState | None:
    """Return a state of ours that is not over; None for anything else."""
    if not isinstance(text, str) or not text.startswith(PREFIX):
        return None
    try:
        value = json.loads(unseal_for_purpose(SEALED_AS, text.removeprefix(PREFIX).encode()))
    except ValueError:
        return None
    kind = value.pop("kind")
    state = WaitState(**value) if kind == "wait" else ContinuationState(**value)
    return state if state.until > time.time() else None
