"""Hooks on their way to the writer: what becomes of one that takes long, fails, or that nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import DataError

from coordinator.dialects.claude_code import DIALECT, AgentHook
from coordinator.edge.hooks.recorder import HookRecorder
from coordinator.edge.ingest import write_queue as module
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.errors import UnprocessableRequest
from coordinator.models import Event, Session
from coordinator.sessions.reports import SessionLocation
from tests.patience import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)


class Gate:
    """Stands before the writing of events once it is shut: they wait for `go_on`, and fail if they are to."""

    def __init__(self) -> None:
        self.shut = False
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.problem: Exception | None = None
        self.write = module.write_prepared_events

    def __call__(self, prepared: Any, now: Any) -> Any:
        if self.shut and prepared:
            self.reached.set()
            assert self.go_on.wait(PATIENCE)
            if self.problem is not None:
                raise self.problem
        return self.write(prepared, now)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr(module, "write_prepared_events", gate)
    return gate


async def observe(recorder: HookRecorder, number: int) -> Any:
    """Have the hook of this number written; return what was looked at then."""
    hook = AgentHook("Setup", "claude-1", {"number": number}, "2026-11-21T10:00:00.000000+00:00")
    return await recorder.record_hook_events(hook, SessionLocation(), 10, read_back=lambda: "seen")


def with_recorder(work: Callable[[HookRecorder], Awaitable[Any]]) -> Any:
    """Run `work` with a recorder that knows the session of the hooks, and a running writer."""

    async def main() -> Any:
        writer = GroupWriter(lambda: None)
        writer.start()
        try:
            recorder = HookRecorder(writer, DIALECT)
            await observe(recorder, 1)
            return await work(recorder)
        finally:
            writer.stop()

    return asyncio.run(main())


async def written_so_far(recorder: HookRecorder) -> None:
    """Wait for the writer, which writes one group after another."""
    await recorder.run_hook_work_in_writer(lambda: None)


def kinds() -> list[str]:
    return list(Event.objects.order_by("id").values_list("event_type", flat=True))


def test_a_hook_that_nobody_waits_for_any_more_is_written_all_the_same(gate: Gate) -> None:
    async def work(recorder: HookRecorder) -> None:
        gate.shut = True
        told = asyncio.create_task(observe(recorder, 2))
        assert await asyncio.to_thread(gate.reached.wait, PATIENCE)
        told.cancel()
        await asyncio.wait([told])
        assert told.cancelled()
        gate.go_on.set()
        await written_so_far(recorder)

    with_recorder(work)
    assert kinds() == ["Setup", "Setup"]


def test_a_hook_that_takes_long_is_answered_before_it_is_written(gate: Gate, settings: LazySettings) -> None:
    async def work(recorder: HookRecorder) -> None:
        gate.shut = True
        settings.HOOK_ANSWER_AFTER = 0.01
        assert await observe(recorder, 2) is None
        gate.go_on.set()
        await written_so_far(recorder)
        settings.HOOK_ANSWER_AFTER = PATIENCE
        assert await observe(recorder, 3) == "seen"

    with_recorder(work)
    assert kinds() == ["Setup", "Setup", "Setup"]


def test_a_hook_that_was_answered_and_then_lost_is_told_in_its_session(
    gate: Gate, settings: LazySettings
) -> None:
    async def work(recorder: HookRecorder) -> None:
        gate.shut, gate.problem = True, DataError("no such text")
        settings.HOOK_ANSWER_AFTER = 0.01
        assert await observe(recorder, 2) is None
        settings.HOOK_ANSWER_AFTER = PATIENCE
        gate.go_on.set()
        async with asyncio.timeout(PATIENCE):
            while not recorder._lost:
                await asyncio.sleep(0)
        gate.shut = False
        await observe(recorder, 3)

    with_recorder(work)
    assert kinds() == ["Setup", "hooks_lost", "Setup"]
    assert Event.objects.get(event_type="hooks_lost").tool_input == {"hooks": {"Setup": 1}}


def test_a_hook_that_is_refused_in_time_says_so(gate: Gate) -> None:
    async def work(recorder: HookRecorder) -> None:
        gate.shut, gate.problem = True, DataError("no such text")
        gate.go_on.set()
        with pytest.raises(UnprocessableRequest, match="no such text"):
            await observe(recorder, 2)

    with_recorder(work)
    assert kinds() == ["Setup"]


def test_a_hook_of_a_session_that_was_deleted_begins_another() -> None:
    async def work(recorder: HookRecorder) -> None:
        await recorder.run_hook_work_in_writer(lambda: Session.objects.all().delete())
        await observe(recorder, 2)

    with_recorder(work)
    assert kinds() == ["Setup"]
