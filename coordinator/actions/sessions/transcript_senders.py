"""Machines that send transcripts, the results of their imports, and the lines that could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import F, QuerySet

from coordinator.actions.upkeep.excess_rows import delete_excess_rows
from coordinator.lib import instants
from coordinator.models import TranscriptProblem, TranscriptSender
from coordinator.secrets.masking import mask_secrets_in_value

MAX_OF_KEY = 200  # rows of one key: one that makes up machines pushes out its own alone
MAX_SENDERS = 2_000
MAX_PROBLEMS = 500  # of one sender
MAX_NAME_CHARACTERS = 255  # of a host and a key
MAX_PROGRAM_CHARACTERS = 50  # the three are a key, of which PostgreSQL's index takes 2,704 bytes
MAX_FILE_CHARACTERS = 500
MAX_REASON_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class SenderName:
    """Whose transcripts: the machine, the agent's program, and the name of the key ("": read on the server)."""

    hostname: str
    program: str
    sender: str = ""


@dataclass(frozen=True, slots=True)
class UnreadPart:
    """Why something of a file could not be read: `line` is the first such line, None for the file as a whole."""

    file: str
    reason: str
    line: int | None = None
    line_count: int = 1


@dataclass(frozen=True, slots=True)
class TranscriptReading:
    """What came of reading files: which they were, and what of them could not be read."""

    files: Sequence[str]
    sessions_made: int = 0
    events_added: int = 0
    events_known: int = 0
    unread: Sequence[UnreadPart] = ()


@dataclass(frozen=True, slots=True)
class ImportStatus:
    """What a machine reports of its own import: how many files there are and wait, and which it could not send."""

    files: int
    waiting: int
    is_watching: bool
    problems: Sequence[UnreadPart] = field(default=())


def add_reading_to_transcript_sender(name: SenderName, reading: TranscriptReading, *, now: datetime) -> None:
    """Add a reading to its sender. What was unread of the same files before is replaced by what is unread now."""
    at_us = instants.instant_to_microseconds(now)
    with transaction.atomic():
        sender = lock_or_create_transcript_sender(name, at_us)
        senders = TranscriptSender.objects.filter(pk=sender.pk)
        senders.update(
            read_count=F("read_count") + len(reading.files),
            session_count=F("session_count") + reading.sessions_made,
            event_count=F("event_count") + reading.events_added,
            known_event_count=F("known_event_count") + reading.events_known,
            received_at_us=at_us,
        )
        of_server = sender.problems.filter(is_from_machine=False)
        files = [mask_and_shorten_text(file, MAX_FILE_CHARACTERS) for file in reading.files]
        for start in range(0, len(files), MAX_PROBLEMS):
            of_server.filter(file__in=files[start : start + MAX_PROBLEMS]).delete()
        add_transcript_problems(sender, reading.unread, at_us, is_from_machine=False)


def record_import_status(name: SenderName, status: ImportStatus, *, now: datetime) -> None:
    """Save a machine's latest report of its own import. It replaces what it reported before."""
    at_us = instants.instant_to_microseconds(now)
    with transaction.atomic():
        sender = lock_or_create_transcript_sender(name, at_us)
        TranscriptSender.objects.filter(pk=sender.pk).update(
            reported_at_us=at_us,
            file_count=status.files,
            waiting_count=status.waiting,
            is_watching=status.is_watching,
        )
        sender.problems.filter(is_from_machine=True).delete()
        add_transcript_problems(sender, status.problems, at_us, is_from_machine=True)


def lock_or_create_transcript_sender(name: SenderName, at_us: int) -> TranscriptSender:
    """Return the sender's row, locked. The rows that reported longest ago go where there are too many."""
    key = {
        "hostname": name.hostname[:MAX_NAME_CHARACTERS],
        "program": name.program[:MAX_PROGRAM_CHARACTERS],
        "sender": name.sender[:MAX_NAME_CHARACTERS],
    }
    row, is_new = TranscriptSender.objects.select_for_update().get_or_create(
        **key, defaults={"first_at_us": at_us}
    )
    if is_new:
        all_rows = TranscriptSender.objects.exclude(pk=row.pk)
        delete_surplus_senders(all_rows.filter(sender=row.sender), MAX_OF_KEY - 1)
        delete_surplus_senders(all_rows, MAX_SENDERS - 1)
    return row


def delete_surplus_senders(rows: QuerySet[TranscriptSender], most: int) -> None:
    newest_first = rows.order_by(
        F("received_at_us").desc(nulls_last=True), F("reported_at_us").desc(nulls_last=True), "-id"
    )
    surplus = list(newest_first.values_list("pk", flat=True)[most:])
    if surplus:
        TranscriptSender.objects.filter(pk__in=surplus).delete()


def add_transcript_problems(
    sender: TranscriptSender, parts: Iterable[UnreadPart], at_us: int, *, is_from_machine: bool
) -> None:
    """Add what is unread, once for each file and reason. The oldest problems go where there are too many."""
    problems: dict[tuple[str, str], TranscriptProblem] = {}
    for part in parts:
        file = mask_and_shorten_text(part.file, MAX_FILE_CHARACTERS)
        reason = mask_and_shorten_text(part.reason, MAX_REASON_CHARACTERS)
        if problem := problems.get((file, reason)):
            problem.line_count += part.line_count
        elif len(problems) < MAX_PROBLEMS:
            problems[file, reason] = TranscriptProblem(
                transcript_sender=sender,
                is_from_machine=is_from_machine,
                file=file,
                line=part.line,
                reason=reason,
                line_count=part.line_count,
                found_at_us=at_us,
            )
    if not problems:
        return
    TranscriptProblem.objects.bulk_create(problems.values())
    delete_excess_rows(sender.problems.order_by("-found_at_us", "-id"), MAX_PROBLEMS)


def mask_and_shorten_text(text: str, most: int) -> str:
    masked: str = mask_secrets_in_value(text.replace("\x00", ""))
    return masked[:most]
