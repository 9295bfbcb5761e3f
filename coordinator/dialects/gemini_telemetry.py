"""Gemini CLI's telemetry (`telemetry` in its settings.json) as events.

Recorded with version 0.61.0: log records named `gemini_cli.*`, which name their session `session.id`. They give a call
no id and its hooks none either, so calls are told by telemetry only where no hook tells any of the session's. Its spans
tell the same again. Nothing tells a session's end. Rejections (`decision: reject`) and api_error were only read.
"""

from __future__ import annotations

from coordinator.dialects.hooks import ENDED, TYPED, as_object, call_text, heard, opened, said, told_then
from coordinator.dialects.otlp_records import Maker, Meaning, Record, ended, moment_of
from coordinator.sessions.events import DedupedEvent

PROGRAM = "gemini"
SERVICE = "gemini-cli"
PREFIX = "gemini_cli."
# What events have columns for, and whole requests and answers, which other records tell in parts.
TEXTS = frozenset({"prompt", "function_args", "request_text", "response_text"})


def _prompt(record: Record, make: Maker) -> DedupedEvent | None:
    text = record.text("prompt")
    if text is None:
        return None
    read = told_then(TYPED, make.session, text, moment_of(record.begins, make.now), about=True)
    unless = (heard(make.session, "prompts"), *read)
    return make.event("message", role="user", content=[said(text)], unless=unless)


def _tokens(record: Record, make: Maker) -> DedupedEvent | None:
    read = record.number("cached_content_token_count") or 0
    said_, thought = record.number("output_token_count") or 0, record.number("thoughts_token_count") or 0
    return make.request(
        input_tokens=max(0, (record.number("input_token_count") or 0) - read),
        output_tokens=said_ + thought,
        cache_read_tokens=read,
        cache_write_tokens=0,
        duration_ms=record.number("duration_ms"),
    )


def _call(record: Record, make: Maker) -> DedupedEvent | None:
    worked = str(record.attributes.get("success")).lower() != "false"
    error = None if worked else record.text("error", "error.message", "error_type") or "The call failed."
    if record.text("decision") == "reject":
        error = "Rejected in the terminal."
    given = opened(record.attributes.get("function_args"))
    text = call_text(record.text("function_name") or "tool", given)
    read = told_then(ENDED, make.session, text, moment_of(record.begins, make.now), about=True)
    unless = (heard(make.session, "calls"), *read)
    return ended(record, make, None, tool_input=as_object(given), error=error, unless=unless)


def _failed(record: Record, make: Maker) -> DedupedEvent | None:
    return make.event("api_error", error=record.text("error", "error.message") or "The request failed.")


LOGS: dict[str, Meaning] = {
    "user_prompt": _prompt,
    "api_response": _tokens,
    "api_error": _failed,
    "tool_call": _call,
}
