"""How log lines look: for people, or one JSON object a line; with the request's id, and never with a secret."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from coordinator import trace

MASK = "***"
# What may stand in a line by mistake: our keys, a password in an address, a header's or query's secret.
_SECRETS = (
    (re.compile(r"\bsbx_[A-Za-z0-9_-]{6,}"), f"sbx_{MASK}"),
    (re.compile(r"(?<=://)[^\s/?#:@]{0,200}:[^\s/?#@]{1,200}@"), f"{MASK}@"),
    (re.compile(r"(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{6,}"), rf"\1 {MASK}"),
    (
        re.compile(r"(?i)\b((?:api_?key|token|password|secret|cookie)['\"]?\s*[=:]\s*['\"]?)[^\s&'\",;]+"),
        rf"\1{MASK}",
    ),
)


def without_secrets(text: str) -> str:
    """Return `text` with what looks like a credential masked."""
    for pattern, mask in _SECRETS:
        text = pattern.sub(mask, text)
    return text


class Readable(logging.Formatter):
    """A line for people; the request's id, where there is one, in brackets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(request)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.request = f" [{found}]" if (found := trace.current()) else ""
        return without_secrets(super().format(record))


class Json(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id, and what the record adds as `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            "process": record.process,
        }
        if found := trace.current():
            line["request_id"] = found
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, default=str)
