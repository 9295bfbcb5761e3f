"""The group writer by itself: groups, deadlines, a poisoned job, a full disk. Over HTTP: tests/live."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection, transaction
from django.utils import timezone

from coordinator.actions.upkeep import idempotency
from coordinator.edge.ingest import write_queue as module
from coordinator.edge.ingest.write_queue import GroupWriter, WriteJob
from coordinator.engine import is_sqlite, locks
from coordinator.errors import NotFound, ServiceBusy, SignalboxError
from coordinator.models import Event, EventContext, Session
from coordinator.sessions.events import NewEvent, RecordedEvent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def session() -> Session:
    """The session that events are for."""
    return Session.objects.create(session_id="s1", status="running", created_at=timezone.now())


def event(text: str, session_id: str = "s1") -> NewEvent:
    return NewEvent(event_type="note", session_id=session_id, timestamp="t", reason=text)


def with_writer(work: Callable[[GroupWriter], Awaitable[Any]]) -> Any:
    """Run `work` on an event loop with a running writer."""

    async def main() -> Any:
        writer = GroupWriter(lambda: None)
        writer.start()
        try:
            return await work(writer)
        finally:
            writer.stop()

    return asyncio.run(main())


async def submit(writer: GroupWriter, *items: NewEvent, within: float = 3.0) -> Any:
    try:
        return await writer.submit_events(list(items), deadline=time.monotonic() + within, size=100)
    except SignalboxError as refusal:
        return refusal


def test_each_caller_gets_its_own_outcome() -> None:
    async def work(writer: GroupWriter) -> Any:
        return await asyncio.gather(
            *(submit(writer, event(str(n), "s1" if n % 3 else "none")) for n in range(30))
        )

    answers = with_writer(work)
    assert [answer[0].status if n % 3 == 0 else 0 for n, answer in enumerate(answers)] == [404, 0, 0] * 10
    stored = {row.pk: row.reason for row in Event.objects.all()}
    told = {
        answer[0].event_id: str(n) for n, answer in enumerate(answers) if isinstance(answer[0], RecordedEvent)
    }
    assert stored == told
    assert EventContext.objects.count() == 20


def test_a_job_that_poisons_its_group_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    write = module.write_prepared_events

    def fail_for_poison(prepared: Any, now: Any) -> Any:
        if any(one.item.reason == "poison" for one in prepared):
            raise DataError("this cannot be held")
        return write(prepared, now)

    monkeypatch.setattr(module, "write_prepared_events", fail_for_poison)

    async def work(writer: GroupWriter) -> Any:
        return await asyncio.gather(*(submit(writer, event(text)) for text in ("a", "poison", "b")))

    answers = with_writer(work)
    assert answers[1].status == 422
    assert sorted(Event.objects.values_list("reason", flat=True)) == ["a", "b"]


async def record(writer: GroupWriter, **what: Any) -> Any:
    try:
        return await writer.write_and_read_back(deadline=time.monotonic() + 3.0, size=100, **what)
    except Exception as refusal:
        return refusal


def test_events_made_in_the_transaction_are_written_with_what_made_them() -> None:
    def make(session_id: str) -> tuple[str, list[NewEvent]]:
        Session.objects.create(session_id=session_id, status="running", created_at=timezone.now())
        if session_id == "spoilt":
            raise NotFound("Nothing can be made of it.")
        return f"made {session_id}", [event("first", session_id), event("second", session_id)]

    async def work(writer: GroupWriter) -> Any:
        return await asyncio.gather(
            record(writer, make=functools.partial(make, "new")),
            record(writer, make=functools.partial(make, "spoilt")),
            record(writer, items=[event("plain")]),
        )

    made, refused, plain = with_writer(work)
    assert made.created == "made new"
    assert [isinstance(one, RecordedEvent) for one in (*made.outcomes, *plain.outcomes)] == [True] * 3
    assert isinstance(refused, NotFound)
    assert not Session.objects.filter(pk="spoilt").exists()
    assert list(Event.objects.filter(session_id="new").order_by("id").values_list("reason", flat=True)) == [
        "first",
        "second",
    ]


def test_what_a_group_asks_after_its_commit_is_asked_once_and_sees_the_commit() -> None:
    looks: list[int] = []

    def look() -> int:
        looks.append(Event.objects.count())
        return looks[-1]

    def broken() -> int:
        raise OperationalError("the line is cut")

    async def work(writer: GroupWriter) -> Any:
        loop = asyncio.get_running_loop()
        jobs = [
            WriteJob([event("a")], time.monotonic() + 3, 1, loop, loop.create_future(), read_back=asked)
            for asked in (look, look, None, broken)
        ]
        with writer._some:  # all in one group
            for job in jobs:
                writer.enqueue_job(job)
        await asyncio.gather(*(job.answer for job in jobs))
        return [job.read_values for job in jobs]

    assert with_writer(work) == [4, 4, None, None]
    assert looks == [4]


def test_a_group_that_has_a_bug_is_refused_and_the_writer_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    write = module.write_prepared_events
    faults = iter([RuntimeError("a bug")])

    def fail_once(prepared: Any, now: Any) -> Any:
        for fault in faults:
            raise fault
        return write(prepared, now)

    monkeypatch.setattr(module, "write_prepared_events", fail_once)

    async def work(writer: GroupWriter) -> Any:
        return [await submit(writer, event("lost")), await submit(writer, event("kept"))]

    first, second = with_writer(work)
    assert isinstance(first, ServiceBusy)
    assert isinstance(second[0], RecordedEvent)


def test_a_full_disk_is_busy_and_writes_nothing() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL's disk cannot be filled from here")

    async def work(writer: GroupWriter) -> Any:
        await submit(writer, event("before"))
        return await submit(writer, event("x" * (limit_pages(writer) + 500_000)))

    def limit_pages(writer: GroupWriter) -> int:
        """Let the file not grow; return how many bytes it has room for (what earlier tests deleted)."""
        raw: Any = writer._prepared
        pages, free, size = (
            raw.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        raw.execute(f"PRAGMA max_page_count = {pages}")
        return int(free * size)

    refused = with_writer(work)
    assert (refused.status, refused.retry_after) == (503, 1)
    assert Event.objects.count() == 1


def test_a_caller_whose_time_is_up_is_not_written() -> None:
    async def work(writer: GroupWriter) -> Any:
        return await submit(writer, event("late"), within=0.1)

    assert isinstance(with_writer(work), ServiceBusy)
    assert Event.objects.count() == 0


def test_a_lock_that_never_comes_free_is_busy_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(prepared: Any, now: Any) -> Any:
        raise OperationalError("database is locked")

    monkeypatch.setattr(module, "write_prepared_events", locked)

    async def work(writer: GroupWriter) -> Any:
        began = time.monotonic()
        return await submit(writer, event("x"), within=1.0), time.monotonic() - began

    answer, took = with_writer(work)
    assert isinstance(answer, ServiceBusy)
    assert took < 1.5


def slowly(monkeypatch: pytest.MonkeyPatch, begun: threading.Event, go_on: threading.Event) -> None:
    """Let the writing of events wait, once it is begun, until it may go on."""
    write = module.write_prepared_events

    def wait(prepared: Any, now: Any) -> Any:
        begun.set()
        go_on.wait(60)
        return write(prepared, now)

    monkeypatch.setattr(module, "write_prepared_events", wait)


def test_what_is_being_written_as_the_time_is_up_is_answered_as_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    slowly(monkeypatch, begun, go_on)

    async def work(writer: GroupWriter) -> Any:
        answer = asyncio.create_task(submit(writer, event("late"), within=0.4))
        await asyncio.to_thread(begun.wait, 5)
        behind = await submit(writer, event("behind"), within=0.1)
        await asyncio.sleep(0.5)
        go_on.set()
        return await answer, behind

    answer, behind = with_writer(work)
    assert isinstance(answer[0], RecordedEvent)
    assert "Nothing was written" in behind.detail
    assert list(Event.objects.values_list("reason", flat=True)) == ["late"]


def test_where_nobody_knows_in_time_the_answer_says_so_and_a_resend_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    slowly(monkeypatch, begun, go_on)
    once = idempotency.derive_idempotency_claim(caller="k", endpoint="d", key="1", content=b"x")

    async def send(writer: GroupWriter, within: float) -> Any:
        return await writer.submit_events(
            [event("once")],
            deadline=time.monotonic() + within,
            size=1,
            once=once,
            make_answer=lambda _outcomes: b"written",
            answer_timeout=0.1,
        )

    async def work(writer: GroupWriter) -> Any:
        with pytest.raises(ServiceBusy, match="Idempotency-Key"):
            await send(writer, within=0.4)
        go_on.set()
        return await send(writer, within=3)

    assert with_writer(work) == b"written"
    assert Event.objects.count() == 1


def test_a_batch_that_another_server_writes_at_the_same_time_has_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = idempotency.derive_idempotency_claim(caller="k", endpoint="d", key="1", content=b"x")
    idempotency.save_idempotent_answer(once, b"written there", timezone.now())
    real, looks = idempotency.find_idempotent_answer, []

    def find(claim: idempotency.IdempotencyClaim) -> bytes | None:
        """The other's transaction is not over yet when this one looks."""
        looks.append(claim)
        return None if len(looks) == 1 else real(claim)

    monkeypatch.setattr(idempotency, "find_idempotent_answer", find)

    async def work(writer: GroupWriter) -> Any:
        until = time.monotonic() + 60
        answer = {"once": once, "make_answer": lambda _outcomes: b"written here"}
        return await writer.submit_events([event("once")], deadline=until, size=1, **answer)

    assert with_writer(work) == b"written there"
    assert not Event.objects.exists()


