"""`signalbox import`: send what the agents on this machine have written to the server, which adds what is new to it.

What was sent is noted next to the connection (`sent_transcripts.json`), so that a file is sent again only when it has
changed. The server knows each event, so a file that is sent twice adds nothing twice.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import socket
import sqlite3
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from coordinator.client import settings
from coordinator.client.connecting import http_requests
from coordinator.client.settings import ClientSettings, NotConnected
from coordinator.client.transcript_locations import TRANSCRIPT_PLACES, AgentTranscriptLocation

BATCH_BYTES, BATCH_FILES = 8 << 20, 500  # before compression
LARGEST_ARCHIVE = 24 << 20  # bytes that the server takes
REFUSED_FILE_STATUSES = frozenset({400, 413, 422})  # the archive cannot be taken; another one may
ANSWER_WAIT_SECONDS = 150.0
WATCH_EVERY_SECONDS = 10.0
MOST_LISTED = 20
REPORT_EVERY_SECONDS = 60.0  # with --watch, to show that it runs
MOST_REPORTED_PROBLEMS = 500  # of one agent; as many as the server takes
STATE_FILE = "sent_transcripts.json"
WRONG = 1

Stamp = list[int]  # a file's size and time of change, as it was sent


@dataclass
class ChangedTranscript:
    """A transcript that is new or has changed: its path from the agent's home on, and in full."""

    name: str
    path: str
    stamp: Stamp


@dataclass
class SentTotals:
    """What came of an import, over all its batches."""

    files: int = 0
    events_added: int = 0
    events_known: int = 0
    sessions_made: int = 0
    sessions_added_to: int = 0
    problems: list[str] = field(default_factory=list)

    def add_counts_of_server_answer(self, answer: dict[str, Any]) -> None:
        for name in ("events_added", "events_known", "sessions_made", "sessions_added_to"):
            setattr(self, name, getattr(self, name) + int(answer.get(name, 0)))
        self.problems += [str(problem) for problem in answer.get("problems", [])]


def run(arguments: Sequence[str]) -> int:
    """Send transcripts once, or again and again with --watch; return the exit code."""
    parser = build_import_parser()
    args = parser.parse_args(list(arguments))
    if unknown := [name for name in args.agents if name not in TRANSCRIPT_PLACES]:
        parser.error(f"no transcripts of {unknown[0]!r} are known, but of: {', '.join(TRANSCRIPT_PLACES)}")
    try:
        connection = settings.resolve_client_settings()
        sender = TranscriptUploader(connection, args.agents or list(TRANSCRIPT_PLACES))
        return (
            sender.watch_and_send_transcripts()
            if args.watch
            else sender.confirm_and_send_new_transcripts(dry_run=args.dry_run, confirmed=args.yes)
        )
    except (NotConnected, http_requests.ServerRequestFailed) as problem:
        sys.stderr.write(f"{problem}\n")
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("\nStopped. What was sent is kept, and not sent again.\n")
    return WRONG


def build_import_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="signalbox import",
        description="Send the sessions that agents on this machine have written. Shows first what would be sent.",
    )
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="only those of these agents")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be sent")
    parser.add_argument("--yes", action="store_true", help="do not ask before sending")
    parser.add_argument("--watch", action="store_true", help="keep sending as they grow, until Ctrl-C")
    return parser


