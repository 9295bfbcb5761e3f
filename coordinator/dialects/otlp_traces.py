"""OpenTelemetry's spans as events: of Claude Code, and of any agent that sends GenAI spans under one of many names.

A request to a model becomes its tokens, and what was said to the model and by it; a tool's span becomes a call and its
result; an agent's span ends its turn. What a span does not hold is looked for in the others of the same export: a
tool's input in the answer that asked for it, its result in the next request. The GenAI conventions count cached tokens
into the input, so they are taken out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from coordinator.dialects import claude_code, codex_telemetry
from coordinator.dialects.hooks import (
    call_result_origin,
    make_event_origin,
    make_text_block,
    parse_embedded_json,
    wrap_non_object_value,
)
from coordinator.dialects.otlp_common import (
    OmittedRecordCounts,
    SessionReport,
    build_trace_session_id,
    choose_fallback_session_id,
    convert_otlp_attributes_to_dict,
    find_agent_program_of_record,
    iterate_otlp_records,
    otlp_list_field,
    parse_nanoseconds_or_zero,
    telemetry_session_location,
    trace_origin,
)
from coordinator.dialects.otlp_messages import (
    CALL,
    RESULT,
    TEXT,
    SpokenPart,
    read_messages_to_model,
    read_model_answer_parts,
    read_tool_span_input_and_output,
    trailing_user_text,
    unwrap_tool_result,
)
from coordinator.dialects.otlp_names import (
    AGENT_NAME,
    CONVERSATION,
    TOOL_CALL_ID,
    TOOL_INPUT,
    TOOL_NAME,
    TOOL_OUTPUT,
    UNKNOWN_CALL_IDS,
    classify_span_role,
    is_agent_span,
    is_ai_span,
    is_model_client_span,
    vercel_operation_name_or_empty,
)
from coordinator.dialects.otlp_records import (
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    TelemetryEventBuilder,
    TelemetryRecord,
    build_telemetry_call_result,
)
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.omissions import OmissionKind, TelemetryEmitter
from coordinator.sessions.reports import ANYWHERE, TURN_END

CLAUDE_EXECUTION = "claude_code.tool.execution"
MAX_NESTED_SPANS = 100  # spans above one another that are looked at
MAX_SPAN_EVENTS = 1_000  # of one span; the last ones are read


def convert_otlp_traces_to_reports(
    request: Any, now: datetime, notes: OmittedRecordCounts | None = None
) -> list[SessionReport]:
    """Return the session reports of an ExportTraceServiceRequest; spans that are not an agent's are left out.

    `notes` gets what could not be read, and spans about agents or models that are not understood.
    """
    notes = notes if notes is not None else OmittedRecordCounts()
    spans = [
        parse_otlp_span(*otlp_record, notes)
        for otlp_record in iterate_otlp_records(request, "resourceSpans", "scopeSpans", "spans", notes)
    ]
    # Only some spans of a trace name the conversation; the others belong to it all the same.
    conversations = {
        span.trace: span.first_text_attribute(*CONVERSATION)
        for span in spans
        if span.first_text_attribute(*CONVERSATION)
    }
    tree = SpanTree(spans)
    reports, ends = [], []
    # Tools first: the messages of a request say less of a call than the span of the tool.
    for span in sorted(spans, key=lambda span: classify_span_role(span) != "tool"):
        session = (
            span.first_text_attribute(*CONVERSATION)
            or conversations.get(span.trace)
            or choose_fallback_session_id(span)
        )
        if events := build_span_events(span, session, tree, now):
            where = telemetry_session_location(span, tree.find_root_agent_name(span))
            reports.append(SessionReport(session, where, events, trace=span.trace))
            if session != build_trace_session_id(span.trace):
                events[0].claims += (trace_origin(span.trace),)
        elif (
            find_agent_program_of_record(span) is None
            and is_ai_span(span)
            and classify_span_role(span) is None
        ):
            emitter = TelemetryEmitter(str(span.resource.get("service.name") or ""), span.scope)
            notes.add_omission(OmissionKind.SPAN, span.name or "a span without a name", emitter)
        if end := session_end_report_or_none(span, session, now):
            ends.append(end)
    return reports + ends  # what a session's spans report goes before its end


def parse_otlp_span(
    resource: dict[str, Any], scope: str, span: dict[str, Any], notes: OmittedRecordCounts
) -> TelemetryRecord:
    """Return a span as a record. What its error says is taken from its status, else from the exception it reports."""
    status = span.get("status") if isinstance(span.get("status"), dict) else {}
    failed = status.get("code") in {2, "STATUS_CODE_ERROR"} if status else False
    attributes = convert_otlp_attributes_to_dict(otlp_list_field(span, "attributes"), notes)
    events = tuple(
        (str(event.get("name")), convert_otlp_attributes_to_dict(otlp_list_field(event, "attributes"), notes))
        for event in otlp_list_field(span, "events")[-MAX_SPAN_EVENTS:]
        if isinstance(event, dict)
    )
    exceptions = [fields.get("exception.message") for name, fields in events if name == "exception"]
    message = (
        (status or {}).get("message")
        or next(filter(None, exceptions), None)
        or attributes.get("error.type")
        or "The call failed."
    )
    parent = str(span.get("parentSpanId") or "").lower()
    set_langsmith_token_attributes(attributes)
    return TelemetryRecord(
        str(span.get("name") or ""),
        attributes,
        resource,
        parse_nanoseconds_or_zero(span.get("startTimeUnixNano")),
        parse_nanoseconds_or_zero(span.get("endTimeUnixNano")),
        str(span.get("traceId") or "").lower(),
        str(span.get("spanId") or "").lower(),
        str(message) if failed else None,
        parent if parent.strip("0") else "",
        scope,
        events,
    )


def set_langsmith_token_attributes(attributes: dict[str, Any]) -> None:
    """Give a span of LangSmith's the details of its tokens under the names of the conventions."""
    usage = parse_embedded_json(attributes.get("langsmith.metadata.usage_metadata"))
    if not isinstance(usage, dict):
        return
    for group, name, attribute in (
        ("input_token_details", "cache_read", "gen_ai.usage.cache_read.input_tokens"),
        ("input_token_details", "cache_creation", "gen_ai.usage.cache_creation.input_tokens"),
        ("output_token_details", "reasoning", "gen_ai.usage.reasoning.output_tokens"),
    ):
        details = usage.get(group)
        if isinstance(details, dict) and name in details:
            attributes.setdefault(attribute, details[name])


