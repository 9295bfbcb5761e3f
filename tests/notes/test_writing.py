"""Only people write notes, to sessions at work, in bounds; each is taken once, and one that cannot be is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from coordinator.actions.sessions import notes
from coordinator.edge.hooks.notes import PendingNotes
from coordinator.errors import BadRequest, Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, key_actor_by_name, system_actor
from coordinator.lib.threads import EdgeThreads
from coordinator.models import AuditLog, Event, Note, Session
from coordinator.sessions.notes import (
    LONGEST,
    MOST_AT_ONCE,
    MOST_WAITING,
    find_session_ids_with_pending_notes,
    format_notes_for_agent,
)
from dashboard.looks.milestones import milestone_icon_text_and_tone
from tests.patience import PATIENCE
from tests.people import signed_in

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def session() -> Session:
    return Session.objects.create(
        session_id="ses_0123456789ab", status="running", created_at=NOW, executor_profile="claude-code"
    )


def write(session: Session, text: str = "Stop after this.") -> Note:
    return notes.write_note(session.pk, text, actor=Actor("user", "anna"), now=NOW)


def test_programs_write_none(session: Session) -> None:
    for by in (key_actor_by_name("k"), system_actor("s")):
        with pytest.raises(BadRequest):
            notes.write_note(session.pk, "x", actor=by, now=NOW)
    assert not Note.objects.exists()
    assert signed_in("viewer").post(f"/ui/sessions/{session.pk}/-/note/", {"text": "x"}).status_code == 403


@pytest.mark.parametrize("text", ["", "  ", "x" * (LONGEST + 1), "a\x00b"])
def test_a_text_out_of_bounds_is_refused(session: Session, text: str) -> None:
    with pytest.raises(UnprocessableRequest):
        write(session, text)


def test_nothing_is_written_to_what_nobody_reads(session: Session) -> None:
    for _ in range(MOST_WAITING):
        write(session)
    with pytest.raises(Conflict, match="already waiting"):
        write(session)
    Session.objects.filter(pk=session.pk).update(status="finished")
    with pytest.raises(Conflict, match="has ended"):
        write(session)
    with pytest.raises(NotFound):
        notes.write_note("ses_nobody", "x", actor=Actor("user", "anna"), now=NOW)


def test_it_is_taken_once_and_only_so_much_at_a_time(session: Session) -> None:
    written = [write(session, f"Note {number}") for number in range(MOST_AT_ONCE + 1)]
    first = notes.claim_notes_for_delivery(session.pk, "its hook", NOW, given_to="h1")
    assert [note.pk for note in first] == [note.pk for note in written[:MOST_AT_ONCE]]
    assert [note.pk for note in notes.claim_notes_for_delivery(session.pk, "its hook", NOW)] == [
        written[-1].pk
    ]
    assert notes.claim_notes_for_delivery(session.pk, "its hook", NOW) == []
    assert find_session_ids_with_pending_notes(NOW) == {session.pk}
    assert find_session_ids_with_pending_notes(NOW + timedelta(hours=1)) == frozenset()
    assert format_notes_for_agent(
        notes.claim_notes_for_delivery(session.pk, "its hook", NOW, given_to="h1")
    ) == format_notes_for_agent(first)


def test_one_whose_session_has_ended_is_said_to_be_lost_and_closed(session: Session) -> None:
    note = write(session)
    Session.objects.filter(pk=session.pk).update(status="finished")
    client = signed_in("viewer")
    address = f"/ui/sessions/{session.pk}/-/notes/"
    assert "Not delivered: The session has ended." in client.get(address).content.decode()
    notes.close_undeliverable_notes(NOW + timedelta(seconds=5))
    notes.close_undeliverable_notes(NOW + timedelta(seconds=9))
    note.refresh_from_db()
    assert note.closed_at is not None
    assert "Not delivered" in client.get(address).content.decode()
    assert notes.claim_notes_for_delivery(session.pk, "its hook", NOW) == []
    told = Event.objects.filter(session=session).order_by("id").values_list("event_type", flat=True)
    assert list(told) == ["note", "note_not_delivered"]
    assert AuditLog.objects.filter(event_type="NOTE_NOT_DELIVERED").count() == 1


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("claude-code", "with its next tool call or prompt"),
        ("gemini", "with its next tool call or prompt"),
        ("goose", "Goose cannot receive notes while it works"),
        ("cursor", "Cursor cannot receive notes while it works"),
        (None, "This agent cannot receive notes while it works"),
        ("mcp-gateway", "the next result of an MCP tool"),
    ],
)
def test_the_page_says_before_how_a_note_goes(session: Session, profile: str | None, words: str) -> None:
    Session.objects.filter(pk=session.pk).update(executor_profile=profile)
    page = signed_in("approver").get(f"/ui/sessions/{session.pk}/").content.decode()
    assert words in " ".join(page.split())


def test_the_page_shows_notes_without_secrets_and_says_what_is_wrong(session: Session) -> None:
    client = signed_in("approver")
    url = f"/ui/sessions/{session.pk}/-/note/"
    refused = client.post(url, {"text": "x" * (LONGEST + 1)}, headers={"HX-Request": "true"})
    assert refused.status_code == 422
    assert "A note may have at most 4,000 characters" in refused.content.decode()
    client.post(url, {"text": "Use ghp_" + "a1B2" * 9 + " <b>now</b>"}, headers={"HX-Request": "true"})
    page = client.get(f"/ui/sessions/{session.pk}/").content.decode()
    assert "ghp_a1B2a1B2" not in page
    assert "&lt;b&gt;now" in page
    assert "<b>now" not in page


@pytest.mark.parametrize("event_type", ["note", "note_delivered", "note_not_delivered"])
def test_an_agent_cannot_pass_something_off_as_a_note_or_its_delivery(event_type: str) -> None:
    told = {"event_type": event_type, "reason": "anna", "tool_input": {"text": "Go on."}}
    assert milestone_icon_text_and_tone(cast(Any, event(**told, source="executor")))[1] == event_type
    assert milestone_icon_text_and_tone(cast(Any, event(**told, source="signalbox")))[1].startswith("Note ")


def event(**fields: Any) -> SimpleNamespace:
    value = SimpleNamespace(value=fields.pop("tool_input"))
    return SimpleNamespace(error=None, tool_input=value, **fields)


@pytest.mark.django_db(transaction=True)
def test_of_two_arrivals_of_one_hook_at_once_both_get_the_same_notes() -> None:
    anna = Actor("user", "anna")
    made = Session.objects.create(session_id="ses_0000000000ab", status="running", created_at=NOW)
    for round_ in range(5):
        note = notes.write_note(made.pk, f"Note {round_}", actor=anna, now=NOW)
        start = threading.Barrier(2)

        def arrive(round_: int = round_, start: threading.Barrier = start) -> list[int]:
            try:
                start.wait(PATIENCE)
                return [
                    one.pk
                    for one in notes.claim_notes_for_delivery(
                        made.pk, "its hook", NOW, given_to=f"hook-{round_}"
                    )
                ]
            finally:
                connection.close()

        with ThreadPoolExecutor(2) as pool:
            got = [pool.submit(arrive), pool.submit(arrive)]
            assert [one.result(PATIENCE) for one in got] == [[note.pk]] * 2


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_waits_no_longer_leaves_its_notes_to_the_next_one() -> None:
    session = Session.objects.create(session_id="ses_0000000000ac", status="running", created_at=NOW)
    write(session)
    threads = EdgeThreads(1)

    async def answers() -> tuple[str, str]:
        edge = PendingNotes(cast(Any, SimpleNamespace(listeners=[])), threads)
        assert await edge.has_notes_for_any_session()
        with writing(session):
            first = await edge.consume_session_notes(session.pk, "its hook")
        second = await edge.consume_session_notes(
            session.pk, "its hook"
        )  # the one thread has done with the first by then
        await threads.run_in_thread(connections.close_all)
        return first, second

    first, second = asyncio.run(answers())
    assert first == ""
    assert "Stop after this." in second
    told = Event.objects.filter(session=session, event_type="note_delivered")
    assert told.count() == AuditLog.objects.filter(event_type="NOTE_DELIVERED").count() == 1
    threads.shut_down_threads()


@contextmanager
def writing(session: Session) -> Iterator[None]:
    """Have somebody else hold the session, or with SQLite the whole database, in a transaction that goes on."""
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Session.objects.filter(pk=session.pk).update(project_dir="/elsewhere")
                holds.set()
                ends.wait(PATIENCE)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(hold)
        assert holds.wait(PATIENCE)
        try:
            yield
        finally:
            ends.set()
            holder.result(PATIENCE)
