"""OpenTelemetry's log records as events: those of agents that we know, and the messages of any other emitter.

An agent's hooks report what happens, its telemetry what it costs; what both report is written once, because both
dialects give it the same origin. Input tokens are kept without those read from a cache, as Claude Code counts them.
Who sends is known by `service.name`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from coordinator.dialects import claude_code, codex, codex_telemetry
from coordinator.dialects.hooks import (
    assistant_text_origin,
    call_result_origin,
    make_event_origin,
    make_text_block,
    parse_embedded_json,
    wrap_non_object_value,
)
from coordinator.dialects.otlp_common import (
    BY_PREFIX,
    OmittedRecordCounts,
    SessionReport,
    choose_fallback_session_id,
    convert_otlp_attributes_to_dict,
    find_agent_program_of_record,
    iterate_otlp_records,
    otlp_list_field,
    parse_nanoseconds_or_zero,
    telemetry_session_location,
)
from coordinator.dialects.otlp_messages import (
    ANSWER_EVENT,
    DETAILS_EVENT,
    MESSAGE_EVENTS,
    read_messages_to_model,
    read_model_answer_parts,
)
from coordinator.dialects.otlp_names import CONVERSATION, is_model_client_span
from coordinator.dialects.otlp_records import (
    HIDDEN,
    Meaning,
    TelemetryEventBuilder,
    TelemetryRecord,
    build_telemetry_call_result,
)
from coordinator.dialects.otlp_traces import iterate_model_message_events
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import UNRECORDED_PROMPT

# What its own hooks do, and its plugins: nothing that a person looks for in a session.
NOISE = ("hook_execution", "plugin_", "hook_registered", "skill_activated")
# What Claude Code reports while it starts, under an id that it gives up where it resumes a session.
STARTING = frozenset(
    {"managed_settings_resolved", "mcp_server_connection", "auth", "permission_mode_changed"}
)


def convert_otlp_logs_to_reports(
    request: Any, now: datetime, notes: OmittedRecordCounts | None = None
) -> list[SessionReport]:
    """Return the session reports of an ExportLogsServiceRequest; records without a session are left out.

    `notes` gets what could not be read.
    """
    reports: list[SessionReport] = []
    notes = notes if notes is not None else OmittedRecordCounts()
    spans: dict[tuple[str, str], list[TelemetryRecord]] = {}
    for resource, scope, fields in iterate_otlp_records(
        request, "resourceLogs", "scopeLogs", "logRecords", notes
    ):
        record = parse_log_record(resource, scope, fields, notes)
        if record.events and find_agent_program_of_record(record) is None:
            spans.setdefault((record.trace, record.span), []).append(record)
        elif report := convert_agent_log_to_report(record, now):
            reports.append(report)
    return reports + [convert_message_logs_to_report(records, now) for records in spans.values()]


def parse_log_record(
    resource: dict[str, Any], scope: str, fields: dict[str, Any], notes: OmittedRecordCounts
) -> TelemetryRecord:
    """Return a log record; one that is a message to a model or by it has it as its event."""
    attributes = convert_otlp_attributes_to_dict(otlp_list_field(fields, "attributes"), notes)
    body = convert_otlp_attributes_to_dict([{"key": "body", "value": fields.get("body")}], notes).get("body")
    name = str(attributes.get("event.name") or fields.get("eventName") or body or "")
    at = parse_nanoseconds_or_zero(fields.get("timeUnixNano")) or parse_nanoseconds_or_zero(
        fields.get("observedTimeUnixNano")
    )
    trace, span = str(fields.get("traceId") or "").lower(), str(fields.get("spanId") or "").lower()
    is_message = bool(trace and span) and (name in MESSAGE_EVENTS or name in {ANSWER_EVENT, DETAILS_EVENT})
    content = attributes | body if isinstance(body, dict) else attributes
    return TelemetryRecord(
        name,
        attributes,
        resource,
        at,
        at,
        trace,
        span,
        scope=scope,
        events=((name, content),) if is_message else (),
    )


def convert_agent_log_to_report(record: TelemetryRecord, now: datetime) -> SessionReport | None:
    session = record.first_text_attribute(*CONVERSATION)
    if session is None:
        return None
    program = find_agent_program_of_record(record)
    events = build_log_events(record, session, now)
    if not events and not (program == codex.SOURCE and codex_telemetry.is_codex_user_prompt_record(record)):
        return None
    return SessionReport(
        session,
        telemetry_session_location(record),
        events,
        is_log_creating_no_session(record, events),
        codex.codex_thread_dedup_origin(session) if program == codex.SOURCE else None,
    )


def convert_message_logs_to_report(records: list[TelemetryRecord], now: datetime) -> SessionReport:
    """Return the messages of one request to a model, which its emitter sends as log records of their own."""
    record = replace(records[-1], events=tuple(event for one in records for event in one.events))
    session = record.first_text_attribute(*CONVERSATION) or choose_fallback_session_id(record)
    make = TelemetryEventBuilder(record, session, make_event_origin("log", record.trace, record.span), now)
    messages = read_messages_to_model(record), read_model_answer_parts(record)
    events = list(
        iterate_model_message_events(record, make, *messages, with_calls=is_model_client_span(record))
    )
    return SessionReport(session, telemetry_session_location(record), events, trace=record.trace)


def is_log_creating_no_session(record: TelemetryRecord, events: list[DedupedEvent]) -> bool:
    """Say whether a record makes no session: Claude Code reports its own start before it knows which one it resumes."""
    program = find_agent_program_of_record(record)
    if program == codex.SOURCE:
        return bool(events) and all(
            codex_telemetry.is_codex_event_creating_no_session(record, event) for event in events
        )
    return program == claude_code.SOURCE and record.name.removeprefix("claude_code.") in STARTING


def build_log_events(record: TelemetryRecord, session: str, now: datetime) -> list[DedupedEvent]:
    program = find_agent_program_of_record(record)
    own = next((module for module in BY_PREFIX.values() if program == module.PROGRAM), None)
    if own is not None:
        meaning = own.LOGS.get(record.name.removeprefix(own.PREFIX), ignore_log_record)
    else:
        record = replace(record, name=record.name.removeprefix("claude_code."))
        if record.name.startswith(NOISE) or not record.name:
            return []
        meaning = _LOGS.get(record.name, build_log_milestone)
    sequence = record.attributes.get("event.sequence")
    # With its time: a program that is started again in its session counts from the beginning.
    key = make_event_origin(
        "log", session, record.name, sequence if sequence is not None else record.attributes, record.begins
    )
    left_out = own.TEXTS if own is not None else frozenset()
    event = meaning(record, TelemetryEventBuilder(record, session, key, now, left_out))
    return [] if event is None else [event]


def build_log_milestone(record: TelemetryRecord, make: TelemetryEventBuilder) -> DedupedEvent | None:
    return make.build_telemetry_event(
        record.name, error=record.first_text_attribute("error", "error_message")
    )


def ignore_log_record(_record: TelemetryRecord, _make: TelemetryEventBuilder) -> DedupedEvent | None:
    return None


def convert_claude_prompt_log_to_event(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    text, prompt_id = record.first_text_attribute("prompt"), record.first_text_attribute("prompt.id")
    if text is None or text in HIDDEN:
        size = record.first_integer_attribute("prompt_length")
        text = (
            f"{UNRECORDED_PROMPT} of {size} characters, not recorded.)"
            if size is not None
            else f"{UNRECORDED_PROMPT}, not recorded.)"
        )
    key = make_event_origin(make.session, "prompt", prompt_id) if prompt_id else make.origin
    return make.build_telemetry_event("message", role="user", content=[make_text_block(text)], origin=key)


def convert_claude_response_log_to_event(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    text = record.first_text_attribute("response")
    if text is None or text in HIDDEN:
        return None
    key = assistant_text_origin(make.session, None, record.first_text_attribute("prompt.id"), text)
    return make.build_telemetry_event(
        "message",
        role="assistant",
        content=[make_text_block(text)],
        origin=key,
        model=record.first_text_attribute("model"),
    )


def convert_claude_result_log_to_event(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    call_id = record.first_text_attribute("tool_use_id")
    if call_id is None:
        return build_log_milestone(record, make)
    worked = str(record.attributes.get("success")).lower() != "false"
    return build_telemetry_call_result(
        record,
        make,
        call_id,
        tool_input=wrap_non_object_value(parse_embedded_json(record.attributes.get("tool_input"))),
        error=None if worked else record.first_text_attribute("error", "error_type") or "The call failed.",
        origin=call_result_origin(make.session, call_id),
    )


def convert_claude_rejection_log_to_event(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    """A rejection becomes a result; no hook reports a rejection in the terminal."""
    call_id = record.first_text_attribute("tool_use_id")
    if record.first_text_attribute("decision") != "reject" or call_id is None:
        return None
    error = f"Rejected in the terminal ({record.first_text_attribute('source') or 'unknown'})."
    return build_telemetry_call_result(
        record, make, call_id, error=error, origin=call_result_origin(make.session, call_id)
    )


def convert_claude_request_log_to_event(
    record: TelemetryRecord, make: TelemetryEventBuilder
) -> DedupedEvent | None:
    request_id = record.first_text_attribute("request_id")
    key = make_event_origin(make.session, "request", request_id) if request_id else make.origin
    return make.build_model_request_event(
        duration_ms=record.first_integer_attribute("duration_ms"), origin=key
    )


_LOGS: dict[str, Meaning] = {
    "user_prompt": convert_claude_prompt_log_to_event,
    "assistant_response": convert_claude_response_log_to_event,
    "tool_result": convert_claude_result_log_to_event,
    "tool_decision": convert_claude_rejection_log_to_event,
    "api_request": convert_claude_request_log_to_event,
}