class SpanTree:
    """The spans of an export: their hierarchy, their messages, and which calls their answers ask for.

    A framework has a span for a request to a model, and the library that it calls has another below it. The innermost
    one that has tokens counts: it ends first, so it is never sent after the others. Both may come in exports of their
    own, so the inner span claims all spans above it, and an outer one leaves its tokens out where it is claimed. So it
    is with what is said.
    """

    def __init__(self, spans: Sequence[TelemetryRecord]) -> None:
        self._parents = {(span.trace, span.span): span.parent for span in spans}
        self._agents = {
            (span.trace, span.span): name
            for span in spans
            if classify_span_role(span) == "agent" and (name := span.first_text_attribute(*AGENT_NAME))
        }
        self._agent_by_trace: dict[str, str] = {}
        for span in spans:
            name = self._agents.get((span.trace, span.span))
            above = self.list_ancestor_span_ids(span)
            if name and not any((span.trace, parent) in self._agents for parent in above):
                self._agent_by_trace.setdefault(span.trace, name)
        for span in spans:  # LangChain names its agent so alone
            if not span.parent and span.first_text_attribute("openinference.span.kind") == "AGENT":
                self._agent_by_trace.setdefault(span.trace, span.name)
        counting = [span for span in spans if has_model_request_tokens(span)]
        self._covered = {
            (span.trace, above) for span in counting for above in self.list_ancestor_span_ids(span)
        }
        self._messages = {(span.trace, span.span): read_span_input_output_messages(span) for span in spans}
        speaking = [span for span in spans if any(self._messages[span.trace, span.span])]
        self._repeating = {
            (span.trace, above) for span in speaking for above in self.list_ancestor_span_ids(span)
        }
        # By trace and tool, the calls that answers ask for, in order; and the results of calls, by trace and id.
        self._calls: dict[tuple[str, str], list[tuple[SpokenPart, bool]]] = {}
        # The errors of Claude Code's calls are on a span below theirs.
        self._failures = {
            (span.trace, span.parent): error
            for span in spans
            if span.name == CLAUDE_EXECUTION and (error := span.first_text_attribute("error"))
        }
        self._results: dict[tuple[str, str], Any] = {}
        for span in sorted(spans, key=lambda span: span.ends):
            to_model, of_model = self._messages[span.trace, span.span]
            if classify_span_role(span) == "model":
                is_client = is_model_client_span(span)
                for part in of_model:
                    if part.kind == CALL:
                        self._calls.setdefault((span.trace, part.tool_name), []).append((part, is_client))
                for part in list_trailing_tool_results(to_model):
                    self._results[span.trace, part.call_id] = part.value

    def list_ancestor_span_ids(self, span: TelemetryRecord) -> list[str]:
        """Return the ids of the spans above a span, the nearest first, as far as they are in the export."""
        above: list[str] = []
        parent = span.parent
        while parent and parent not in above and len(above) < MAX_NESTED_SPANS:
            above.append(parent)
            parent = self._parents.get((span.trace, parent), "")
        return above

    def find_root_agent_name(self, span: TelemetryRecord) -> str | None:
        """Return the name of the agent that a span's trace is of: the one that no other has called."""
        return self._agent_by_trace.get(span.trace)

    def are_tokens_counted_below_span(self, span: TelemetryRecord) -> bool:
        """Say whether a span below this one counts its tokens."""
        return (span.trace, span.span) in self._covered

    def input_output_messages_unless_repeated(
        self, span: TelemetryRecord
    ) -> tuple[list[SpokenPart], list[SpokenPart]]:
        """Return what was said to a model and by it in a span, unless a span below it says so."""
        return (
            ([], []) if (span.trace, span.span) in self._repeating else self._messages[span.trace, span.span]
        )

    def find_subagent_name_of_span(self, span: TelemetryRecord) -> str | None:
        """Return the name of the agent that a span is of, where another agent has called that one."""
        agents = [
            name
            for above in (span.span, *self.list_ancestor_span_ids(span))
            if (name := self._agents.get((span.trace, above)))
        ]
        return agents[0] if any(name != agents[0] for name in agents) else None

    def claim_requested_call_of_span(
        self, span: TelemetryRecord, tool: str, call_id: str | None
    ) -> tuple[SpokenPart, bool] | None:
        """Return the call that an answer asked for and this tool's span is of; and whether a client's span has it.

        That is the one with its id; else the first of the tool's that no other span has taken.
        """
        calls = self._calls.get((span.trace, tool), [])
        by_id = (number for number, (part, _) in enumerate(calls) if part.call_id == call_id)
        number = next(by_id, None if call_id or not calls else 0)
        return None if number is None else calls.pop(number)

    def find_tool_result_of_call(self, span: TelemetryRecord, call_id: str) -> Any:
        """Return the result of a call that a later request gave to the model."""
        return self._results.get((span.trace, call_id))

    def find_claude_call_failure(self, span: TelemetryRecord) -> str | None:
        """Return what a call of Claude Code failed with, as the span of its execution has it."""
        return self._failures.get((span.trace, span.span)) or span.failed

    def list_origins_of_repeating_spans(self, span: TelemetryRecord) -> tuple[str, ...]:
        """Return the origins by which spans above this one are known to repeat what it says."""
        return tuple(repeating_span_origin(span.trace, above) for above in self.list_ancestor_span_ids(span))

    def build_counted_span_origins(self, span: TelemetryRecord) -> tuple[str, ...]:
        """Return the origins by which spans above this one, and this one, are known to be counted."""
        return (
            span_tokens_counted_origin(span.trace, "itself", span.span),
            *(
                span_tokens_counted_origin(span.trace, "below", above)
                for above in self.list_ancestor_span_ids(span)
            ),
        )

    def list_origins_of_counted_tokens(self, span: TelemetryRecord) -> tuple[str, ...]:
        """Return the origins by which a span's tokens are known to be counted already, below it or right above it."""
        own = span_tokens_counted_origin(span.trace, "below", span.span)
        return (own, span_tokens_counted_origin(span.trace, "itself", span.parent)) if span.parent else (own,)


