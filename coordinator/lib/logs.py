"""The format of log lines: for people, or one JSON object a line; with the request's id, and never with a secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from coordinator.lib import trace


def escape_unprintable(text: str) -> str:
    """Return `text` with every character that draws nothing or ends a line as an escape, such as `\\x1b`.

    A path or a name of somebody else's could otherwise forge a line, or speak to the terminal that shows the log.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def indent_traceback(text: str) -> str:
    """Return a traceback whose lines can be taken for no record's first: its errors may quote anybody."""
    return "\n".join(f"    {escape_unprintable(line)}" for line in text.split("\n"))


Mask = Callable[[str], str]


class ReadableFormatter(logging.Formatter):
    """A line for people; the request's id, where there is one, in brackets. A traceback follows indented.

    `mask` takes the secrets out of a text.
    """

    def __init__(self, mask: Mask) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(request)s %(message)s")
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        record.request = f" [{current_trace_id}]" if (current_trace_id := trace.current_trace_id()) else ""
        return self._mask(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escape_unprintable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return indent_traceback(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return indent_traceback(super().formatStack(stack_info))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id, and what the record adds as `fields`.

    `mask` takes the secrets out of a text.
    """

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask(record.getMessage()),
            "process": record.process,
        }
        if current_trace_id := trace.current_trace_id():
            line["request_id"] = current_trace_id
        for name, value in getattr(record, "fields", {}).items():
            line[name] = self._mask(value) if isinstance(value, str) else value
        if record.exc_info:
            line["error"] = self._mask(self.formatException(record.exc_info))
        return json.dumps(line, default=str)
