"""Fifty calls are in flight while the brake is put on: none passes that was decided after its commit."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event

import psycopg
import pytest

from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import rules
from tests.client.programs import until
from tests.gateway.agents import Wire, furnish, text_of
from tests.gateway.example_server import Example, running
from tests.served import Served, postgres_url, with_database

pytestmark = pytest.mark.served
IN_FLIGHT = 50
SETS = (
    "INSERT INTO brakes (reach, name, reason, set_at, set_by)"
    " VALUES ('everything', '', 'Odd.', '{}', 'user:approver')"
)


@dataclass
class Caller:
    """Makes one call after the other: `sent` is when the one in flight was, `passed` when those that passed were sent
    and answered."""

    call: Callable[[], bool]
    sent: float = 0.0
    answered: int = 0
    may_call: Event = field(default_factory=Event)
    pauses: bool = False
    passed: list[tuple[float, float]] = field(default_factory=list)

    def go_on(self, over: Event) -> None:
        while not over.is_set():
            self.pauses = True
            self.may_call.wait()
            self.pauses, self.sent = False, time.monotonic()
            if self.call():
                self.passed.append((self.sent, time.monotonic()))
            self.answered += 1


@pytest.fixture
def example() -> Iterator[Example]:
    with running() as found:
        yield found


def by_hook(served: Served, tool: str) -> Caller:
    claude = Claude(served, wait="100")
    return Caller(
        lambda: claude.before(claude.new_call(tool, {"command": "make"})).get("permissionDecision") != "deny"
    )


def by_gateway(served: Served) -> Caller:
    wire = Wire(served)
    wire.initialize()
    return Caller(lambda: text_of(wire.call("echo", text="x")) == "echo: x")


@contextlib.contextmanager
def putting_on(served: Served) -> Iterator[Callable[[], object]]:
    """Put the brake on in a transaction in which no event can be written meanwhile; yields how to commit it."""
    sets = SETS.format(datetime.now(UTC).isoformat(timespec="microseconds"))
    if url := postgres_url():
        with psycopg.connect(with_database(url, served.database)) as other:
            other.execute("LOCK TABLE events IN EXCLUSIVE MODE")
            other.execute(sets)
            yield other.commit
        return
    with contextlib.closing(sqlite3.connect(served.folder / "signalbox.sqlite3", timeout=20)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute(sets)
        yield other.commit


def test_none_of_fifty_calls_in_flight_passes_that_was_decided_after_the_commit(
    served: Served, example: Example
) -> None:
    furnish(served, example.url)
    rules(served, {"tool": "Bash", "verdict": "allow"})
    approver = served.sign_in("approver")
    hooked = [by_hook(served, tool) for tool in ("Bash", "Read") for _ in range(IN_FLIGHT // 4)]
    at_gateway = [by_gateway(served) for _ in range(IN_FLIGHT - len(hooked))]
    over = Event()
    with ThreadPoolExecutor(IN_FLIGHT) as pool, until(60) as pause:
        try:
            ends = [pool.submit(caller.go_on, over) for caller in (*hooked, *at_gateway)]
            for caller in (*hooked, *at_gateway):
                caller.may_call.set()
            while not all(caller.passed for caller in (*hooked, *at_gateway)):
                pause()
            for caller in hooked:
                caller.may_call.clear()
            while not all(caller.pauses for caller in hooked):
                pause()
            with putting_on(served) as commit:
                # A hooked call is decided once it is written: those that are sent now are decided after the commit.
                held = time.monotonic()
                for caller in hooked:
                    caller.may_call.set()
                while not all(caller.sent > held for caller in hooked):
                    pause()
                commit()
                committed = time.monotonic()
            before = [caller.answered for caller in at_gateway]
            while not all(
                caller.answered > count + 1 for caller, count in zip(at_gateway, before, strict=True)
            ):
                pause()
            releases = time.monotonic()
            ((brake,),) = served.sql("SELECT id FROM brakes WHERE released_at IS NULL")
            approver.post(f"/ui/brake/{brake}/release/").raise_for_status()
            while not all(caller.passed[-1][1] > releases for caller in (*hooked, *at_gateway)):
                pause()
        finally:
            over.set()
            for caller in hooked:
                caller.may_call.set()
            served.emptied("brakes", "tool_rules")
    for one in ends:
        one.result()
    after = [(held, caller) for caller in hooked] + [(committed, caller) for caller in at_gateway]
    too_late = [
        answered - committed
        for since, caller in after
        for sent, answered in caller.passed
        if sent > since and answered < releases
    ]
    assert too_late == []
