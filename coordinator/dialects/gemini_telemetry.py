"""Gemini CLI's telemetry (`telemetry` in its settings.json) as events.

Recorded with version 0.61.0: log records named `gemini_cli.*`, which name their session `session.id`. They give a call
no id and its hooks none either, so calls are taken from telemetry only where no hook reports any of the session's. Its
spans repeat the same. A session's end is not reported. Rejections (`decision: reject`) and api_error were only read.
"""

from __future__ import annotations

from coordinator.dialects.gemini_transcripts import GEMINI_COUNTS, normalize_gemini_tokens
from coordinator.dialects.hooks import (
    ENDED,
    TYPED,
    build_text_dedup_origins,
    format_call_text,
    hook_coverage_origin,
    make_text_block,
    parse_embedded_json,
    wrap_non_object_value,
)
from coordinator.dialects.otlp_records import (
    Meaning,
    TelemetryEventBuilder,
    TelemetryRecord,
    build_telemetry_call_result,
    format_epoch_nanoseconds,
)
from coordinator.sessions.events import DedupedEvent
from coordinator.usage.amounts import UsageDetail

PROGRAM = "gemini"
SERVICE = "gemini-cli"
PREFIX = "gemini_cli."
# Attributes with columns of their own, and whole requests and answers, which other records have in parts.
TEXTS = frozenset({"prompt", "function_args", "request_text", "response_text"})


def convert_gemini_prompt_log_to_event(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    text = record.first_text_attribute("prompt")
    if text is None:
        return None
    origins = build_text_dedup_origins(
        TYPED, make.session, text, format_epoch_nanoseconds(record.begins, make.now), about=True
    )
    unless = (hook_coverage_origin(make.session, "prompts"), *origins)
    return make.build_telemetry_event("message", role="user", content=[make_text_block(text)], unless=unless)


def convert_gemini_tokens_log_to_event(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    names = {name: "cached_content" if name == "cached" else name for name in GEMINI_COUNTS}
    token_counts = {
        name: record.first_integer_attribute(f"{theirs}_token_count") or 0 for name, theirs in names.items()
    }
    return make.build_model_request_with_dedup(
        **normalize_gemini_tokens(token_counts),
        duration_ms=record.first_integer_attribute("duration_ms"),
        usage=UsageDetail(
            provider="google", reasoning_tokens=token_counts["thoughts"], tool_tokens=token_counts["tool"]
        ),
    )


def convert_gemini_call_log_to_event(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    worked = str(record.attributes.get("success")).lower() != "false"
    error = (
        None
        if worked
        else record.first_text_attribute("error", "error.message", "error_type") or "The call failed."
    )
    if record.first_text_attribute("decision") == "reject":
        error = "Rejected in the terminal."
    embedded_json = parse_embedded_json(record.attributes.get("function_args"))
    text = format_call_text(record.first_text_attribute("function_name") or "tool", embedded_json)
    origins = build_text_dedup_origins(
        ENDED, make.session, text, format_epoch_nanoseconds(record.begins, make.now), about=True
    )
    unless = (hook_coverage_origin(make.session, "calls"), *origins)
    return build_telemetry_call_result(
        record, make, None, tool_input=wrap_non_object_value(embedded_json), error=error, unless=unless
    )


def convert_gemini_error_log_to_event(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    return make.build_telemetry_event(
        "api_error", error=record.first_text_attribute("error", "error.message") or "The request failed."
    )


LOGS: dict[str, Meaning] = {
    "user_prompt": convert_gemini_prompt_log_to_event,
    "api_response": convert_gemini_tokens_log_to_event,
    "api_error": convert_gemini_error_log_to_event,
    "tool_call": convert_gemini_call_log_to_event,
}
