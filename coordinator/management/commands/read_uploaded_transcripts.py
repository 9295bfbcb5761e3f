"""`manage.py read_uploaded_transcripts`: reads transcripts that a machine sent. The server starts it.

The archive comes on standard input, and what came of it goes to standard output as JSON. The process limits itself
before it looks at the first byte.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import zipfile
from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import transaction
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.actions.people.key_quotas import KeyQuotas
from coordinator.actions.sessions.transcript_senders import SenderName, add_reading_to_transcript_sender
from coordinator.actions.sessions.transcripts import TranscriptImport
from coordinator.dialects.transcripts import TRANSCRIPTS
from coordinator.identity.actors import key_actor_by_name
from coordinator.identity.keys import LOCAL_PROGRAM
from coordinator.importing import transcripts
from coordinator.importing.lines import UNFINISHED
from coordinator.management.commands import import_transcripts

MEMORY_BYTES = 2 << 30  # of address space, most of which is libraries
CPU_SECONDS = 90
MOST_FILES = 5_000
MOST_UNPACKED_BYTES = 512 << 20
CHUNK_BYTES = 1 << 20
MOST_PROBLEMS = 100


class Command(import_transcripts.Command):
    """As `import_transcripts`, for one agent's files in an archive, into sessions that a key may write into."""

    help = "Read transcripts that a machine sent. The server starts this; nobody else needs to."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agent", required=True)
        parser.add_argument("--host", required=True)
        parser.add_argument("--key", type=int, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        program = TRANSCRIPTS.get(options["agent"])
        if program is None:
            raise CommandError(
                f"No transcripts of {options['agent']!r} are known, but of: {', '.join(TRANSCRIPTS)}."
            )
        is_local = not settings.API_AUTH and options["key"] == LOCAL_PROGRAM.id
        identity = (
            LOCAL_PROGRAM if is_local else keys.require_valid_key_identity(options["key"], timezone.now())
        )
        with tempfile.TemporaryDirectory(dir=settings.DATA_DIR, prefix="transcripts-") as folder:
            unpack_transcript_zip_from_stdin(Path(folder))
            os.chdir(folder)  # so that places are named as on the machine
            transcript_files = transcripts.find_transcripts(Path("."), program.is_one)
            taking = TranscriptImport(
                now=timezone.now(),
                write=True,
                profile=program.name,
                agent_name=identity.agent_id or identity.agent_name_for_report(program.name) or program.name,
                hostname=options["host"] or None,
                key=identity,
            )
            self._read = import_transcripts.TranscriptProgress(
                sum(file.size for file in transcript_files), len(transcript_files)
            )
            kinds: dict[str, str] = {}
            for file in transcript_files:
                self.import_transcript_file(program, file, taking, kinds)
            read = self._read
            unread = {kind: count for kind, count in read.not_understood.items() if kind != UNFINISHED}
            outcome = taking.close(
                program.name,
                read.files,
                actor=key_actor_by_name(identity.name),
                not_understood=unread,
            )
            os.chdir("/")
        share = outcome.added / max(outcome.added + outcome.known_count, 1)
        name = SenderName(options["host"], program.name, identity.name)
        with transaction.atomic():
            add_reading_to_transcript_sender(
                name, read.add_refusals_and_build_report(transcript_files, outcome), now=taking.now
            )
            KeyQuotas().add_stored_bytes({f"key:{identity.id}": int(read.bytes * share)}, timezone.now())
        problems = [f"{read.examples[kind]}: {kind} ({count:,} lines)" for kind, count in unread.items()]
        answer = {
            "files": read.files,
            "events_added": outcome.added,
            "events_known": outcome.known_count,
            "sessions_made": outcome.sessions_made,
            "sessions_added_to": outcome.sessions_added_to,
            "problems": (problems + outcome.refused)[:MOST_PROBLEMS],
        }
        self.stdout.write(json.dumps(answer))


def unpack_transcript_zip_from_stdin(folder: Path) -> None:
    """Unpack the archive on standard input within its budget. Raises CommandError."""
    left_bytes = MOST_UNPACKED_BYTES
    try:
        with zipfile.ZipFile(sys.stdin.buffer) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) > MOST_FILES:
                raise CommandError(f"The archive has more than {MOST_FILES:,} files.")
            for member in members:
                parts = Path(member.filename).parts
                if Path(member.filename).is_absolute() or ".." in parts or "\x00" in member.filename:
                    raise CommandError("A file of the archive lies outside of it.")
                path = folder / member.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, path.open("xb") as target:
                    while chunk := source.read(CHUNK_BYTES):
                        left_bytes -= len(chunk)
                        if left_bytes < 0:
                            raise CommandError(
                                f"The archive unpacks to more than {MOST_UNPACKED_BYTES >> 20} MiB."
                            )
                        target.write(chunk)
                changed_at = datetime(*member.date_time, tzinfo=UTC).timestamp()
                os.utime(path, (changed_at, changed_at))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, EOFError) as problem:
        shutil.rmtree(folder, ignore_errors=True)
        raise CommandError(f"The archive cannot be read: {problem}") from None
