"""`/health` says that a worker answers; `/health/ready` looks whether it may be sent requests."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from coordinator.edge.monitoring.readiness import ReadinessEndpoint
from coordinator.lib.threads import EdgeThreads
from coordinator.models import Session
from coordinator.operations import startup
from tests.served import Served

pytestmark = pytest.mark.django_db(transaction=True)


class Feed:
    position = 0

    def seconds_since_poll(self) -> float:
        return 0.0


class Writer:
    def seconds_stuck(self) -> float:
        return 0.0


class StuckWriter(Writer):
    def seconds_stuck(self) -> float:
        return 11.0


class DeadFeed(Feed):
    def seconds_since_poll(self) -> float:
        return float("inf")


def ask(feed: Any, writer: Any, *, stopping: bool = False) -> tuple[int, Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def answer() -> None:
        threads = EdgeThreads(1)
        ready = ReadinessEndpoint(feed, writer, threads)
        ready.stopping = stopping
        await ready.answer_readiness({}, send, send)  # type: ignore[arg-type]
        threads.shut_down_threads()

    asyncio.run(answer())
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_all_is_well() -> None:
    assert ask(Feed(), Writer()) == (200, {"status": "ready"})


def test_each_reason_is_told() -> None:
    status, body = ask(DeadFeed(), StuckWriter())
    assert (status, body["status"]) == (503, "not ready")
    assert body["reasons"] == [
        "The writer of events is stuck.",
        "The feed has stopped: open pages are not updated.",
    ]
    assert ask(Feed(), Writer(), stopping=True)[1]["reasons"] == ["The server is stopping."]


def test_a_feed_that_does_not_keep_up(monkeypatch: pytest.MonkeyPatch) -> None:
    Session.objects.create(session_id="ses_1", status="running", created_at="2026-03-01T00:00:00Z")
    assert ask(Feed(), Writer())[0] == 200
    later = time.time() + 60
    monkeypatch.setattr("coordinator.edge.monitoring.readiness.time.time", lambda: later)
    status, body = ask(Feed(), Writer())
    assert status == 503
    assert "seconds behind" in body["reasons"][0]


def test_migrations_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = startup.migrations_on_disk() | {("coordinator", "9999_later")}
    monkeypatch.setattr(startup, "migrations_on_disk", lambda: known)
    assert "lacks 1 migrations" in ask(Feed(), Writer())[1]["reasons"][0]


@pytest.mark.served
def test_the_served_program_is_ready_without_a_key(two_workers: Served) -> None:
    stranger = two_workers.client(key=None)
    assert stranger.get("/health").json() == {"status": "healthy"}
    assert stranger.get("/health/ready").json() == {"status": "ready"}
