"""Lines of an agent's own transcript, sent along with the hook that ends its turn.

Codex's hooks report the last message of a turn only, and nothing of its limits, Gemini CLI's all messages as one text.
Both name their transcript, a file of one JSON document a line; the lines with the agent's messages, and the newest
with its limits, are put into the hook's body. The server knows each by its origin, so that lines which come again, or
are imported later, change nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FIELD = "signalbox_transcript"  # of the hook's body: the lines, as texts
LARGEST_TAIL = 4 << 20  # bytes at the end of a transcript that are looked through
WRITTEN_WITHIN_SECONDS = 4.0  # seen with Copilot CLI: 0.1, on a busy machine more than one
MOST_LINES_AFTER = 3  # lines of other hooks that run at the same time
LARGEST_LINES = 384 << 10  # bytes of lines that go along, so that the hook can still be kept (`spool`)


class TranscriptPatterns:
    """How an agent's transcript is read: `hooks` end a turn, `line` finds lines with its words, `prompt` what began it.

    Without a line that matches `prompt` nothing goes along; None where each line is complete in itself. Of a line's
    document only `fields` go along; without any the line goes as it is. Of the lines that `latest` finds, the newest
    goes along. `written` finds the line that an agent which
    writes behind its hooks puts at the end; it is waited for.
    """

    __slots__ = ("fields", "hooks", "latest", "line", "prompt", "written")

    def __init__(
        self,
        hooks: tuple[str, ...],
        line: bytes,
        prompt: bytes | None = None,
        *,
        fields: tuple[str, ...] = (),
        written: bytes | None = None,
        latest: bytes | None = None,
    ) -> None:
        self.hooks = hooks
        self.line = re.compile(line)
        self.prompt = re.compile(prompt) if prompt else None
        self.fields = fields
        self.written = re.compile(written) if written else None
        self.latest = re.compile(latest) if latest else None


def build_hook_body_with_transcript(
    body: bytes, payload: Mapping[str, Any], patterns: TranscriptPatterns
) -> bytes:
    """Return a hook's body with the lines of its transcript; as it is where there is none that can be read."""
    path = payload.get("transcript_path")
    end = body.rstrip()
    if not isinstance(path, str) or not os.path.isabs(path) or FIELD in payload or not end.endswith(b"}"):
        return body
    try:
        lines = select_transcript_lines(wait_for_transcript_tail(path, patterns), patterns)
    except (OSError, ValueError):
        return body
    if not lines:
        return body
    return end[:-1] + b', "' + FIELD.encode() + b'": ' + json.dumps(lines).encode() + b"}"


def wait_for_transcript_tail(path: str, patterns: TranscriptPatterns) -> list[bytes]:
    """Return the file's end as soon as it is written up to this hook, at last as it is. Raises OSError, ValueError."""
    deadline = time.monotonic() + WRITTEN_WITHIN_SECONDS
    while patterns.written is not None and time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            tail = read_transcript_tail(path)
            if any(patterns.written.search(line) for line in tail[-MOST_LINES_AFTER:]):
                return tail
        time.sleep(0.02)
    return read_transcript_tail(path)


def read_transcript_tail(path: str) -> list[bytes]:
    """Return the whole lines at the end of a file. Raises OSError, ValueError for what is no file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            raise ValueError(path)
        begin = max(0, file_status.st_size - LARGEST_TAIL)
        file.seek(begin)
        lines = file.read(LARGEST_TAIL).split(b"\n")
    return lines[1 if begin else 0 : -1]  # the last one may still be written


def select_transcript_lines(tail: list[bytes], patterns: TranscriptPatterns) -> list[str]:
    """Return the newest lines with the agent's words, in their order."""
    lines: list[str] = []
    size, begun, latest = 0, patterns.prompt is None, patterns.latest
    for line in reversed(tail):
        is_prompt = patterns.prompt is not None and patterns.prompt.search(line) is not None
        if latest is not None and latest.search(line):
            latest = None
        elif not is_prompt and not patterns.line.search(line):
            continue
        text = serialize_line_fields(line, patterns.fields)
        size += len(text)
        if size > LARGEST_LINES:
            break
        lines.append(text)
        begun = begun or is_prompt
    return lines[::-1] if begun else []


def serialize_line_fields(line: bytes, fields: tuple[str, ...]) -> str:
    if not fields:
        return line.decode()
    try:
        document = json.loads(line)
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(document, dict):
        raise ValueError("no object")
    return json.dumps({name: document[name] for name in fields if name in document})