def has_model_request_tokens(span: TelemetryRecord) -> bool:
    """Say whether a span is a request to a model and has its tokens."""
    has_tokens = span.first_integer_attribute(*INPUT_TOKENS) or span.first_integer_attribute(*OUTPUT_TOKENS)
    return (
        bool(has_tokens)
        and find_agent_program_of_record(span) is None
        and classify_span_role(span) == "model"
    )


def span_tokens_counted_origin(trace: str, where: str, span: str) -> str:
    return f"{ANYWHERE}{make_event_origin('model span', where, trace, span)}"


def repeating_span_origin(trace: str, span: str) -> str:
    return make_event_origin("said below", trace, span)


def read_span_input_output_messages(span: TelemetryRecord) -> tuple[list[SpokenPart], list[SpokenPart]]:
    """Return what was said to a model and by it. Of agents' spans only the Vercel AI SDK's add something."""
    if find_agent_program_of_record(span) is not None or not (
        classify_span_role(span) == "model" or vercel_operation_name_or_empty(span)
    ):
        return [], []
    return read_messages_to_model(span), read_model_answer_parts(span)


def session_end_report_or_none(span: TelemetryRecord, session: str, now: datetime) -> SessionReport | None:
    """Return the end of a session that ends with this span; it makes no session of a trace that held nothing else.

    Such a span is a root span that runs an agent, or whose trace is the whole session. A request to a model without a
    parent is one of several: its conversation goes on.
    """
    program, key = (
        find_agent_program_of_record(span),
        make_event_origin("span", span.trace, span.span, "session ends"),
    )
    own = codex_telemetry.find_session_ended_by_span(span) if program == codex_telemetry.PROGRAM else None
    is_root = program is None and not span.parent and span.ends > 0
    if own is not None:
        session, key = own
    elif not is_root or not (is_agent_span(span) or session == build_trace_session_id(span.trace)):
        return None
    make = TelemetryEventBuilder(span, session, key, now)
    event = make.build_telemetry_event(
        "session_stop", at=span.ends, reason="its trace ended", error=span.failed
    )
    return SessionReport(
        session, telemetry_session_location(span), [event], only_known=True, trace=span.trace
    )


