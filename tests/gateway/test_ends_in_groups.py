"""Calls that end about now are written together; one that cannot be written costs no other."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from coordinator.edge.gateway.records import CallRecords
from coordinator.errors import UnprocessableRequest
from coordinator.lib.fair_queue import CALLER


class Writer:
    """Takes events, and refuses groups with a `bad` one as a whole."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []

    async def submit_events(self, events: list[str], **_: Any) -> list[Any]:
        self.groups.append(events)
        if "bad" in events:
            raise UnprocessableRequest("The database cannot hold this event.")
        return []


def written(*calls: tuple[str, str]) -> list[list[str]]:
    """Return the groups in which calls' events came to the writer, given as (caller, event)."""

    async def play() -> list[list[str]]:
        writer = Writer()
        kept = CallRecords(cast(Any, writer))
        for caller, event in calls:
            CALLER.set(caller)
            kept.queue_events_of_ended_call(cast(Any, [event]), 10)
        assert not writer.groups
        await kept.flush_call_records()
        return writer.groups

    return asyncio.run(play())


def test_each_caller_s_calls_are_one_group() -> None:
    assert written(("a", "1"), ("b", "2"), ("a", "3")) == [["1", "3"], ["2"]]


def test_a_call_that_no_database_can_hold_is_left_out_alone() -> None:
    assert written(("a", "1"), ("a", "bad"), ("a", "3")) == [["1", "bad", "3"], ["1"], ["bad"], ["3"]]
