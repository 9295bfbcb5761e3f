"""While the database cannot be written nobody is held up, a denial holds, and nothing is lost without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from django.conf import settings

from coordinator.actions.sessions import reported_sessions as sessions
from coordinator.dialects.claude_code import DIALECT
from coordinator.dialects.hooks import AgentHook
from coordinator.edge.hooks.recorder import HookRecorder
from coordinator.edge.ingest.write_queue import MakeEvents, WriteResult
from coordinator.errors import ServiceBusy
from coordinator.sessions.events import NewEvent, RecordedEvent
from coordinator.sessions.reports import RecordedHookSession, SessionLocation
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import rules
from tests.claude_code.test_recording import events
from tests.served import Served, Template, postgres_url, running, with_database


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A server of its own: what these tests do to it would show in others."""
    return serve()


@contextlib.contextmanager
def locked(served: Served) -> Iterator[None]:
    """Hold the database against every writer, as a backup or another program may."""
    if url := postgres_url():
        with psycopg.connect(with_database(url, served.database)) as other:
            other.execute("LOCK TABLE sessions, events, audit_logs IN EXCLUSIVE MODE")
            yield
            other.rollback()
        return
    with contextlib.closing(sqlite3.connect(served.folder / "signalbox.sqlite3", timeout=5)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()


@pytest.mark.served
def test_nobody_is_held_up_and_a_denial_holds(served_template: Template, tmp_path: Any) -> None:
    with running(
        served_template, tmp_path / "server", TESTS_HOOK_ANSWER_AFTER=str(settings.HOOK_ANSWER_AFTER)
    ) as served:
        rules(
            served,
            {"tool": "Bash", "pattern": "rm", "verdict": "deny", "reason": "Never."},
            {"tool": "Write", "verdict": "ask"},
            {"tool": "Edit", "verdict": "ask", "deny_at_deadline": True},
        )
        Claude(served).prompt("The key is known, and its use noted.")
        claude = Claude(served)
        with locked(served):
            began = time.monotonic()
            claude.prompt("First of all.")  # nobody has heard of its session yet
            claude.before(claude.new_call("Read", {"file_path": "/x"}))
            assert time.monotonic() - began < 2.5
            denied = claude.before(claude.new_call("Bash", {"command": "rm -rf /"}))
            assert denied["permissionDecision"] == "deny"
            assert claude.asked(claude.new_call("Bash", {"command": "ls"})) == {}  # the terminal asks
            assert claude.before(claude.new_call("Write", {}))["permissionDecision"] == "ask"
            assert claude.before(claude.new_call("Edit", {}))["permissionDecision"] == "deny"
        until = time.monotonic() + 60
        while {"message", "pre_tool"} - {event["type"] for event in events(served, claude)}:
            assert time.monotonic() < until, events(served, claude)
        assert events(served, claude)[0]["type"] == "message"  # as it was received


class Writer:
    """A writer that fails as often as it is told to, and keeps what it has written."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.written: list[NewEvent] = []

    async def write_and_read_back(
        self, items: Sequence[NewEvent] = (), *, make: MakeEvents | None = None, **_how: Any
    ) -> WriteResult:
        if self.failures:
            self.failures -= 1
            raise ServiceBusy("The database is full.")
        made, items = make() if make is not None else (None, items)
        self.written += items
        return WriteResult([RecordedEvent(1) for _ in items], made)


@pytest.fixture
def _one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sessions, "reopen_or_create_session", lambda *_which: RecordedHookSession("ses_1", True)
    )


@pytest.mark.usefixtures("_one_session")
def test_what_was_lost_is_told_in_the_session_as_soon_as_it_can_be() -> None:
    async def work() -> list[NewEvent]:
        writer = Writer(failures=3)
        recorder = HookRecorder(writer, DIALECT)  # type: ignore[arg-type]
        for name in ("Notification", "PostToolUse", "PostToolUse", "Setup"):
            hook = AgentHook(name, "claude-1", {"tool_name": "Bash"}, "2026-11-21T10:00:00.000000+00:00")
            with contextlib.suppress(ServiceBusy):
                await recorder.record_hook_events(hook, SessionLocation(), 10)
        return writer.written

    lost, setup = asyncio.run(work())
    assert (lost.event_type, lost.tool_input) == (
        "hooks_lost",
        {"hooks": {"Notification": 1, "PostToolUse": 2}},
    )
    assert setup.event_type == "Setup"


@pytest.mark.usefixtures("_one_session")
def test_what_comes_again_is_not_called_lost() -> None:
    async def work() -> list[str]:
        writer = Writer(failures=2)
        recorder = HookRecorder(writer, DIALECT)  # type: ignore[arg-type]
        for name, sent_as in (("Notification", "an-id"), ("PostToolUse", None), ("Notification", "an-id")):
            hook = AgentHook(
                name, "claude-1", {"tool_name": "Bash"}, "2026-11-21T10:00:00.000000+00:00", sent_as
            )
            with contextlib.suppress(ServiceBusy):
                await recorder.record_hook_events(hook, SessionLocation(), 10)
        return [str(event.tool_input) for event in writer.written if event.event_type == "hooks_lost"]

    assert asyncio.run(work()) == ["{'hooks': {'PostToolUse': 1}}"]


def test_hooks_of_a_new_session_that_come_together_find_it_once_and_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def find(executor_id: str, *_which: Any) -> RecordedHookSession:
        asked.append(executor_id)
        return RecordedHookSession("ses_1", True)

    monkeypatch.setattr(sessions, "reopen_or_create_session", find)

    class SlowWriter(Writer):
        """Writes nothing before it is let."""

        def __init__(self) -> None:
            super().__init__(failures=0)
            self.let = asyncio.Event()

        async def write_and_read_back(self, *items: Any, **how: Any) -> WriteResult:
            await self.let.wait()
            return await super().write_and_read_back(*items, **how)

    async def work() -> list[str]:
        writer = SlowWriter()
        recorder = HookRecorder(writer, DIALECT)  # type: ignore[arg-type]
        names = ("PreToolUse", "PostToolUse", "Notification", "PreToolUse")
        about = {"tool_name": "Bash", "tool_use_id": "t"}
        hooks = [AgentHook(name, "claude-1", about, "2026-11-21T10:00:00.000000+00:00") for name in names]
        told = [
            asyncio.ensure_future(recorder.record_hook_events(hook, SessionLocation(), 10)) for hook in hooks
        ]
        await asyncio.sleep(0)  # all of them wait now
        writer.let.set()
        await asyncio.gather(*told)
        return [event.event_type for event in writer.written]

    assert asyncio.run(work()) == ["pre_tool", "post_tool", "Notification", "pre_tool"]
    assert asked == ["claude-1"]