def build_span_events(
    span: TelemetryRecord, session: str, tree: SpanTree, now: datetime
) -> list[DedupedEvent]:
    make = TelemetryEventBuilder(span, session, make_event_origin("span", span.trace, span.span), now)
    took = max(0, span.ends - span.begins) // 1_000_000
    program = find_agent_program_of_record(span)
    if program is not None:  # the others' log records report all that their spans do
        return build_claude_span_events(span, make, tree, took) if program == claude_code.SOURCE else []
    role = classify_span_role(span)
    if role == "tool":
        events = build_tool_span_events(span, make, tree, took)
    elif role in {"model", "agent"}:
        to_model, of_model = tree.input_output_messages_unless_repeated(span)
        with_calls = is_model_client_span(span) or not span.parent
        events = list(iterate_model_message_events(span, make, to_model, of_model, with_calls=with_calls))
        for event in events:
            event.claims += tree.list_origins_of_repeating_spans(span)
            event.unless += (repeating_span_origin(span.trace, span.span),)
        if role == "model" and not tree.are_tokens_counted_below_span(span):
            events.append(build_span_model_request_event(span, make, tree, took))
    else:
        return []
    subagent = tree.find_subagent_name_of_span(span)
    if subagent is not None:
        if role == "agent" and span.ends > 0:
            events.append(make.build_telemetry_event(TURN_END, at=span.ends, error=span.failed))
        for event in events:
            event.subagent = subagent
    return events


