"""`manage.py import_transcripts [AGENT] [FOLDER]`: imports the transcripts of coding agents as sessions."""

from __future__ import annotations

import os
import socket
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from coordinator.actions.sessions.transcript_senders import (
    SenderName,
    TranscriptReading,
    UnreadPart,
    add_reading_to_transcript_sender,
)
from coordinator.actions.sessions.transcripts import TranscriptImport, TranscriptOutcome
from coordinator.dialects.transcript_formats import TranscriptFormat
from coordinator.dialects.transcripts import TRANSCRIPTS
from coordinator.errors import SignalboxError
from coordinator.identity.actors import system_actor
from coordinator.importing import transcripts
from coordinator.importing.lines import TOO_LONG, UNFINISHED, LineReader, UnknownLineKind
from coordinator.importing.transcripts import TranscriptFile, TranscriptLine

BAR = 24
SHOWN_EVERY = 0.1  # seconds
MOST_LISTED = 20
MOST_UNREAD_PARTS = 1_000  # files and reasons


class Command(BaseCommand):
    """Reads what the agents have written and adds what is not here yet. The files are never written to.

    May be repeated: only what is new is added. A session that was recorded live is not duplicated: calls, records and
    requests to the model are recognised by their ids, messages by author and time.
    """

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "program",
            nargs="?",
            metavar="AGENT",
            choices=sorted(TRANSCRIPTS),
            help=f"whose transcripts they are ({', '.join(TRANSCRIPTS)}); default: all that are found",
        )
        self.add_source_arguments(parser)

    def add_source_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments that do not depend on the agent."""
        parser.add_argument(
            "path", type=Path, nargs="?", help="a folder or a file (default: where the agent keeps them)"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would happen, and change nothing"
        )
        parser.add_argument("--agent", help="the agent whose sessions they are: its name or id; AGENT")
        parser.add_argument(
            "--host",
            default=socket.gethostname(),
            help="the machine on which they ran (default: this one)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        program_name = options["program"]
        programs = [TRANSCRIPTS[program_name]] if program_name else list(TRANSCRIPTS.values())
        transcripts_by_program = {one.name: find_agent_transcripts(one, options["path"]) for one in programs}
        if not any(transcripts_by_program.values()):
            where = options["path"] or ", ".join(
                str(place) for one in programs for place in default_transcript_folders(one)
            )
            raise CommandError(f"There are no transcripts below {where}.")
        for program in programs:
            if transcripts_by_program[program.name]:
                self.import_agent_transcripts(
                    program, transcripts_by_program[program.name], options, with_name=program_name is None
                )
        if options["dry_run"]:
            self.stdout.write("Nothing was changed (--dry-run).")

    def import_agent_transcripts(
        self,
        program: TranscriptFormat,
        files: list[TranscriptFile],
        options: dict[str, Any],
        *,
        with_name: bool,
    ) -> None:
        taking = TranscriptImport(
            now=timezone.now(),
            write=not options["dry_run"],
            profile=program.name,
            agent_name=options["agent"] or program.name,
            hostname=options["host"] or None,
        )
        self._read = TranscriptProgress(sum(transcript.size for transcript in files), len(files))
        kinds: dict[str, str] = {}
        for transcript in files:
            self.import_transcript_file(program, transcript, taking, kinds)
        target = options["path"] or ", ".join(map(str, default_transcript_folders(program)))
        outcome = taking.close(str(target), self._read.files, actor=system_actor("import"))
        if not options["dry_run"]:
            reading = self._read.add_refusals_and_build_report(files, outcome)
            name = SenderName(options["host"] or "", program.name)
            add_reading_to_transcript_sender(name, reading, now=taking.now)
        self.clear_transcript_progress_bar()
        if with_name:
            self.stdout.write(f"agent     {program.name}")
        self.print_transcript_outcome(outcome)

    def import_transcript_file(
        self, program: TranscriptFormat, file: TranscriptFile, taking: TranscriptImport, kinds: dict[str, str]
    ) -> None:
        reader = program.reader(file, kinds)
        number = 0
        try:
            for line in program.lines(file):
                number = line.number
                self.import_transcript_line(line, file, reader, taking)
        except OSError as problem:
            self._read.count_unreadable_line(f"unreadable file ({problem.strerror})", str(file.path))
        taking.add_transcript_line(reader.flush_pending_file_lines(taking.now), f"{file.path}:{number}", 0)
        self._read.files += 1

    def import_transcript_line(
        self, line: TranscriptLine, file: TranscriptFile, reader: LineReader, taking: TranscriptImport
    ) -> None:
        location = f"{file.path}:{line.number}"
        try:
            if line.body is None:
                raise UnknownLineKind(TOO_LONG)
            taking.add_transcript_line(reader.convert_line_to_events(line.body), location, line.size)
        except UnknownLineKind as problem:
            self._read.count_unreadable_line(str(problem) if line.is_complete else UNFINISHED, location)
        self._read.lines += 1
        self._read.bytes += line.size
        self.show_transcript_progress()

    def show_transcript_progress(self) -> None:
        read = self._read
        if time.monotonic() - read.shown_at < SHOWN_EVERY or not sys.stderr.isatty():
            return
        read.shown_at = time.monotonic()
        filled = BAR * read.bytes // max(read.of_bytes, 1)
        bar = "#" * filled + "." * (BAR - filled)
        sys.stderr.write(
            f"\r{bar} {read.files:,}/{read.of_files:,} files {read.bytes / 1e6:,.0f}/{read.of_bytes / 1e6:,.0f} MB"
            f" {read.lines:,} lines\x1b[K"
        )

    def clear_transcript_progress_bar(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")

    def print_transcript_outcome(self, outcome: Any) -> None:
        read = self._read
        rate = read.lines / max(time.monotonic() - read.began, 0.001)
        self.stdout.write(
            f"read      {read.files:,} files, {read.bytes / 1e6:,.1f} MB, {read.lines:,} lines ({rate:,.0f} a second)"
        )
        self.stdout.write(
            f"imported  {outcome.added:,} events ({outcome.messages:,} messages, {outcome.calls:,} calls) in"
            f" {outcome.sessions_made:,} new and {outcome.sessions_added_to:,} known sessions;"
            f" {outcome.input_tokens:,} tokens in, {outcome.output_tokens:,} out"
        )
        self.stdout.write(f"known     {outcome.known_count:,} events")
        kinds = [
            f"{number:,} lines: {kind}, first at {read.examples[kind]}"
            for kind, number in read.not_understood.most_common()
        ]
        for word, lines in (("left out", kinds), ("refused", outcome.refused)):
            for line in lines[:MOST_LISTED]:
                self.stdout.write(f"{word:<10}{line}")
            if len(lines) > MOST_LISTED:
                self.stdout.write(f"{word:<10}and {len(lines) - MOST_LISTED:,} more like these")


class TranscriptProgress:
    """How far the reading is, and what was not understood: how often by kind, and where first."""

    def __init__(self, of_bytes: int, of_files: int) -> None:
        self.of_bytes, self.of_files = of_bytes, of_files
        self.files = self.bytes = self.lines = 0
        self.began, self.shown_at = time.monotonic(), 0.0
        self.not_understood: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._unread: dict[tuple[str, str], UnreadPart] = {}

    def count_unreadable_line(self, kind: str, location: str) -> None:
        self.not_understood[kind] += 1
        self.examples.setdefault(kind, location)
        if kind != UNFINISHED:
            self.add_unreadable_part(location, kind)

    def add_unreadable_part(self, location: str, reason: str) -> None:
        """Count a line, or a file without a line's number, that could not be read."""
        file, _, number = location.rpartition(":")
        line = int(number) if file and number.isdigit() else None
        file = file if line is not None else location
        if part := self._unread.get((file, reason)):
            self._unread[file, reason] = replace(part, line_count=part.line_count + 1)
        elif len(self._unread) < MOST_UNREAD_PARTS:
            self._unread[file, reason] = UnreadPart(file, reason, line)

    def add_refusals_and_build_report(
        self, files: list[TranscriptFile], outcome: TranscriptOutcome
    ) -> TranscriptReading:
        """Return what came of reading `files`, with what of them was not understood or refused."""
        for refused in outcome.refused:
            location, _, reason = refused.partition(": ")
            self.add_unreadable_part(location, reason)
        return TranscriptReading(
            [str(file.path) for file in files],
            outcome.sessions_made,
            outcome.added,
            outcome.known_count,
            list(self._unread.values()),
        )


def default_transcript_folders(program: TranscriptFormat) -> list[Path]:
    """Return the folders where the agent keeps its transcripts, for whoever runs this."""
    home = Path(os.environ.get(program.home_in) or Path.home() / program.home)
    return [home / folder for folder in program.folders]


def find_agent_transcripts(program: TranscriptFormat, path: Path | None) -> list[TranscriptFile]:
    """Return the agent's transcripts: below `path`, which must be there, or where it keeps them."""
    try:
        if path is not None:
            return transcripts.find_transcripts(path.expanduser(), program.is_one)
        return [
            transcript
            for place in default_transcript_folders(program)
            if place.exists()
            for transcript in transcripts.find_transcripts(place, program.is_one)
        ]
    except SignalboxError as problem:
        raise CommandError(str(problem.detail)) from None
