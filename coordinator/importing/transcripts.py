"""Transcript files of coding agents on disk: which there are, and their lines one at a time, however long or broken.

The files are the agents' own and may grow while they are read: a last line without an end is left for later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coordinator.errors import NotFound

LONGEST_LINE = 20 * 1024 * 1024  # bytes; of a longer one the long texts are left out
LONGEST_TEXT = 1024 * 1024  # bytes of one text in a line that is longer: a picture has more
CHUNK_BYTES = 1024 * 1024
MOST_BYTES_OF_ABOUT = 64 * 1024


@dataclass(frozen=True, slots=True)
class TranscriptFile:
    """One file: of a session, or of one of its sub-agents (`agent`), which is next to it or in a folder of its own."""

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

    def read_text_from_grandparent_folder(self, name: str) -> str | None:
        """Return the text of a small file in the folder above this one's, where there is one."""
        try:
            with (self.path.parent.parent / name).open("rb") as file:
                return file.read(MOST_BYTES_OF_ABOUT).decode("utf-8", "replace").strip() or None
        except OSError:
            return None

    def read_subagent_kind(self) -> str | None:
        """Return the kind of the sub-agent where a file next to this one names it."""
        try:
            with self.path.with_suffix(".meta.json").open("rb") as file:
                kind = json.loads(file.read(MOST_BYTES_OF_ABOUT)).get("agentType")
        except (OSError, ValueError, AttributeError):
            return None
        return kind if isinstance(kind, str) and kind.strip() else None


def find_transcripts(folder: Path, is_one: Callable[[Path], bool]) -> list[TranscriptFile]:
    """Return the transcripts in a folder (`is_one`), or the one file: sessions before sub-agents, by their last change.

    So what a resumed session copied from an earlier one is met in the earlier one first. Raises NotFound.
    """
    if not folder.exists():
        raise NotFound(f"{folder} does not exist.")
    paths = sorted(path for path in folder.rglob("*") if is_one(path)) if folder.is_dir() else [folder]
    transcripts_found = [
        transcript for path in paths if (transcript := build_transcript_file_or_none(path)) is not None
    ]
    return sorted(transcripts_found, key=lambda one: (one.agent is not None, one.changed, str(one.path)))


def build_transcript_file_or_none(path: Path) -> TranscriptFile | None:
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
    """A line by its number, from 1: its bytes, None where it is too long; `is_complete` if it has an end."""

    number: int
    body: bytes | None
    size: int
    is_complete: bool


def iterate_transcript_lines(transcript: TranscriptFile) -> Iterator[TranscriptLine]:
    """Yield the file's lines that are not empty. Holds one of them at a time. Raises OSError."""
    with transcript.path.open("rb") as file:
        number = 0
        while body := file.readline(LONGEST_LINE):
            number += 1
            if body.endswith(b"\n") or len(body) < LONGEST_LINE:
                if body.strip():
                    yield TranscriptLine(number, body, len(body), body.endswith(b"\n"))
                continue
            shortener = TextShortener()
            shortener.feed_json_chunk(body)
            while not body.endswith(b"\n") and (body := file.readline(CHUNK_BYTES)):
                shortener.feed_json_chunk(body)
            yield TranscriptLine(
                number, shortener.shortened_json_line(), shortener.size, body.endswith(b"\n")
            )


def iterate_document_as_single_line(transcript: TranscriptFile) -> Iterator[TranscriptLine]:
    """Yield the file as one line, for a format that is one JSON document a session. Raises OSError."""
    with transcript.path.open("rb") as file:
        body = file.read(LONGEST_LINE)
        if len(body) < LONGEST_LINE:
            yield TranscriptLine(1, body, len(body), is_complete=True)
            return
        shortener = TextShortener()
        while body:
            shortener.feed_json_chunk(body)
            body = file.read(CHUNK_BYTES)
    yield TranscriptLine(1, shortener.shortened_json_line(), shortener.size, is_complete=True)


_TOKEN = re.compile(
    rb'[^"\\]+|\\u[0-9a-fA-F]{4}|(?P<unfinished>\\(?:u[0-9a-fA-F]{0,3})?\Z)|\\[\s\S]|"',
)


class TextShortener:
    """Replaces the long texts in JSON that is too large, while it is read, with a note of their length.

    Holds LONGEST_LINE bytes at most, however long the JSON is.
    """

    def __init__(self) -> None:
        self.size = 0
        self._out = bytearray()
        self._in_text = False
        self._text_bytes = self._left_out = 0
        self._escape = b""  # the beginning of an escape at the end of a chunk

    def feed_json_chunk(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.size += len(chunk)
        chunk, self._escape = self._escape + chunk, b""
        for match in _TOKEN.finditer(chunk):
            token = match.group()
            if match["unfinished"]:
                self._escape = token
            elif token == b'"':
                if self._in_text:
                    self._finish_string_with_omission_note()
                self._in_text = not self._in_text
                self._append_token_within_limit(token)
            elif self._in_text and (self._left_out or self._text_bytes + len(token) > LONGEST_TEXT):
                if not self._left_out:
                    self._drop_incomplete_character()
                self._left_out += len(token)
            else:
                self._text_bytes += len(token) if self._in_text else 0
                self._append_token_within_limit(token)

    def _finish_string_with_omission_note(self) -> None:
        if self._left_out:
            self._append_token_within_limit(f" (left out: {self._left_out:,} bytes)".encode())
        self._text_bytes = self._left_out = 0

    def _drop_incomplete_character(self) -> None:
        """Take back the first bytes of a character whose last ones are left out with the next chunk."""
        for length in range(1, min(4, len(self._out)) + 1):
            lead = self._out[-length]
            if lead & 0b1100_0000 != 0b1000_0000:  # no byte in the middle of a character
                if length < (4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1):
                    del self._out[-length:]
                    self._left_out += length
                return

    def _append_token_within_limit(self, token: bytes) -> None:
        if len(self._out) <= LONGEST_LINE:
            self._out += token

    def shortened_json_line(self) -> bytes | None:
        """Return the JSON without its long texts; None where it is too large all the same."""
        return bytes(self._out) if len(self._out) <= LONGEST_LINE else None