def build_span_model_request_event(
    span: TelemetryRecord, make: TelemetryEventBuilder, tree: SpanTree, took: int
) -> DedupedEvent:
    return make.build_model_request_event(
        cached_inside=True,
        duration_ms=took,
        at=span.ends or None,
        error=span.failed,
        claims=tree.build_counted_span_origins(span) if has_model_request_tokens(span) else (),
        unless=tree.list_origins_of_counted_tokens(span),
    )


def build_claude_span_events(
    span: TelemetryRecord, make: TelemetryEventBuilder, tree: SpanTree, took: int
) -> list[DedupedEvent]:
    """Of Claude Code's own spans, return only what its hooks and logs may not have reported."""
    call_id, request_id = (
        span.first_text_attribute("tool_use_id", "gen_ai.tool.call.id"),
        span.first_text_attribute("request_id"),
    )
    if span.name == "claude_code.tool" and call_id:
        return [
            build_telemetry_call_result(
                span,
                make,
                call_id,
                tool_input=read_claude_span_input(span),
                tool_output=read_claude_span_output(span),
                error=tree.find_claude_call_failure(span),
                origin=call_result_origin(make.session, call_id),
                at=span.ends or None,
            )
        ]
    if span.name == "claude_code.llm_request" and request_id:
        return [
            make.build_model_request_event(
                duration_ms=took, origin=make_event_origin(make.session, "request", request_id)
            )
        ]
    return []


def read_claude_span_input(span: TelemetryRecord) -> dict[str, Any] | None:
    """Return the part of a call's input that is on Claude Code's span of it: a command, or a file's path."""
    fields = {
        "command": span.first_text_attribute("full_command"),
        "file_path": span.first_text_attribute("file_path"),
    }
    return {name: text for name, text in fields.items() if text is not None} or None


def read_claude_span_output(span: TelemetryRecord) -> str | None:
    """Return a call's result, which Claude Code sends with OTEL_LOG_TOOL_CONTENT=1."""
    outputs = [attributes for name, attributes in span.events if name == "tool.output"]
    texts = [attributes.get(name) for attributes in outputs for name in ("output", "content")]
    return next((text for text in texts if isinstance(text, str)), None)


def build_tool_span_events(
    span: TelemetryRecord, make: TelemetryEventBuilder, tree: SpanTree, took: int
) -> list[DedupedEvent]:
    """Return a call and its result. What the span leaves out is taken from the messages of the same export."""
    tool = span.first_text_attribute(*TOOL_NAME) or span.name.removeprefix("execute_tool ") or "tool"
    call_id = span.first_text_attribute(*TOOL_CALL_ID)
    call_id = None if call_id in UNKNOWN_CALL_IDS else call_id
    tool_input = parse_embedded_json(first_present_attribute(span, TOOL_INPUT))
    tool_output = unwrap_tool_result(first_present_attribute(span, TOOL_OUTPUT))
    event_input, event_output = read_tool_span_input_and_output(span)
    tool_input, tool_output = (
        event_input if tool_input is None else tool_input,
        event_output if tool_output is None else tool_output,
    )
    if (earlier_call := tree.claim_requested_call_of_span(span, tool, call_id)) is not None:
        requested_call, is_client = earlier_call
        tool_input = tool_input if isinstance(tool_input, dict) else requested_call.value
        tool_output = (
            tree.find_tool_result_of_call(span, requested_call.call_id)
            if tool_output is None
            else tool_output
        )
        call_id = call_id or (requested_call.call_id if is_client else None)
    call: dict[str, Any] = {
        "tool_name": tool,
        "tool_input": wrap_non_object_value(tool_input),
        "tool_use_id": call_id or f"span:{span.span}",
    }
    return [
        make.build_telemetry_event(
            "pre_tool",
            origin=make_event_origin("span", span.trace, span.span, "begins"),
            claims=traced_call_origins("span", "begins", call_id),
            unless=traced_call_origins("message", "begins", call_id),
            **call,
        ),
        make.build_telemetry_event(
            "post_tool",
            at=span.ends or None,
            tool_output=None if span.failed and tool_output == {} else tool_output,
            error=span.failed,
            duration_ms=took,
            claims=traced_call_origins("span", "ends", call_id),
            unless=traced_call_origins("message", "ends", call_id),
            **call,
        ),
    ]


