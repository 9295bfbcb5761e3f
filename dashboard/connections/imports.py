"""The machines that send transcripts, what was imported from each, and what could not be read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Count, Max, QuerySet
from django.db.models.functions import Coalesce, Greatest

from coordinator.lib import instants
from coordinator.models import TranscriptProblem, TranscriptSender
from coordinator.sessions.agent_programs import AGENT_TITLES

MACHINES_ON_PAGE = 50
PROBLEMS_ON_PAGE = 50
LATEST_MACHINES = 5  # listed on the page Connections
REPORT_LASTS = timedelta(minutes=3)  # watchers report each minute; after this time one is silent
# A pattern for the reasons of a problem, its label, and what to do about it.
ADVICE: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"^too large to send"),
        "Too large to send",
        "Copy the file to the server, and run `signalbox manage import_transcripts AGENT FILE` there.",
    ),
    (
        re.compile(r"took longer than"),
        "Took too long",
        "What was read until then is kept, and the file is read on when it has changed. To read all of it now, copy it"
        " to the server and run `signalbox manage import_transcripts AGENT FILE` there.",
    ),
    (
        re.compile(r"^cannot be read now|^unreadable file"),
        "Cannot be opened",
        "Run `signalbox import` as the user who runs the agent. It tries these files again each time.",
    ),
    (
        re.compile(r"^no JSON$|^too long$"),
        "Broken or overlong lines",
        "An agent that was ended while it wrote leaves such lines. The rest of the file is read."
        " Nothing is to be done.",
    ),
    (
        re.compile(r"^(type|role|response_item) |^no (type|role|object)$"),
        "Unknown kinds of lines",
        "The agent is newer than what Signalbox knows of it. Update Signalbox and run `signalbox import` again. If they"
        " are still here then, report the kind and the agent's version as a defect.",
    ),
)
OTHER_ADVICE = (
    "Other reasons",
    "The reason says what is wrong. The file is sent again with the next `signalbox import` after it has changed.",
)


@dataclass(slots=True)
class SenderRow:
    """The transcripts of one agent program on a machine, sent with one key."""

    row: TranscriptSender
    problem_count: int

    @property
    def agent_program_title(self) -> str:
        return AGENT_TITLES.get(self.row.program, self.row.program)

    @property
    def received_at(self) -> datetime | None:
        return (
            instants.instant_from_microseconds(self.row.received_at_us) if self.row.received_at_us else None
        )


@dataclass(slots=True)
class Machine:
    """A machine and the transcripts that it sends."""

    hostname: str
    senders: list[SenderRow] = field(default_factory=list)
    watch: str = (
        ""  # `signalbox import --watch`: "running", "silent" (no report lately), "off", "" (no report ever)
    )
    reported_at: datetime | None = None

    @property
    def program_titles(self) -> list[str]:
        return sorted({sender.agent_program_title for sender in self.senders})

    @property
    def session_count(self) -> int:
        return sum(sender.row.session_count for sender in self.senders)

    @property
    def event_count(self) -> int:
        return sum(sender.row.event_count for sender in self.senders)

    @property
    def waiting_count(self) -> int:
        return sum(sender.row.waiting_count or 0 for sender in self.senders)

    @property
    def problem_count(self) -> int:
        return sum(sender.problem_count for sender in self.senders)

    @property
    def received_at(self) -> datetime | None:
        return max((at for sender in self.senders if (at := sender.received_at)), default=None)


@dataclass(frozen=True, slots=True)
class ProblemRow:
    """One row of the table of problems."""

    row: TranscriptProblem

    @property
    def agent_program_title(self) -> str:
        program = self.row.transcript_sender.program
        return AGENT_TITLES.get(program, program)

    @property
    def problem_detected_at(self) -> datetime:
        return instants.instant_from_microseconds(self.row.found_at_us)


def list_transcript_sender_hostnames() -> QuerySet[TranscriptSender, str]:
    """Return the hostnames of the machines, the one with the latest import or report first."""
    last_received_at = Max(Greatest(Coalesce("received_at_us", 0), Coalesce("reported_at_us", 0)))
    hostnames = TranscriptSender.objects.values("hostname").annotate(last_received_at=last_received_at)
    return hostnames.order_by("-last_received_at", "hostname").values_list("hostname", flat=True)


def load_transcript_sending_machines(hostnames: Iterable[str], now: datetime) -> list[Machine]:
    """Return these machines in the same order, without those that never sent a transcript."""
    machines = {hostname: Machine(hostname) for hostname in hostnames}
    senders = TranscriptSender.objects.filter(hostname__in=list(machines)).annotate(
        problem_count=Count("problems")
    )
    for row in senders.order_by("program", "sender"):
        machines[row.hostname].senders.append(SenderRow(row, row.problem_count))
    for machine in machines.values():
        reports = [sender.row for sender in machine.senders if sender.row.reported_at_us]
        if not reports:
            continue
        newest = max(reports, key=lambda row: row.reported_at_us or 0)
        machine.reported_at = instants.instant_from_microseconds(newest.reported_at_us or 0)
        is_recent = machine.reported_at > now - REPORT_LASTS
        machine.watch = ("running" if is_recent else "silent") if newest.is_watching else "off"
    return [machine for machine in machines.values() if machine.senders]


def list_transcript_problems_of_machine(hostname: str) -> QuerySet[TranscriptProblem]:
    problems = TranscriptProblem.objects.filter(transcript_sender__hostname=hostname)
    return problems.select_related("transcript_sender").order_by("-found_at_us", "-id")


def list_advice_for_problem_reasons(reasons: Iterable[str]) -> list[tuple[str, str]]:
    """Return the labels and advice for these reasons, without duplicates, sorted by label."""
    advice: dict[str, str] = {}
    for reason in reasons:
        for pattern, label, text in ADVICE:
            if pattern.search(reason):
                advice[label] = text
                break
        else:
            advice[OTHER_ADVICE[0]] = OTHER_ADVICE[1]
    return sorted(advice.items())
