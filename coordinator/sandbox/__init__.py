"""Processes foreign data in a child process, with limits of time and memory.

A decoder or a lexer may hang, eat all memory or be broken into. Here it does so in a child process that has no
environment, no files of ours and no network, and whose end costs nothing but one answer. Bytes go in and come out
through one socket. `process.Sandbox` is this side, `child.main` the other; `frames` is what they speak.
"""

from __future__ import annotations

from coordinator.sandbox.limits import ProcessLimits
from coordinator.sandbox.process import (
    JobFailed,
    JobResult,
    LimitsExceeded,
    Overloaded,
    Sandbox,
    SandboxError,
)

__all__ = [
    "JobFailed",
    "JobResult",
    "LimitsExceeded",
    "Overloaded",
    "ProcessLimits",
    "Sandbox",
    "SandboxError",
]
