"""Transcript files of coding agents on disk: which there are, and their lines one at a time, however long or broken.

The files are the agents' own and may grow while they are read: a last line without an end is left for later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coordinator.errors import NotFound

LONGEST_LINE = 20 * 1024 * 1024  # bytes; what is longer is passed over
MOST_BYTES_OF_ABOUT = 64 * 1024


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """One file: of a session, or of one of its sub-agents (`agent`), which lies beside it or in a folder of its own."""

    path: Path
    size: int
    changed: datetime
    agent: str | None = None

    @property
    def transcript_session_id(self) -> str:
        """The agent's id of the session, from the file's path; its lines may say otherwise."""
        if self.agent is None:
            return self.path.stem
        return self.path.parent.parent.name if self.path.parent.name == "subagents" else self.path.stem

    def read_sibling_file(self, name: str) -> str | None:
        """Return the text of a small file in the folder above this one's, where there is one."""
        try:
            with (self.path.parent.parent / name).open("rb") as file:
                return file.read(MOST_BYTES_OF_ABOUT).decode("utf-8", "replace").strip() or None
        except OSError:
            return None

    def read_agent_kind(self) -> str | None:
        """Return the kind of the sub-agent where a file beside this one names it."""
        try:
            with self.path.with_suffix(".meta.json").open("rb") as file:
                kind = json.loads(file.read(MOST_BYTES_OF_ABOUT)).get("agentType")
        except (OSError, ValueError, AttributeError):
            return None
        return kind if isinstance(kind, str) and kind.strip() else None


def find_transcripts(place: Path, is_one: Callable[[Path], bool]) -> list[TranscriptFile]:
    """Return the transcripts in a folder (`is_one`), or the one file: sessions before sub-agents, by their last change.

    So what a resumed session copied from an earlier one is met in the earlier one first. Raises NotFound.
    """
    if not place.exists():
        raise NotFound(f"{place} does not exist.")
    paths = sorted(path for path in place.rglob("*") if is_one(path)) if place.is_dir() else [place]
    found = [one for path in paths if (one := stat_transcript(path)) is not None]
    return sorted(found, key=lambda one: (one.agent is not None, one.changed, str(one.path)))


def stat_transcript(path: Path) -> TranscriptFile | None:
    try:
        about = path.stat()
    except OSError:
        return None
    if not path.is_file():
        return None
    agent = path.stem.removeprefix("agent-") if path.stem.startswith("agent-") else None
    return TranscriptFile(path, about.st_size, datetime.fromtimestamp(about.st_mtime, UTC), agent)


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A line by its number, from 1: its bytes, None where it is longer than LONGEST_LINE; `whole` if it has an end."""

    number: int
    body: bytes | None
    size: int
    whole: bool


def iterate_transcript_lines(transcript: TranscriptFile) -> Iterator[TranscriptLine]:
    """Yield the file's lines that are not empty. Holds one of them at a time. Raises OSError."""
    with transcript.path.open("rb") as file:
        number = 0
        while body := file.readline(LONGEST_LINE):
            number += 1
            size, whole, fits = len(body), body.endswith(b"\n"), True
            while not whole and (more := file.readline(LONGEST_LINE)):
                size, whole, fits = size + len(more), more.endswith(b"\n"), False
            if not fits:
                yield TranscriptLine(number, None, size, whole)
            elif body.strip():
                yield TranscriptLine(number, body, size, whole)


def iterate_whole_document(transcript: TranscriptFile) -> Iterator[TranscriptLine]:
    """Yield the file as one line, for a format that is one JSON document a session. Raises OSError."""
    with transcript.path.open("rb") as file:
        body = file.read(LONGEST_LINE + 1)
    fits = len(body) <= LONGEST_LINE
    yield TranscriptLine(1, body if fits else None, len(body) if fits else transcript.size, whole=True)