def test_a_line_that_is_lost_at_commit_is_not_called_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "is_retryable_lock_error", lambda _: False)
    monkeypatch.setattr(locks, "is_commit_uncertain", lambda _: True)  # SQLite never does

    real = transaction.atomic

    @contextlib.contextmanager
    def atomic(**options: Any) -> Iterator[None]:
        is_ours = not connection.in_atomic_block
        with real(**options):
            yield
        if is_ours:
            raise OperationalError("server closed the connection unexpectedly")

    async def work(writer: GroupWriter) -> Any:
        monkeypatch.setattr(transaction, "atomic", atomic)
        try:
            return await submit(writer, event("x"))
        finally:
            monkeypatch.setattr(transaction, "atomic", real)

    assert "did not confirm" in with_writer(work).detail


@pytest.mark.skipif(is_sqlite(), reason="a file does not cut who has it open")
def test_a_connection_that_was_cut_since_the_last_group_is_opened_anew() -> None:
    def session_of_the_writer() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    def cut(session: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [session])
            assert cursor.fetchone() == (True,)
        connection.close()

    async def work(writer: GroupWriter) -> Any:
        before = await writer.perform_in_transaction(session_of_the_writer, deadline=time.monotonic() + 3)
        await asyncio.to_thread(cut, before)
        written = await submit(writer, event("after"))
        return (
            before,
            written,
            await writer.perform_in_transaction(session_of_the_writer, deadline=time.monotonic() + 3),
        )

    before, written, after = with_writer(work)
    assert isinstance(written[0], RecordedEvent), written
    assert after != before
    assert [row.reason for row in Event.objects.all()] == ["after"]


def test_a_queue_that_is_full_refuses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUE_EVENTS", 2)

    async def work(writer: GroupWriter) -> Any:
        return await submit(writer, event("1"), event("2"), event("3"))

    assert isinstance(with_writer(work), ServiceBusy)
