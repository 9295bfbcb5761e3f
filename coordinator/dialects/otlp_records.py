"""One record of telemetry, a log record or a span, and the events that are made of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from coordinator.dialects.hooks import SPENT, build_text_dedup_origins, build_token_counts_key
from coordinator.lib import instants
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST
from coordinator.usage.amounts import UsageDetail

SOURCE = "telemetry"
EXACT_BELOW = 2**53  # whole numbers that a float represents exactly
# The names under which emitters send a request's tokens; names of one row mean the same.
INPUT_TOKENS = (
    "input_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
    "ai.usage.inputTokens",
    "ai.usage.promptTokens",
)
OUTPUT_TOKENS = (
    "output_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
    "ai.usage.outputTokens",
    "ai.usage.completionTokens",
)
CACHE_READ_TOKENS = (
    "cache_read_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cache_read_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cache_read_input_tokens",
    "gen_ai.usage.input_tokens.cached",
    "gen_ai.usage.cached_input_tokens",
    "gen_ai.usage.cached_tokens",
    "llm.token_count.prompt_details.cache_read",
    "llm.usage.cache_read_input_tokens",
    "ai.usage.cachedInputTokens",
    "ai.usage.inputTokenDetails.cacheReadTokens",
)
CACHE_WRITE_TOKENS = (
    "cache_creation_tokens",
    "cache_write_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_write_input_tokens",
    "gen_ai.usage.cache_write_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "gen_ai.usage.details.cache_creation_input_tokens",
    "llm.token_count.prompt_details.cache_write",
    "llm.usage.cache_creation_input_tokens",
    "ai.usage.inputTokenDetails.cacheWriteTokens",
)
CACHE_WRITE_1H_TOKENS = (
    "gen_ai.usage.cache_creation.ephemeral_1h_input_tokens",
    "gen_ai.usage.details.ephemeral_1h_input_tokens",
)
REASONING_TOKENS = (
    "gen_ai.usage.reasoning.output_tokens",
    "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.details.reasoning_tokens",
    "gen_ai.usage.output_tokens.reasoning",
    "llm.token_count.completion_details.reasoning",
    "llm.usage.reasoning_tokens",
    "ai.usage.reasoningTokens",
)
WEB_SEARCHES = ("gen_ai.usage.web_search_requests", "gen_ai.usage.details.web_search_requests")
MODEL_NAME = (
    "model",
    "gen_ai.response.model",
    "gen_ai.request.model",
    "llm.model_name",
    "ai.response.model",
    "ai.model.id",
)
PROVIDER_NAME = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "ai.model.provider")
HIDDEN = {
    "<REDACTED>",
    "[REDACTED]",
}  # what agents send in place of texts that they were not configured to send


def format_epoch_nanoseconds(nano: int, now: datetime) -> str:
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
    scope: str = ""  # the library that made it
    events: tuple[
        tuple[str, dict[str, Any]], ...
    ] = ()  # what happened within a span, by name, with its fields

    def first_text_attribute(self, *names: str) -> str | None:
        """Return the first of the attributes that holds a text."""
        for name in names:
            value = self.attributes.get(name)
            if isinstance(value, str) and value.strip():
                return value
        return None

    def first_integer_attribute(self, *names: str) -> int | None:
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

    In addition to their columns they keep its attributes, but for those of `left_out`.
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
            timestamp=format_epoch_nanoseconds(record.begins if at is None else at, self.now),
            prompt_id=record.first_text_attribute("prompt.id"),
            source=SOURCE,
            extra={"record": record.name}
            | {
                name: attribute_value
                for name, attribute_value in record.attributes.items()
                if name not in self.left_out
            },
            **values,
        )

    def build_model_request_with_dedup(self, **values: Any) -> DedupedEvent:
        """Return a request to a model with the tokens that are given; left out where a transcript has reported it."""
        at = format_epoch_nanoseconds(self.record.begins, self.now)
        origins = build_text_dedup_origins(
            SPENT, self.session, build_token_counts_key(values), at, about=True
        )
        return self.build_telemetry_event(
            MODEL_REQUEST, model=self.record.first_text_attribute("model"), unless=origins, **values
        )

    def build_model_request_event(self, *, cached_inside: bool = False, **values: Any) -> DedupedEvent:
        """Return a request to a model with its tokens; `cached_inside`: the input counts those of caches in.

        Some emitters count caches separately all the same: then the input is smaller than the caches it would include.
        """
        record = self.record
        cached_tokens, written = (
            record.first_integer_attribute(*CACHE_READ_TOKENS),
            record.first_integer_attribute(*CACHE_WRITE_TOKENS),
        )
        input_tokens, cached = (
            record.first_integer_attribute(*INPUT_TOKENS),
            (cached_tokens or 0) + (written or 0),
        )
        if cached_inside and input_tokens is not None and input_tokens >= cached:
            input_tokens -= cached
        return self.build_telemetry_event(
            MODEL_REQUEST,
            model=record.first_text_attribute(*MODEL_NAME),
            input_tokens=input_tokens,
            output_tokens=record.first_integer_attribute(*OUTPUT_TOKENS),
            cache_read_tokens=cached_tokens,
            cache_write_tokens=written,
            usage=self.build_usage_detail(),
            **values,
        )

    def build_usage_detail(self) -> UsageDetail:
        """Return the record's details of its request other than the tokens."""
        record = self.record
        cost = record.attributes.get("cost_usd")
        speed = record.first_text_attribute("speed")
        return UsageDetail(
            provider=record.first_text_attribute(*PROVIDER_NAME),
            cache_write_1h_tokens=record.first_integer_attribute(*CACHE_WRITE_1H_TOKENS) or 0,
            reasoning_tokens=record.first_integer_attribute(*REASONING_TOKENS) or 0,
            web_searches=record.first_integer_attribute(*WEB_SEARCHES) or 0,
            speed=speed if speed == "fast" else None,
            service_tier=record.first_text_attribute(
                "gen_ai.openai.response.service_tier", "openai.response.service_tier"
            ),
            reported_cost=parse_dollar_amount(cost),
        )


def parse_dollar_amount(value: Any) -> float | None:
    """Return an amount of money, sent as a number or as a text; None for what is none."""
    try:
        dollars = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        return None
    return dollars if 0 < dollars < EXACT_BELOW else None


Meaning = Callable[[TelemetryRecord, TelemetryEventBuilder], DedupedEvent | None]


def build_telemetry_call_result(
    record: TelemetryRecord, make: TelemetryEventBuilder, call_id: str | None, **values: Any
) -> DedupedEvent:
    """Return a call's result."""
    values.setdefault(
        "tool_name", record.first_text_attribute("tool_name", "function_name", "gen_ai.tool.name") or "tool"
    )
    return make.build_telemetry_event(
        "post_tool",
        tool_use_id=call_id,
        duration_ms=record.first_integer_attribute("duration_ms"),
        **values,
    )
