"""The id of the current request, so that its logs and audit rows can be found together."""

from __future__ import annotations

import random
import re
from contextvars import ContextVar

_current: ContextVar[str | None] = ContextVar("signalbox_trace_id", default=None)
_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{8,64}")


def current_trace_id() -> str | None:
    """Return the trace id of the current request, or None outside one."""
    return _current.get()


def begin_trace(offered: str | None = None) -> str:
    """Start a trace for one request: the caller's own id where it is well formed, else a new one."""
    # It is no secret. Asking the system for each request's would hand the interpreter to another thread.
    new_id = f"{random.getrandbits(128):032x}"
    trace_id = offered if offered and _ACCEPTED.fullmatch(offered) else new_id
    _current.set(trace_id)
    return trace_id


def end_trace() -> None:
    """Forget the trace, so that the next request on this thread starts without one."""
    _current.set(None)