class TranscriptUploader:
    """Sends to one server what it has not been sent yet."""

    def __init__(self, connection: ClientSettings, agents: list[str]) -> None:
        self.connection = connection
        self.agents = agents
        self.state_path = os.path.join(connection.server_state_folder, STATE_FILE)
        self.sent: dict[str, Stamp] = load_sent_file_stamps(self.state_path)
        # Not noted in the file: the next import tries these again, and this one only once they have changed.
        self.refused: dict[str, Stamp] = {}
        self.totals = SentTotals()
        self.files: dict[str, list[ChangedTranscript]] = {}  # by agent: all that are on the machine
        self.unsent: dict[str, str] = {}  # by path: why it was not sent
        self.reported_at: float | None = None
        self.is_status_new = False  # something was sent, or refused, that is not reported yet

    def confirm_and_send_new_transcripts(self, *, dry_run: bool, confirmed: bool) -> int:
        changed = {
            agent: self.list_changed_and_count_unchanged(TRANSCRIPT_PLACES[agent]) for agent in self.agents
        }
        for agent, (changed_files, unchanged) in changed.items():
            if changed_files or unchanged:
                size = sum(file.stamp[0] for file in changed_files)
                sys.stdout.write(
                    f"{agent:<12} {len(changed_files):,} files to send ({size / 1e6:,.1f} MB), "
                    f"{unchanged:,} sent already\n"
                )
        if not any(changed_files for changed_files, _ in changed.values()):
            sys.stdout.write("There is nothing to send.\n")
            return 0
        if dry_run:
            sys.stdout.write("Nothing was sent (--dry-run).\n")
            return 0
        if not confirmed:
            sys.stdout.write(f"Send this to {self.connection.url}? [y/N] ")
            sys.stdout.flush()
            if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
                sys.stdout.write("Nothing was sent.\n")
                return WRONG
        try:
            for agent, (changed_files, _) in changed.items():
                self.send_files(agent, changed_files)
        finally:
            self.post_import_status(is_watching=False)
        self.print_import_totals()
        return 0

    def watch_and_send_transcripts(self) -> int:
        """Send what has changed, every few seconds. A server that is away is tried again."""
        sys.stdout.write(f"Sends what changes to {self.connection.url}. Ctrl-C stops it.\n")
        sys.stdout.flush()
        try:
            while True:
                for agent in self.agents:
                    changed_files, _ = self.list_changed_and_count_unchanged(TRANSCRIPT_PLACES[agent])
                    if not changed_files:
                        continue
                    try:
                        self.send_files(agent, changed_files)
                    except http_requests.ServerRequestFailed as problem:
                        if problem.status in {401, 403}:
                            raise
                        sys.stderr.write(f"{problem}\n")
                        continue
                    self.print_import_totals()
                    self.totals = SentTotals()
                self.post_import_status_when_due()
                time.sleep(WATCH_EVERY_SECONDS)
        finally:
            self.post_import_status(is_watching=False)

    def post_import_status_when_due(self) -> None:
        """Report what has changed at once, and each minute that this runs."""
        is_due = self.reported_at is None or time.monotonic() - self.reported_at >= REPORT_EVERY_SECONDS
        if is_due or self.is_status_new:
            self.post_import_status(is_watching=True)

    def post_import_status(self, *, is_watching: bool) -> None:
        """Report how many files there are and which could not be sent. A server that does not take it is no problem."""
        agents = []
        for agent, files in self.files.items():
            unsent = [file for file in files if file.path in self.unsent]
            problems = [
                {"file": file.name[:4_096], "reason": self.unsent[file.path][:1_000]}
                for file in unsent[:MOST_REPORTED_PROBLEMS]
            ]
            waiting = sum(self.sent.get(file.path) != file.stamp for file in files)
            if files:
                agents.append({"agent": agent, "files": len(files), "waiting": waiting, "problems": problems})
        self.reported_at, self.is_status_new = time.monotonic(), False
        if not agents:
            return
        body = {"host": socket.gethostname(), "is_watching": is_watching, "agents": agents}
        with contextlib.suppress(http_requests.ServerRequestFailed):
            http_requests.send_server_request(
                self.connection.url, "/api/transcripts", self.connection.key, body
            )

    def list_changed_and_count_unchanged(
        self, transcript_place: AgentTranscriptLocation
    ) -> tuple[list[ChangedTranscript], int]:
        """Return the files that are new or have changed, oldest first, and how many others there are.

        Oldest first: what a resumed session copied from an earlier one is met in the earlier one first.
        """
        changed_files, unchanged = [], 0
        files = self.files[transcript_place.name] = []
        for name, path in transcript_place.iterate_files(os.environ):
            try:
                about = os.stat(path)
            except OSError:
                continue
            stamp = [about.st_size, about.st_mtime_ns]
            if path.endswith(".db"):
                with contextlib.suppress(OSError):
                    stamp[1] = max(stamp[1], os.stat(f"{path}-wal").st_mtime_ns)
            file = ChangedTranscript(name, path, stamp)
            files.append(file)
            if self.sent.get(path) == stamp:
                unchanged += 1
            elif self.refused.get(path) != stamp:
                changed_files.append(file)
        return sorted(changed_files, key=lambda file: (file.stamp[1], file.path)), unchanged

    def send_files(self, agent: str, changed_files: list[ChangedTranscript]) -> None:
        """Send files in batches, and note what the server has taken after each."""
        sent_bytes, all_bytes = 0, sum(file.stamp[0] for file in changed_files)
        for batch in iterate_transcript_file_batches(changed_files):
            self.print_upload_progress(agent, sent_bytes, all_bytes)
            self.send_transcripts_as_archive(agent, batch)
            save_sent_file_stamps(self.state_path, self.sent)
            sent_bytes += sum(file.stamp[0] for file in batch)
        self.print_upload_progress(agent, None, all_bytes)

    def send_transcripts_as_archive(self, agent: str, batch: list[ChangedTranscript]) -> None:
        """Send files in one archive. One that cannot be read is named, and tried again with the next import.

        Of an archive that the server refuses each file is sent by itself, so that one file keeps no other back.
        """
        archive, unread = zip_transcripts_and_list_unread(batch)
        for path, problem in unread.items():
            self.record_unsent_file_problem(path, problem)
        batch = [file for file in batch if file.path not in unread]
        if not batch:
            return
        if len(archive) > LARGEST_ARCHIVE:
            if len(batch) > 1:
                self.send_transcripts_one_by_one(agent, batch)
                return
            self.mark_file_as_refused(
                batch[0],
                "too large to send. Copy it to the server, and run there:"
                f" signalbox manage import_transcripts {agent} FILE",
            )
            return
        try:
            self.totals.add_counts_of_server_answer(self.post_archive_until_server_ready(agent, archive))
        except http_requests.ServerRequestFailed as refusal:
            if refusal.status not in REFUSED_FILE_STATUSES:
                raise
            if len(batch) > 1:
                self.send_transcripts_one_by_one(agent, batch)
            else:
                self.mark_file_as_refused(batch[0], str(refusal))
            return
        for file in batch:
            self.unsent.pop(file.path, None)
        self.is_status_new = True
        self.totals.files += len(batch)
        self.sent |= {file.path: file.stamp for file in batch}

    def send_transcripts_one_by_one(self, agent: str, batch: list[ChangedTranscript]) -> None:
        for file in batch:
            self.send_transcripts_as_archive(agent, [file])

    def mark_file_as_refused(self, file: ChangedTranscript, problem: str) -> None:
        """Name a file that cannot be sent, and do not count it as sent."""
        self.record_unsent_file_problem(file.path, problem)
        self.refused[file.path] = file.stamp

    def record_unsent_file_problem(self, path: str, problem: str) -> None:
        self.totals.problems.append(f"{path}: {problem}")
        self.is_status_new = self.is_status_new or self.unsent.get(path) != problem
        self.unsent[path] = problem

    def post_archive_until_server_ready(self, agent: str, archive: bytes) -> dict[str, Any]:
        """Return what the server says of a batch; wait where it is busy. Raises ServerRequestFailed."""
        path = f"/api/transcripts/{agent}?host={quote(socket.gethostname(), safe='')}"
        request = urllib.request.Request(  # noqa: S310 - http or https, as `connect` checked
            self.connection.url + path,
            data=archive,
            headers={"Authorization": f"Bearer {self.connection.key}", "Content-Type": "application/zip"},
        )
        while True:
            try:
                with http_requests.build_url_opener(self.connection.url).open(
                    request, timeout=ANSWER_WAIT_SECONDS
                ) as answer:
                    return dict(json.loads(answer.read(http_requests.LARGEST)))
            except urllib.error.HTTPError as refusal:
                with refusal:
                    busy_seconds = refusal.headers.get("Retry-After", "") if refusal.code == 503 else ""
                    if not (busy_seconds.isdigit() and int(busy_seconds) <= 60):
                        raise http_requests.ServerRequestFailed(
                            http_requests.describe_http_error(refusal), refusal.code
                        ) from None
                time.sleep(int(busy_seconds))
            except (urllib.error.URLError, OSError, ValueError) as problem:
                raise http_requests.ServerRequestFailed(
                    f"{self.connection.url} does not answer: {problem}."
                ) from None

    def print_upload_progress(self, agent: str, sent_bytes: int | None, all_bytes: int) -> None:
        if not sys.stderr.isatty():
            return
        line = (
            ""
            if sent_bytes is None
            else f"{agent}: {sent_bytes / 1e6:,.0f} of {all_bytes / 1e6:,.0f} MB sent"
        )
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()

    def print_import_totals(self) -> None:
        totals = self.totals
        sys.stdout.write(
            f"Sent {totals.files:,} files: {totals.events_added:,} new events in {totals.sessions_made:,} new and"
            f" {totals.sessions_added_to:,} known sessions; {totals.events_known:,} events were known.\n"
        )
        for problem in totals.problems[:MOST_LISTED]:
            sys.stdout.write(
                f"not read: {''.join(sign if sign.isprintable() else ' ' for sign in problem)}\n"
            )
        if len(totals.problems) > MOST_LISTED:
            sys.stdout.write(f"not read: and {len(totals.problems) - MOST_LISTED:,} more\n")
        sys.stdout.flush()


