"""Ask a person before a tool runs, and report a session: Signalbox for programs that are built with an SDK.

Needs httpx and nothing else. The adapters of SDKs are the modules `adk`, `claude`, `langgraph`, `openai`, `pydantic`.
Every failure means no: a server that is away, a time-out, an answer that cannot be read, a denial, an expiry.
"""

from __future__ import annotations

from signalbox_sdk.asking import ApproverVerdict, NotApproved, ToolQuestion, ask, ask_async
from signalbox_sdk.connection import Connection
from signalbox_sdk.reporting import ReportedSession, session

__all__ = [
    "ApproverVerdict",
    "Connection",
    "NotApproved",
    "ReportedSession",
    "ToolQuestion",
    "ask",
    "ask_async",
    "session",
]
