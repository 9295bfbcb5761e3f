"""Codex's telemetry (`[otel]` in its config.toml) as events.

Recorded with version 0.169.0: log records named `codex.*`, which name their session `conversation.id`, tell calls by
the ids that its hooks use, and tokens in a `codex.sse_event` of the kind response.completed. Of its spans, which are
about its own working, only `session_loop` says something here: its end is that of the session. The other decisions than
`approved` were only read.
"""

from __future__ import annotations

from coordinator.dialects.codex import SOURCE as PROGRAM
from coordinator.dialects.codex_transcripts import named_as_by_hooks, without_frame
from coordinator.dialects.hooks import (
    TYPED,
    heard,
    opened,
    origin,
    result_origin,
    said,
    summary_origin,
    told_then,
)
from coordinator.dialects.otlp_records import Maker, Meaning, Record, ended, moment_of
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST

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


def _prompt(record: Record, make: Maker) -> DedupedEvent | None:
    text = record.text("prompt")
    if text is None or text == "[REDACTED]" or text.startswith(TITLES):
        return None
    read = told_then(TYPED, make.session, text, moment_of(record.begins, make.now), about=True)
    unless = (heard(make.session, "prompts"), *read)
    return make.event("message", role="user", content=[said(text)], unless=unless)


def _tokens(record: Record, make: Maker) -> DedupedEvent | None:
    if record.text("event.kind") != "response.completed" or record.number("input_token_count") is None:
        return None
    read, written = record.number("cached_token_count") or 0, record.number("cache_write_token_count") or 0
    return make.request(
        input_tokens=max(0, (record.number("input_token_count") or 0) - read - written),
        output_tokens=record.number("output_token_count"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _result(record: Record, make: Maker) -> DedupedEvent | None:
    call_id = record.text("call_id")
    if call_id is None:
        return None
    tool, given = named_as_by_hooks(
        record.text("tool_name") or "tool", opened(record.attributes.get("arguments"))
    )
    worked = str(record.attributes.get("success")).lower() != "false"
    output, code = without_frame(record.text("output") or "")
    return ended(
        record,
        make,
        call_id,
        tool_name=tool,
        tool_input=given,
        tool_output=output if worked else None,
        error=None if worked else output or "The call failed.",
        exit_code=code,
        origin=summary_origin(make.session, call_id),
        claims=(told := (result_origin(make.session, call_id),)),
        unless=told,
    )


def _decision(record: Record, make: Maker) -> DedupedEvent | None:
    call_id = record.text("call_id")
    if call_id is None or (record.text("decision") or "").lower() not in NO:
        return None
    error = f"Rejected in the terminal ({record.text('source') or 'unknown'})."
    return ended(record, make, call_id, error=error, origin=result_origin(make.session, call_id))


def begins_session(record: Record) -> bool:
    """Say whether it is a prompt with which a person's session begins, recorded or not."""
    prompt = record.text("prompt") or ""
    return (
        record.name == f"{PREFIX}user_prompt"
        and not prompt.startswith(TITLES)
        and not _is_our_runner_s(record)
    )


def _is_our_runner_s(record: Record) -> bool:
    return record.text("originator") == OUR_RUNNER


def makes_no_session(record: Record, event: DedupedEvent) -> bool:
    """Say whether an event makes no session by itself.

    A request to a model follows a prompt, or names a conversation. A runner of ours tells of its sessions itself; what
    else its Codex reports are sub-agents of theirs.
    """
    return event.event_type == MODEL_REQUEST or _is_our_runner_s(record)


def session_end(span: Record) -> tuple[str, str] | None:
    """Return the session that ends with this span, and the origin of its end; None where none does."""
    session = span.text("thread_id") if span.name == "session_loop" else None
    return (session, origin(session, "session_loop", span.trace, span.span)) if session else None


LOGS: dict[str, Meaning] = {
    "user_prompt": _prompt,
    "sse_event": _tokens,
    "tool_result": _result,
    "tool_decision": _decision,
}
__all__ = ("LOGS", "PREFIX", "PROGRAM", "SERVICE", "session_end")