def iterate_transcript_file_batches(
    changed_files: list[ChangedTranscript],
) -> Iterator[list[ChangedTranscript]]:
    """Yield files together up to a size; a large one alone."""
    batch: list[ChangedTranscript] = []
    size = 0
    for file in changed_files:
        if batch and (size + file.stamp[0] > BATCH_BYTES or len(batch) >= BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.stamp[0]
    if batch:
        yield batch


# What readers look up next to a transcript: the kind of a sub-agent, and a project's folder.
COMPANIONS = ("{stem}.meta.json", "{folder}/../.project_root", "{folder}/../../.project_root")


def zip_transcripts_and_list_unread(batch: list[ChangedTranscript]) -> tuple[bytes, dict[str, str]]:
    """Return the files, and their companion files, as a zip archive, and why files of the batch are not in it.

    One that has gone is left out without a word.
    """
    own, unread = {file.path for file in batch}, dict[str, str]()
    files = {file.name: file.path for file in batch}
    for file in batch:
        for pattern in COMPANIONS:
            name, path = (
                os.path.normpath(pattern.format(stem=where.rpartition(".")[0], folder=os.path.dirname(where)))
                for where in (file.name, file.path)
            )
            if os.path.isfile(path):
                files[name.replace(os.sep, "/")] = path
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files.items():
            try:
                changed_at = max(os.stat(path).st_mtime, 315_532_800)  # zip knows no time before 1980
                info = zipfile.ZipInfo(name, time.gmtime(changed_at)[:6])
                archive.writestr(info, read_transcript_or_database_copy(path), zipfile.ZIP_DEFLATED)
            except FileNotFoundError:
                continue
            except (OSError, sqlite3.Error) as problem:
                if path in own:
                    unread[path] = f"cannot be read now ({problem})"
    return buffer.getvalue(), unread


def read_transcript_or_database_copy(path: str) -> bytes:
    """Return a file's bytes; of a database that is in use a copy's. Raises OSError, sqlite3.Error."""
    if not path.endswith(".db"):
        with open(path, "rb") as file:
            return file.read()
    with tempfile.TemporaryDirectory(prefix="signalbox-") as folder:
        copy = os.path.join(folder, "copy.db")
        with (
            contextlib.closing(
                sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=30)
            ) as source,
            contextlib.closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        with open(copy, "rb") as file:
            return file.read()


def load_sent_file_stamps(path: str) -> dict[str, Stamp]:
    try:
        with open(path, encoding="utf-8") as file:
            stamps = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def save_sent_file_stamps(path: str, stamps: dict[str, Stamp]) -> None:
    settings.make_private_folder(os.path.dirname(path))
    temporary_path = f"{path}.{os.getpid()}"
    with open(temporary_path, "w", encoding="utf-8") as file:
        json.dump(stamps, file)
    os.replace(temporary_path, path)
