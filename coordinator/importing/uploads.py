"""Reading the transcripts that another machine sent: in a child process with limits, one at a time on this server.

The archive is foreign in every byte. The child (`manage.py read_uploaded_transcripts`) unpacks it within a budget and
writes what is new; this process only passes bytes on, and ends a child that takes too long.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import tempfile
from typing import Any

from django.conf import settings

from coordinator.errors import ServiceBusy, UnprocessableRequest
from coordinator.lib import installation

ZIP_BEGINS = b"PK"
CHILD_SECONDS = 120  # after which it is ended; a batch of `signalbox import` takes some seconds
RETRY_AFTER_SECONDS = 2
LARGEST_ANSWER = 1 << 20
LONGEST_PROBLEM = 300


def read_uploaded_transcripts(
    archive: bytes, *, agent: str, hostname: str | None, key_id: int
) -> dict[str, Any]:
    """Return what came of an archive: counts, and `problems`. Raises UnprocessableRequest, ServiceBusy."""
    if not archive.startswith(ZIP_BEGINS):
        raise UnprocessableRequest(
            "The body must be a zip archive of transcripts, as `signalbox import` sends it."
        )
    with (settings.DATA_DIR / "transcripts.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceBusy(
                "Transcripts of another machine are being read.", retry_after=RETRY_AFTER_SECONDS
            ) from None
        return run_transcript_import_process(
            archive, ["--agent", agent, "--host", hostname or "", "--key", str(key_id)]
        )


def run_transcript_import_process(archive: bytes, options: list[str]) -> dict[str, Any]:
    command = [*installation.management_command_argv_prefix(), "read_uploaded_transcripts", *options]
    with (
        tempfile.TemporaryFile(dir=settings.DATA_DIR) as body,
        tempfile.TemporaryFile(dir=settings.DATA_DIR) as answer,
    ):
        body.write(archive)
        body.seek(0)
        try:
            done = subprocess.run(  # noqa: S603 - ours
                command, stdin=body, stdout=answer, stderr=subprocess.PIPE, timeout=CHILD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise UnprocessableRequest(
                f"Reading these transcripts took longer than {CHILD_SECONDS} s. What was read until then is kept."
            ) from None
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [
                "it ended without a message"
            ]
            problem = lines[-1].removeprefix("CommandError: ")[:LONGEST_PROBLEM]
            raise UnprocessableRequest(f"These transcripts could not be read: {problem}")
        answer.seek(0)
        outcome: dict[str, Any] = json.loads(answer.read(LARGEST_ANSWER))
        return outcome