def first_present_attribute(span: TelemetryRecord, names: Sequence[str]) -> Any:
    return next((span.attributes[name] for name in names if name in span.attributes), None)


def traced_call_origins(reporter: str, phase: str, call_id: str | None) -> tuple[str, ...]:
    """Return the origin that marks a call's beginning or end as reported, by a tool's `span` or a model's `message`.

    Each of the two claims its own and is left out where the other's is claimed; so two spans with one id are two calls.
    """
    return (make_event_origin("traced call", reporter, phase, call_id),) if call_id else ()


# --- messages ---------------------------------------------------------------------------------------------


def iterate_model_message_events(
    record: TelemetryRecord,
    make: TelemetryEventBuilder,
    to_model: list[SpokenPart],
    of_model: list[SpokenPart],
    *,
    with_calls: bool,
) -> Iterator[DedupedEvent]:
    """Yield the last message to the model, if a person wrote it, and the model's.

    `with_calls`: yield also the calls that the model asks for and the results that it is given. That is where nobody
    else traces them: in a provider's client, and in a request without a parent.
    """
    if text := trailing_user_text(to_model):
        # The same words said again are a message of their own: there are more of them before.
        user_text_count = sum(part.role == "user" and part.kind == TEXT for part in to_model)
        key = make_event_origin("span", record.trace, "asked", user_text_count, text)
        yield make.build_telemetry_event("message", role="user", content=[make_text_block(text)], origin=key)
    ended = record.ends or None
    for number, part in enumerate(part for part in of_model if part.kind == TEXT):
        key = make_event_origin("span", record.trace, record.span, "answered", number)
        yield make.build_telemetry_event(
            "message", role="assistant", content=[make_text_block(part.text)], origin=key, at=ended
        )
    if not with_calls:
        return
    names = {part.call_id: part.tool_name for part in to_model if part.kind == CALL}
    for part in list_trailing_tool_results(to_model):
        yield make.build_telemetry_event(
            "post_tool",
            tool_name=part.tool_name or names.get(part.call_id) or "tool",
            tool_use_id=part.call_id,
            tool_output=part.value,
            origin=make_event_origin("message", "result", part.call_id),
            claims=traced_call_origins("message", "ends", part.call_id),
            unless=traced_call_origins("span", "ends", part.call_id),
        )
    for number, part in enumerate(part for part in of_model if part.kind == CALL):
        call_id = part.call_id or f"span:{record.span}:{number}"
        yield make.build_telemetry_event(
            "pre_tool",
            at=ended,
            tool_name=part.tool_name or "tool",
            tool_input=wrap_non_object_value(part.value),
            tool_use_id=call_id,
            origin=make_event_origin("message", "call", call_id),
            claims=traced_call_origins("message", "begins", call_id),
            unless=traced_call_origins("span", "begins", call_id),
        )


def list_trailing_tool_results(to_model: list[SpokenPart]) -> list[SpokenPart]:
    """Return the results at the end of what was said to a model; those before were given to it earlier."""
    results: list[SpokenPart] = []
    for part in reversed(to_model):
        if part.kind != RESULT:
            break
        if part.call_id:
            results.append(part)
    return results[::-1]
