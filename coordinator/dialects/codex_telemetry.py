"""Codex's telemetry (`[otel]` in its config.toml) as events.

Recorded with version 0.169.0: log records named `codex.*`, which name their session `conversation.id`, identify calls
by the ids that its hooks use, and have tokens in a `codex.sse_event` of the kind response.completed. Of its spans,
which are about its internals, only `session_loop` is used: its end is that of the session. Decisions other than
`approved` were only read.
"""

from __future__ import annotations

from coordinator.dialects.codex import SOURCE as PROGRAM
from coordinator.dialects.codex_transcripts import codex_output_and_exit_code, convert_codex_call_to_hook_form
from coordinator.dialects.hooks import (
    TYPED,
    build_text_dedup_origins,
    call_result_origin,
    hook_coverage_origin,
    make_event_origin,
    make_text_block,
    parse_embedded_json,
    result_summary_dedup_origin,
)
from coordinator.dialects.otlp_records import (
    Meaning,
    TelemetryEventBuilder,
    TelemetryRecord,
    build_telemetry_call_result,
    format_epoch_nanoseconds,
)
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST
from coordinator.usage.amounts import UsageDetail

SERVICE = "codex"  # codex_exec, codex_cli_rs and others
PREFIX = "codex."
TEXTS = frozenset({"prompt", "arguments", "output"})  # what events have columns for
NO = frozenset({"denied", "abort", "aborted", "rejected"})
# How a prompt begins by which Codex, or its adapter, has the model name a conversation, in a conversation of its own.
TITLES = (
    "Your task is to generate a very short title for a conversation",
    "Generate a concise, single-line task title of at most",
)
OUR_RUNNER = "signalbox"  # `originator` of what a runner of ours drives (runner.conversation)


def read_codex_prompt_log(record: TelemetryRecord, make: TelemetryEventBuilder) -> DedupedEvent | None:
    text = record.first_text_attribute("prompt")
    if text is None or text == "[REDACTED]" or text.startswith(TITLES):
        return None
    origins = build_text_dedup_origins(
        TYPED, make.session, text, format_epoch_nanoseconds(record.begins, make.now), about=True
    )
    unless = (hook_coverage_origin(make.session, "prompts"), *origins)
    return make.build_telemetry_event("message", role="user", content=[make_text_block(text)], unless=unless)


def build_event_from_tokens_log(record: TelemetryRecord, make: TelemetryEventBuilder) -> DedupedEvent | None:
    if (
        record.first_text_attribute("event.kind") != "response.completed"
        or record.first_integer_attribute("input_token_count") is None
    ):
        return None
    read, written = (
        record.first_integer_attribute("cached_token_count") or 0,
        record.first_integer_attribute("cache_write_token_count") or 0,
    )
    return make.build_model_request_with_dedup(
        input_tokens=max(0, (record.first_integer_attribute("input_token_count") or 0) - read - written),
        output_tokens=record.first_integer_attribute("output_token_count"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        usage=UsageDetail(
            provider="openai", reasoning_tokens=record.first_integer_attribute("reasoning_token_count") or 0
        ),
    )


def read_codex_result_log(record: TelemetryRecord, make: TelemetryEventBuilder) -> DedupedEvent | None:
    call_id = record.first_text_attribute("call_id")
    if call_id is None:
        return None
    tool, tool_input = convert_codex_call_to_hook_form(
        record.first_text_attribute("tool_name") or "tool",
        parse_embedded_json(record.attributes.get("arguments")),
    )
    worked = str(record.attributes.get("success")).lower() != "false"
    output, code = codex_output_and_exit_code(record.first_text_attribute("output") or "")
    return build_telemetry_call_result(
        record,
        make,
        call_id,
        tool_name=tool,
        tool_input=tool_input,
        tool_output=output if worked else None,
        error=None if worked else output or "The call failed.",
        exit_code=code,
        origin=result_summary_dedup_origin(make.session, call_id),
        claims=(result_origin := (call_result_origin(make.session, call_id),)),
        unless=result_origin,
    )


def build_rejection_event_from_decision_log(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    call_id = record.first_text_attribute("call_id")
    if call_id is None or (record.first_text_attribute("decision") or "").lower() not in NO:
        return None
    error = f"Rejected in the terminal ({record.first_text_attribute('source') or 'unknown'})."
    return build_telemetry_call_result(
        record, make, call_id, error=error, origin=call_result_origin(make.session, call_id)
    )


def is_codex_user_prompt_record(record: TelemetryRecord) -> bool:
    """Say whether it is a prompt with which a person's session begins, recorded or not."""
    prompt = record.first_text_attribute("prompt") or ""
    return (
        record.name == f"{PREFIX}user_prompt"
        and not prompt.startswith(TITLES)
        and not is_from_signalbox_runner(record)
    )


def is_from_signalbox_runner(record: TelemetryRecord) -> bool:
    return record.first_text_attribute("originator") == OUR_RUNNER


def is_codex_event_creating_no_session(record: TelemetryRecord, event: DedupedEvent) -> bool:
    """Say whether an event makes no session by itself.

    A request to a model follows a prompt, or names a conversation. A runner of ours reports its sessions itself; what
    else its Codex reports are sub-agents of theirs.
    """
    return event.event_type == MODEL_REQUEST or is_from_signalbox_runner(record)


def find_session_ended_by_span(span: TelemetryRecord) -> tuple[str, str] | None:
    """Return the session that ends with this span, and the origin of its end; None where none does."""
    session = span.first_text_attribute("thread_id") if span.name == "session_loop" else None
    return (session, make_event_origin(session, "session_loop", span.trace, span.span)) if session else None


LOGS: dict[str, Meaning] = {
    "user_prompt": read_codex_prompt_log,
    "sse_event": build_event_from_tokens_log,
    "tool_result": read_codex_result_log,
    "tool_decision": build_rejection_event_from_decision_log,
}
__all__ = ("LOGS", "PREFIX", "PROGRAM", "SERVICE", "find_session_ended_by_span")
