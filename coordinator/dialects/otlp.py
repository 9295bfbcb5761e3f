"""OpenTelemetry as events: log records of agents that we know, and GenAI spans of any other agent.

An agent's hooks report what happens, its telemetry what it costs; what both report is written once, because both
dialects give it the same origin. Input tokens are kept without those read from a cache, as Claude Code counts them;
the GenAI conventions count them in, so they are taken out here. Who sends is known by `service.name`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from coordinator.dialects import claude_code, codex, codex_telemetry, gemini_telemetry
from coordinator.dialects.hooks import (
    assistant_text_origin,
    call_result_origin,
    make_event_origin,
    make_text_block,
    parse_embedded_json,
    replace_unstorable_text,
    wrap_as_object,
)
from coordinator.dialects.otlp_names import (
    AGENT_NAME,
    AGENT_OPERATIONS,
    CONVERSATION,
    TOOL_CALL_ID,
    TOOL_INPUT,
    TOOL_NAME,
    TOOL_OUTPUT,
    is_about_ai,
    read_span_texts,
    span_role,
)
from coordinator.dialects.otlp_records import (
    HIDDEN,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Meaning,
    TelemetryEventBuilder,
    TelemetryRecord,
    build_telemetry_call_result,
)
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import ANYWHERE, UNRECORDED_PROMPT, SessionLocation

# What its own hooks do, and its plugins: nothing that a person looks for in a session.
NOISE = ("hook_execution", "plugin_", "hook_registered", "skill_activated")
# What Claude Code reports while it starts, under an id that it gives up where it resumes a session.
STARTING = frozenset(
    {"managed_settings_resolved", "mcp_server_connection", "auth", "permission_mode_changed"}
)
MOST_NESTED = 100  # spans above one another that are looked at
MOST_NAMED, MOST_NAME = 5, 100  # of what was left out: names, and characters of each
# Agents whose log records are understood each in its own way.
BY_PREFIX = {one.PREFIX: one for one in (codex_telemetry, gemini_telemetry)}


@dataclass(frozen=True, slots=True)
class SessionReport:
    """What one record says: of which session (by its executor's id), running where, and as which events.

    The events' `session_id` is still to be filled in. One that is `only_known` makes no session. `thread` is the origin
    that another session has claimed where this is a sub-agent of it.
    """

    session: str
    where: SessionLocation
    events: list[DedupedEvent]
    only_known: bool = False
    thread: str | None = None


@dataclass(slots=True)
class ReadingNotes:
    """What of an export was left out, which its sender is told: attributes and spans, by their names."""

    attributes: Counter[str] = field(default_factory=Counter)
    spans: Counter[str] = field(default_factory=Counter)

    @property
    def message(self) -> str:
        """What was left out in words; nothing where all was understood."""
        parts = []
        for counts, value_kind in (
            (self.spans, "spans were not understood"),
            (self.attributes, "attributes could not be read"),
        ):
            if counts:
                names = ", ".join(name[:MOST_NAME] for name in list(counts)[:MOST_NAMED])
                parts.append(f"{counts.total()} {value_kind} and left out: {names}.")
        return " ".join(parts)


# --- reading what every signal shares ---------------------------------------------------------------------


def plain_otlp_value(any_value: Any) -> Any:
    """Return an OTLP value as plain JSON. Raises ValueError for a whole number that is none."""
    if not isinstance(any_value, dict):
        return None
    for kind, value in any_value.items():
        if kind == "intValue":
            return parse_otlp_integer(value)
        if kind == "arrayValue":
            return [plain_otlp_value(inner_value) for inner_value in otlp_list_field(value, "values")]
        if kind == "kvlistValue":
            return plain_otlp_attributes(otlp_list_field(value, "values"))
        return value
    return None


def parse_otlp_integer(value: Any) -> int:
    """Return a whole number, which JSON may have as a text. Raises ValueError for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("no whole number")
    return int(value)


def plain_otlp_attributes(pairs: Any, notes: ReadingNotes | None = None) -> dict[str, Any]:
    """Return OTLP's list of pairs as an object. One that cannot be read is left out, and noted."""
    plain_values: dict[str, Any] = {}
    for pair in pairs if isinstance(pairs, list) else []:
        if not isinstance(pair, dict) or "key" not in pair:
            continue
        name = str(pair["key"])
        try:
            plain_values[name] = plain_otlp_value(pair.get("value"))
        except (ValueError, TypeError, OverflowError):
            if notes is not None:
                notes.attributes[name] += 1
    return plain_values


def otlp_list_field(holder: Any, name: str) -> list[Any]:
    inner_values = holder.get(name) if isinstance(holder, dict) else None
    return inner_values if isinstance(inner_values, list) else []


def parse_nanoseconds(value: Any) -> int:
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        return 0


def iterate_otlp_records(
    request: Any, outer: str, middle: str, inner: str, notes: ReadingNotes
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each record of a request with its resource's attributes."""
    for group in otlp_list_field(replace_unstorable_text(request), outer):
        resource = (
            plain_otlp_attributes(otlp_list_field(group.get("resource"), "attributes"), notes)
            if isinstance(group, dict)
            else {}
        )
        for scope in otlp_list_field(group, middle):
            for record in otlp_list_field(scope, inner):
                if isinstance(record, dict):
                    yield resource, record


def telemetry_session_location(record: TelemetryRecord) -> SessionLocation:
    service = record.resource.get("service.name")
    host = record.resource.get("host.name")
    program = find_sending_program(record)
    name = record.text_attribute(*AGENT_NAME) or (str(service) if service else None)
    return SessionLocation(
        hostname=str(host) if host else None,
        agent_name=program or name,
        profile=program or (str(service) if service else "telemetry"),
    )


def find_sending_program(record: TelemetryRecord) -> str | None:
    """Return which of the agents that we know sends the record."""
    service = str(record.resource.get("service.name") or "")
    if service == claude_code.SOURCE or record.name.startswith("claude_code."):
        return claude_code.SOURCE
    programs = (module.PROGRAM for module in BY_PREFIX.values() if service.startswith(module.SERVICE))
    return next(programs, None)


# --- logs -------------------------------------------------------------------------------------------------


def read_otlp_logs(request: Any, now: datetime, notes: ReadingNotes | None = None) -> list[SessionReport]:
    """Return the session reports of an ExportLogsServiceRequest; records without a session are left out.

    `notes` gets what could not be read.
    """
    log_records = []
    notes = notes if notes is not None else ReadingNotes()
    for resource, record in iterate_otlp_records(request, "resourceLogs", "scopeLogs", "logRecords", notes):
        attributes = plain_otlp_attributes(otlp_list_field(record, "attributes"), notes)
        body = plain_otlp_attributes([{"key": "body", "value": record.get("body")}], notes).get("body")
        name = str(attributes.get("event.name") or record.get("eventName") or body or "")
        begins = parse_nanoseconds(record.get("timeUnixNano")) or parse_nanoseconds(
            record.get("observedTimeUnixNano")
        )
        telemetry_record = TelemetryRecord(name, attributes, resource, begins, begins)
        session = telemetry_record.text_attribute(*CONVERSATION)
        if session is None:
            continue
        events = build_log_events(telemetry_record, session, now)
        if events or (
            find_sending_program(telemetry_record) == codex.SOURCE
            and codex_telemetry.is_session_beginning(telemetry_record)
        ):
            thread = (
                codex.codex_thread_origin(session)
                if find_sending_program(telemetry_record) == codex.SOURCE
                else None
            )
            log_records.append(
                SessionReport(
                    session,
                    telemetry_session_location(telemetry_record),
                    events,
                    is_record_without_session(telemetry_record, events),
                    thread,
                )
            )
    return log_records


def is_record_without_session(record: TelemetryRecord, events: list[DedupedEvent]) -> bool:
    """Say whether a record makes no session: Claude Code reports its own start before it knows which one it resumes."""
    program = find_sending_program(record)
    if program == codex.SOURCE:
        return bool(events) and all(codex_telemetry.is_without_session(record, event) for event in events)
    return program == claude_code.SOURCE and record.name.removeprefix("claude_code.") in STARTING


def build_log_events(record: TelemetryRecord, session: str, now: datetime) -> list[DedupedEvent]:
    program = find_sending_program(record)
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
    return make.build_telemetry_event(record.name, error=record.text_attribute("error", "error_message"))


def ignore_log_record(_record: TelemetryRecord, _make: TelemetryEventBuilder) -> DedupedEvent | None:
    return None


def read_claude_prompt_log(record: TelemetryRecord, make: TelemetryEventBuilder) -> DedupedEvent | None:
    text, prompt_id = record.text_attribute("prompt"), record.text_attribute("prompt.id")
    if text is None or text in HIDDEN:
        size = record.number_attribute("prompt_length")
        text = (
            f"{UNRECORDED_PROMPT} of {size} characters, not recorded.)"
            if size is not None
            else f"{UNRECORDED_PROMPT}, not recorded.)"
        )
    key = make_event_origin(make.session, "prompt", prompt_id) if prompt_id else make.origin
    return make.build_telemetry_event("message", role="user", content=[make_text_block(text)], origin=key)


def read_claude_response_log(record: TelemetryRecord, make: TelemetryEventBuilder) -> DedupedEvent | None:
    text = record.text_attribute("response")
    if text is None or text in HIDDEN:
        return None
    key = assistant_text_origin(make.session, None, record.text_attribute("prompt.id"), text)
    return make.build_telemetry_event(
        "message",
        role="assistant",
        content=[make_text_block(text)],
        origin=key,
        model=record.text_attribute("model"),
    )


def read_claude_result_log(record: TelemetryRecord, make: TelemetryEventBuilder) -> DedupedEvent | None:
    call_id = record.text_attribute("tool_use_id")
    if call_id is None:
        return build_log_milestone(record, make)
    worked = str(record.attributes.get("success")).lower() != "false"
    error = None if worked else record.text_attribute("error", "error_type") or "The call failed."
    return build_telemetry_call_result(
        record, make, call_id, error=error, origin=call_result_origin(make.session, call_id)
    )


def read_claude_decision_log(record: TelemetryRecord, make: TelemetryEventBuilder) -> DedupedEvent | None:
    """A rejection becomes a result; no hook reports a rejection in the terminal."""
    call_id = record.text_attribute("tool_use_id")
    if record.text_attribute("decision") != "reject" or call_id is None:
        return None
    error = f"Rejected in the terminal ({record.text_attribute('source') or 'unknown'})."
    return build_telemetry_call_result(
        record, make, call_id, error=error, origin=call_result_origin(make.session, call_id)
    )


def read_claude_request_log(record: TelemetryRecord, make: TelemetryEventBuilder) -> DedupedEvent | None:
    request_id = record.text_attribute("request_id")
    key = make_event_origin(make.session, "request", request_id) if request_id else make.origin
    return make.build_request_with_costs(duration_ms=record.number_attribute("duration_ms"), origin=key)


_LOGS: dict[str, Meaning] = {
    "user_prompt": read_claude_prompt_log,
    "assistant_response": read_claude_response_log,
    "tool_result": read_claude_result_log,
    "tool_decision": read_claude_decision_log,
    "api_request": read_claude_request_log,
}


# --- traces -----------------------------------------------------------------------------------------------


def read_otlp_traces(request: Any, now: datetime, notes: ReadingNotes | None = None) -> list[SessionReport]:
    """Return the session reports of an ExportTraceServiceRequest; spans that are not an agent's are left out.

    `notes` gets what could not be read, and spans about agents or models that are not understood.
    """
    notes = notes if notes is not None else ReadingNotes()
    spans = [
        read_otlp_span(*otlp_record, notes)
        for otlp_record in iterate_otlp_records(request, "resourceSpans", "scopeSpans", "spans", notes)
    ]
    # Only some spans of a trace name the conversation; the others belong to it all the same.
    talks = {
        span.trace: span.text_attribute(*CONVERSATION) for span in spans if span.text_attribute(*CONVERSATION)
    }
    nesting = ModelSpanNesting(spans)
    span_records, ends = [], []
    for span in spans:
        session = span.text_attribute(*CONVERSATION) or talks.get(span.trace) or f"trace:{span.trace}"
        if events := build_span_events(span, session, nesting, now):
            span_records.append(SessionReport(session, telemetry_session_location(span), events))
        elif find_sending_program(span) is None and is_about_ai(span) and span_role(span) is None:
            notes.spans[span.name or "a span without a name"] += 1
        if end := find_trace_session_end(span, session, now):
            ends.append(end)
    return span_records + ends  # what a session's spans tell goes before its end


class ModelSpanNesting:
    """Which spans of an export are requests to a model that stand below one another: such count once.

    A framework has a span for a request to a model, and the library that it calls has another below it. The innermost
    one that has tokens counts: it ends first, so it is never sent after the others. Both may come in exports of their
    own, so the inner span claims all spans above it, and an outer one leaves its tokens out where it is claimed.
    """

    def __init__(self, spans: Sequence[TelemetryRecord]) -> None:
        self._parents = {(span.trace, span.span): span.parent for span in spans}
        counting = [span for span in spans if counts_model_tokens(span)]
        self._covered = {(span.trace, above) for span in counting for above in self.spans_above(span)}
        self._speaking = {(span.trace, span.span) for span in spans if has_own_words(span)}

    def spans_above(self, span: TelemetryRecord) -> list[str]:
        """Return the ids of the spans above a span, the nearest first, as far as they are in the export."""
        above: list[str] = []
        parent = span.parent
        while parent and parent not in above and len(above) < MOST_NESTED:
            above.append(parent)
            parent = self._parents.get((span.trace, parent), "")
        return above

    def is_covered(self, span: TelemetryRecord) -> bool:
        """Say whether a span below this one counts its tokens."""
        return (span.trace, span.span) in self._covered

    def is_spoken_for(self, span: TelemetryRecord) -> bool:
        """Say whether a span above this one says what was said to the model and by it."""
        return any((span.trace, above) in self._speaking for above in self.spans_above(span))

    def list_claimed_origins(self, span: TelemetryRecord) -> tuple[str, ...]:
        """Return the origins by which spans above this one, and this one, are known to be counted."""
        return (
            counted_span_origin(span.trace, "itself", span.span),
            *(counted_span_origin(span.trace, "below", above) for above in self.spans_above(span)),
        )

    def list_counted_origins(self, span: TelemetryRecord) -> tuple[str, ...]:
        """Return the origins by which a span's tokens are known to be counted already, below it or right above it."""
        own = counted_span_origin(span.trace, "below", span.span)
        return (own, counted_span_origin(span.trace, "itself", span.parent)) if span.parent else (own,)


def counts_model_tokens(span: TelemetryRecord) -> bool:
    """Say whether a span is a request to a model and has its tokens."""
    has_tokens = span.number_attribute(*INPUT_TOKENS) or span.number_attribute(*OUTPUT_TOKENS)
    return bool(has_tokens) and find_sending_program(span) is None and span_role(span) == "model"


def has_own_words(span: TelemetryRecord) -> bool:
    """Say whether messages are read from a span. An agent's repeats its requests', but the Vercel AI SDK's has more."""
    role = span_role(span)
    of_vercel = role == "agent" and any(name.startswith("ai.") for name in span.attributes)
    return (role == "model" or of_vercel) and any(read_span_texts(span))


def counted_span_origin(trace: str, where: str, span: str) -> str:
    return f"{ANYWHERE}{make_event_origin('model span', where, trace, span)}"


def find_trace_session_end(span: TelemetryRecord, session: str, now: datetime) -> SessionReport | None:
    """Return the end of a session that ends with this span; it makes no session of a trace that held nothing else.

    That is a root span's which runs an agent, or whose trace is all that there is of the session. A request to a model
    that stands by itself is one of several: its conversation goes on.
    """
    program, key = (
        find_sending_program(span),
        make_event_origin("span", span.trace, span.span, "session ends"),
    )
    own = codex_telemetry.ended_codex_session(span) if program == codex_telemetry.PROGRAM else None
    is_root = program is None and not span.parent and span.ends > 0
    of_agent = span.text_attribute("gen_ai.operation.name") in AGENT_OPERATIONS
    if own is not None:
        session, key = own
    elif not is_root or not (of_agent or session.startswith("trace:")):
        return None
    make = TelemetryEventBuilder(span, session, key, now)
    event = make.build_telemetry_event(
        "session_stop", at=span.ends, reason="its trace ended", error=span.failed
    )
    return SessionReport(session, telemetry_session_location(span), [event], only_known=True)


def read_otlp_span(resource: dict[str, Any], span: dict[str, Any], notes: ReadingNotes) -> TelemetryRecord:
    status = span.get("status") if isinstance(span.get("status"), dict) else {}
    failed = status.get("code") in {2, "STATUS_CODE_ERROR"} if status else False
    attributes = plain_otlp_attributes(otlp_list_field(span, "attributes"), notes)
    parent = str(span.get("parentSpanId") or "").lower()
    message = (status or {}).get("message") or attributes.get("error.type") or "The call failed."
    return TelemetryRecord(
        str(span.get("name") or ""),
        attributes,
        resource,
        parse_nanoseconds(span.get("startTimeUnixNano")),
        parse_nanoseconds(span.get("endTimeUnixNano")),
        str(span.get("traceId") or "").lower(),
        str(span.get("spanId") or "").lower(),
        str(message) if failed else None,
        parent if parent.strip("0") else "",
    )


def build_span_events(
    span: TelemetryRecord, session: str, nesting: ModelSpanNesting, now: datetime
) -> list[DedupedEvent]:
    make = TelemetryEventBuilder(span, session, make_event_origin("span", span.trace, span.span), now)
    took = max(0, span.ends - span.begins) // 1_000_000
    program = find_sending_program(span)
    if program is not None:  # the others' log records tell all that their spans do
        return build_claude_span_events(span, make, took) if program == claude_code.SOURCE else []
    role = span_role(span)
    if role == "tool":
        return build_tool_span_events(span, make, took)
    if role not in {"model", "agent"}:
        return []
    says = has_own_words(span) and not nesting.is_spoken_for(span)
    messages = list(read_span_messages(span, make)) if says else []
    if role == "agent" or nesting.is_covered(span):
        return messages
    usage = make.build_request_with_costs(
        cached_inside=True,
        duration_ms=took,
        at=span.ends or None,
        error=span.failed,
        claims=nesting.list_claimed_origins(span) if counts_model_tokens(span) else (),
        unless=nesting.list_counted_origins(span),
    )
    return [*messages, usage]


def build_claude_span_events(
    span: TelemetryRecord, make: TelemetryEventBuilder, took: int
) -> list[DedupedEvent]:
    """Of Claude Code's own spans, return only what its hooks and logs may not have reported."""
    call_id, request_id = (
        span.text_attribute("tool_use_id", "gen_ai.tool.call.id"),
        span.text_attribute("request_id"),
    )
    if span.name == "claude_code.tool" and call_id:
        key = call_result_origin(make.session, call_id)
        return [
            build_telemetry_call_result(
                span, make, call_id, error=span.failed, origin=key, at=span.ends or None
            )
        ]
    if span.name == "claude_code.llm_request" and request_id:
        return [
            make.build_request_with_costs(
                duration_ms=took, origin=make_event_origin(make.session, "request", request_id)
            )
        ]
    return []


def build_tool_span_events(
    span: TelemetryRecord, make: TelemetryEventBuilder, took: int
) -> list[DedupedEvent]:
    call: dict[str, Any] = {
        "tool_name": span.text_attribute(*TOOL_NAME) or span.name.removeprefix("execute_tool ") or "tool",
        "tool_input": wrap_as_object(parse_embedded_json(first_attribute(span, TOOL_INPUT))),
        "tool_use_id": span.text_attribute(*TOOL_CALL_ID) or f"span:{span.span}",
    }
    result = parse_embedded_json(first_attribute(span, TOOL_OUTPUT))
    return [
        make.build_telemetry_event(
            "pre_tool", origin=make_event_origin("span", span.trace, span.span, "begins"), **call
        ),
        make.build_telemetry_event(
            "post_tool", at=span.ends or None, tool_output=result, error=span.failed, duration_ms=took, **call
        ),
    ]


def first_attribute(span: TelemetryRecord, names: Sequence[str]) -> Any:
    return next((span.attributes[name] for name in names if name in span.attributes), None)


def read_span_messages(span: TelemetryRecord, make: TelemetryEventBuilder) -> Iterator[DedupedEvent]:
    """Yield the last message to the model, if a person wrote it, and the model's."""
    embedded_json, answered = read_span_texts(span)
    role, text = embedded_json[-1] if embedded_json else ("", "")
    if role == "user" and text:
        key = make_event_origin("span", span.trace, "asked", text)
        yield make.build_telemetry_event("message", role="user", content=[make_text_block(text)], origin=key)
    for number, answer in enumerate(answered):
        key = make_event_origin("span", span.trace, span.span, "answered", number)
        at = span.ends or None
        yield make.build_telemetry_event(
            "message", role="assistant", content=[make_text_block(answer)], origin=key, at=at
        )
