"""One record of telemetry, a log record or a span, and the events that are made of it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from coordinator.dialects.hooks import SPENT, format_token_counts, text_origins_by_minute
from coordinator.lib import instants
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST

SOURCE = "telemetry"
EXACT_BELOW = 2**53  # whole numbers that a float tells apart
HIDDEN = {"<REDACTED>", "[REDACTED]"}  # what agents say in place of texts that they were not told to send


def format_nanoseconds(nano: int, now: datetime) -> str:
    """Return an instant of OTLP's; `now` where it has none."""
    try:
        return instants.format_canonical_instant(datetime.fromtimestamp(nano / 1e9, UTC) if nano else now)
    except (OverflowError, ValueError, OSError):
        return instants.format_canonical_instant(now)


@dataclass(frozen=True, slots=True)
class TelemetryRecord:
    """A log record or span: its name, attributes, those of its resource, and its beginning and end (ns)."""

    name: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    begins: int
    ends: int
    trace: str = ""
    span: str = ""
    failed: str | None = None
    parent: str = ""

    def text_attribute(self, *names: str) -> str | None:
        """Return the first of the attributes that holds a text."""
        for name in names:
            value = self.attributes.get(name)
            if isinstance(value, str) and value.strip():
                return value
        return None

    def number_attribute(self, *names: str) -> int | None:
        """Return the first of the attributes that holds a whole number, sent as a number or as a text."""
        for name in names:
            value = self.attributes.get(name)
            try:
                number = int(float(value)) if not isinstance(value, bool | None) else None
            except (TypeError, ValueError, OverflowError):
                continue
            if number is not None and 0 <= number < EXACT_BELOW:
                return number
        return None


@dataclass(frozen=True, slots=True)
class TelemetryEventBuilder:
    """Makes events of one record, all with its time and origin unless others are given.

    Beside their columns they keep its attributes, but for those of `left_out`.
    """

    record: TelemetryRecord
    session: str
    origin: str
    now: datetime
    left_out: frozenset[str] = frozenset()

    def build_telemetry_event(self, event_type: str, *, at: int | None = None, **values: Any) -> DedupedEvent:
        """Return an event."""
        record = self.record
        values.setdefault("origin", self.origin)
        return DedupedEvent(
            event_type=event_type,
            session_id="",
            timestamp=format_nanoseconds(record.begins if at is None else at, self.now),
            prompt_id=record.text_attribute("prompt.id"),
            source=SOURCE,
            extra={"record": record.name}
            | {name: one for name, one in record.attributes.items() if name not in self.left_out},
            **values,
        )

    def build_deduplicated_request(self, **values: Any) -> DedupedEvent:
        """Return a request to a model with the tokens that are given; left out where a transcript has reported it."""
        at = format_nanoseconds(self.record.begins, self.now)
        read = text_origins_by_minute(SPENT, self.session, format_token_counts(values), at, about=True)
        return self.build_telemetry_event(
            MODEL_REQUEST, model=self.record.text_attribute("model"), unless=read, **values
        )

    def build_request_with_costs(self, *, cached_inside: bool = False, **values: Any) -> DedupedEvent:
        """Return a request to a model with its tokens and costs."""
        record = self.record
        read = record.number_attribute("cache_read_tokens", "gen_ai.usage.cache_read.input_tokens")
        written = record.number_attribute("cache_creation_tokens", "gen_ai.usage.cache_creation.input_tokens")
        given = record.number_attribute(
            "input_tokens", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"
        )
        if cached_inside and given is not None:
            given = max(0, given - (read or 0) - (written or 0))
        return self.build_telemetry_event(
            MODEL_REQUEST,
            model=record.text_attribute("model", "gen_ai.response.model", "gen_ai.request.model"),
            input_tokens=given,
            output_tokens=record.number_attribute(
                "output_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"
            ),
            cache_read_tokens=read,
            cache_write_tokens=written,
            **values,
        )


Meaning = Callable[[TelemetryRecord, TelemetryEventBuilder], DedupedEvent | None]


def build_telemetry_call_result(
    record: TelemetryRecord, make: TelemetryEventBuilder, call_id: str | None, **values: Any
) -> DedupedEvent:
    """Return a call's result."""
    values.setdefault(
        "tool_name", record.text_attribute("tool_name", "function_name", "gen_ai.tool.name") or "tool"
    )
    return make.build_telemetry_event(
        "post_tool",
        tool_use_id=call_id,
        duration_ms=record.number_attribute("duration_ms"),
        **values,
    )
