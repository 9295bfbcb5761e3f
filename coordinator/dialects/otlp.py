"""OpenTelemetry as events: log records of agents that we know, and GenAI spans of any other agent.

An agent's hooks report what happens, its telemetry what it costs; what both report is written once, because both
dialects give it the same origin. Input tokens are kept without those read from a cache, as Claude Code counts them;
the GenAI conventions count them in, so they are taken out here. Who sends is known by `service.name`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from coordinator.dialects import claude_code, codex, codex_telemetry, gemini_telemetry
from coordinator.dialects.hooks import as_object, mended, opened, origin, result_origin, said, words_origin_of
from coordinator.dialects.otlp_records import HIDDEN, Maker, Meaning, Record, ended
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import UNRECORDED_PROMPT, SessionLocation

# What its own hooks do, and its plugins: nothing that a person looks for in a session.
NOISE = ("hook_execution", "plugin_", "hook_registered", "skill_activated")
# What Claude Code reports while it starts, under an id that it gives up where it resumes a session.
STARTING = frozenset(
    {"managed_settings_resolved", "mcp_server_connection", "auth", "permission_mode_changed"}
)
CONVERSATION = ("gen_ai.conversation.id", "session.id", "langfuse.session.id", "conversation.id")
MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})
AGENT_OPERATIONS = frozenset({"invoke_agent", "invoke_workflow"})
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


# --- reading what every signal shares ---------------------------------------------------------------------


def value_of(any_value: Any) -> Any:
    """Return an OTLP value as plain JSON."""
    if not isinstance(any_value, dict):
        return None
    for kind, value in any_value.items():
        if kind == "intValue":
            return int(value) if isinstance(value, int | str) and str(value).lstrip("-").isdigit() else None
        if kind == "arrayValue":
            return [value_of(one) for one in _list(value, "values")]
        if kind == "kvlistValue":
            return attributes_of(_list(value, "values"))
        return value
    return None


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Return OTLP's list of pairs as an object."""
    found = pairs if isinstance(pairs, list) else []
    return {
        str(pair["key"]): value_of(pair.get("value"))
        for pair in found
        if isinstance(pair, dict) and "key" in pair
    }


def _list(holder: Any, name: str) -> list[Any]:
    found = holder.get(name) if isinstance(holder, dict) else None
    return found if isinstance(found, list) else []


def _nano(value: Any) -> int:
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        return 0


def _resources(
    request: Any, outer: str, middle: str, inner: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each record of a request with its resource's attributes."""
    for group in _list(mended(request), outer):
        resource = (
            attributes_of(_list(group.get("resource"), "attributes")) if isinstance(group, dict) else {}
        )
        for scope in _list(group, middle):
            for record in _list(scope, inner):
                if isinstance(record, dict):
                    yield resource, record


def _where(record: Record) -> SessionLocation:
    service = record.resource.get("service.name")
    host = record.resource.get("host.name")
    program = _program(record)
    name = record.text("gen_ai.agent.name") or (str(service) if service else None)
    return SessionLocation(
        hostname=str(host) if host else None,
        agent_name=program or name,
        profile=program or (str(service) if service else "telemetry"),
    )


def _program(record: Record) -> str | None:
    """Return which of the agents that we know sends the record."""
    service = str(record.resource.get("service.name") or "")
    if service == claude_code.SOURCE or record.name.startswith("claude_code."):
        return claude_code.SOURCE
    known = (one.PROGRAM for one in BY_PREFIX.values() if service.startswith(one.SERVICE))
    return next(known, None)


# --- logs -------------------------------------------------------------------------------------------------


def from_logs(request: Any, now: datetime) -> list[SessionReport]:
    """Return the session reports of an ExportLogsServiceRequest; records without a session are left out."""
    found = []
    for resource, record in _resources(request, "resourceLogs", "scopeLogs", "logRecords"):
        attributes = attributes_of(_list(record, "attributes"))
        body = value_of(record.get("body"))
        name = str(attributes.get("event.name") or record.get("eventName") or body or "")
        begins = _nano(record.get("timeUnixNano")) or _nano(record.get("observedTimeUnixNano"))
        one = Record(name, attributes, resource, begins, begins)
        session = one.text(*CONVERSATION)
        if session is None:
            continue
        events = _log_events(one, session, now)
        if events or (_program(one) == codex.SOURCE and codex_telemetry.begins_session(one)):
            thread = codex.thread_origin(session) if _program(one) == codex.SOURCE else None
            found.append(SessionReport(session, _where(one), events, _makes_none(one, events), thread))
    return found


def _makes_none(record: Record, events: list[DedupedEvent]) -> bool:
    """Say whether a record makes no session: Claude Code reports its own start before it knows which one it resumes."""
    program = _program(record)
    if program == codex.SOURCE:
        return bool(events) and all(codex_telemetry.makes_no_session(record, event) for event in events)
    return program == claude_code.SOURCE and record.name.removeprefix("claude_code.") in STARTING


def _log_events(record: Record, session: str, now: datetime) -> list[DedupedEvent]:
    program = _program(record)
    own = next((one for one in BY_PREFIX.values() if program == one.PROGRAM), None)
    if own is not None:
        meaning = own.LOGS.get(record.name.removeprefix(own.PREFIX), _nothing)
    else:
        record = replace(record, name=record.name.removeprefix("claude_code."))
        if record.name.startswith(NOISE) or not record.name:
            return []
        meaning = _LOGS.get(record.name, _milestone)
    sequence = record.attributes.get("event.sequence")
    # With its time: a program that is started again in its session counts from the beginning.
    key = origin(
        "log", session, record.name, sequence if sequence is not None else record.attributes, record.begins
    )
    left_out = own.TEXTS if own is not None else frozenset()
    event = meaning(record, Maker(record, session, key, now, left_out))
    return [] if event is None else [event]


def _milestone(record: Record, make: Maker) -> DedupedEvent | None:
    return make.event(record.name, error=record.text("error", "error_message"))


def _nothing(_record: Record, _make: Maker) -> DedupedEvent | None:
    return None


def _prompt(record: Record, make: Maker) -> DedupedEvent | None:
    text, prompt_id = record.text("prompt"), record.text("prompt.id")
    if text is None or text in HIDDEN:
        size = record.number("prompt_length")
        text = (
            f"{UNRECORDED_PROMPT} of {size} characters, not recorded.)"
            if size is not None
            else f"{UNRECORDED_PROMPT}, not recorded.)"
        )
    key = origin(make.session, "prompt", prompt_id) if prompt_id else make.origin
    return make.event("message", role="user", content=[said(text)], origin=key)


def _response(record: Record, make: Maker) -> DedupedEvent | None:
    text = record.text("response")
    if text is None or text in HIDDEN:
        return None
    key = words_origin_of(make.session, None, record.text("prompt.id"), text)
    return make.event(
        "message", role="assistant", content=[said(text)], origin=key, model=record.text("model")
    )


def _result(record: Record, make: Maker) -> DedupedEvent | None:
    call_id = record.text("tool_use_id")
    if call_id is None:
        return _milestone(record, make)
    worked = str(record.attributes.get("success")).lower() != "false"
    error = None if worked else record.text("error", "error_type") or "The call failed."
    return ended(record, make, call_id, error=error, origin=result_origin(make.session, call_id))


def _decision(record: Record, make: Maker) -> DedupedEvent | None:
    """A rejection becomes a result; no hook reports a rejection in the terminal."""
    call_id = record.text("tool_use_id")
    if record.text("decision") != "reject" or call_id is None:
        return None
    error = f"Rejected in the terminal ({record.text('source') or 'unknown'})."
    return ended(record, make, call_id, error=error, origin=result_origin(make.session, call_id))


def _api_request(record: Record, make: Maker) -> DedupedEvent | None:
    request_id = record.text("request_id")
    key = origin(make.session, "request", request_id) if request_id else make.origin
    return make.usage(duration_ms=record.number("duration_ms"), origin=key)


_LOGS: dict[str, Meaning] = {
    "user_prompt": _prompt,
    "assistant_response": _response,
    "tool_result": _result,
    "tool_decision": _decision,
    "api_request": _api_request,
}


# --- traces -----------------------------------------------------------------------------------------------


def from_traces(request: Any, now: datetime) -> list[SessionReport]:
    """Return the session reports of an ExportTraceServiceRequest; spans that are not an agent's are left out."""
    spans = [_span(*one) for one in _resources(request, "resourceSpans", "scopeSpans", "spans")]
    # Only some spans of a trace name the conversation; the others belong to it all the same.
    talks = {span.trace: span.text(*CONVERSATION) for span in spans if span.text(*CONVERSATION)}
    found, ends = [], []
    for span in spans:
        session = span.text(*CONVERSATION) or talks.get(span.trace) or f"trace:{span.trace}"
        if events := _span_events(span, session, now):
            found.append(SessionReport(session, _where(span), events))
        if end := _end(span, session, now):
            ends.append(end)
    return found + ends  # what a session's spans tell goes before its end


def _end(span: Record, session: str, now: datetime) -> SessionReport | None:
    """Return the end of a session that ends with this span; it makes no session of a trace that held nothing else.

    That is a root span's which runs an agent, or whose trace is all that there is of the session. A request to a model
    that stands by itself is one of several: its conversation goes on.
    """
    program, key = _program(span), origin("span", span.trace, span.span, "session ends")
    own = codex_telemetry.session_end(span) if program == codex_telemetry.PROGRAM else None
    is_root = program is None and not span.parent and span.ends > 0
    of_agent = span.text("gen_ai.operation.name") in AGENT_OPERATIONS
    if own is not None:
        session, key = own
    elif not is_root or not (of_agent or session.startswith("trace:")):
        return None
    make = Maker(span, session, key, now)
    event = make.event("session_stop", at=span.ends, reason="its trace ended", error=span.failed)
    return SessionReport(session, _where(span), [event], only_known=True)


def _span(resource: dict[str, Any], span: dict[str, Any]) -> Record:
    status = span.get("status") if isinstance(span.get("status"), dict) else {}
    failed = status.get("code") in {2, "STATUS_CODE_ERROR"} if status else False
    attributes = attributes_of(_list(span, "attributes"))
    words = (status or {}).get("message") or attributes.get("error.type") or "The call failed."
    return Record(
        str(span.get("name") or ""),
        attributes,
        resource,
        _nano(span.get("startTimeUnixNano")),
        _nano(span.get("endTimeUnixNano")),
        str(span.get("traceId") or "").lower(),
        str(span.get("spanId") or "").lower(),
        str(words) if failed else None,
        str(span.get("parentSpanId") or "").strip("0"),
    )


def _span_events(span: Record, session: str, now: datetime) -> list[DedupedEvent]:
    make = Maker(span, session, origin("span", span.trace, span.span), now)
    took = max(0, span.ends - span.begins) // 1_000_000
    program = _program(span)
    if program is not None:  # the others' log records tell all that their spans do
        return _claude_span(span, make, took) if program == claude_code.SOURCE else []
    operation = span.text("gen_ai.operation.name")
    if operation == "execute_tool":
        return _tool_span(span, make, took)
    if operation in MODEL_OPERATIONS:
        usage = make.usage(cached_inside=True, duration_ms=took, at=span.ends or None, error=span.failed)
        return [*_messages(span, make), usage]
    return []


def _claude_span(span: Record, make: Maker, took: int) -> list[DedupedEvent]:
    """Of Claude Code's own spans, return only what its hooks and logs may not have reported."""
    call_id, request_id = span.text("tool_use_id", "gen_ai.tool.call.id"), span.text("request_id")
    if span.name == "claude_code.tool" and call_id:
        key = result_origin(make.session, call_id)
        return [ended(span, make, call_id, error=span.failed, origin=key, at=span.ends or None)]
    if span.name == "claude_code.llm_request" and request_id:
        return [make.usage(duration_ms=took, origin=origin(make.session, "request", request_id))]
    return []


def _tool_span(span: Record, make: Maker, took: int) -> list[DedupedEvent]:
    call: dict[str, Any] = {
        "tool_name": span.text("gen_ai.tool.name") or span.name.removeprefix("execute_tool ") or "tool",
        "tool_input": as_object(opened(span.attributes.get("gen_ai.tool.call.arguments"))),
        "tool_use_id": span.text("gen_ai.tool.call.id") or f"span:{span.span}",
    }
    result = opened(span.attributes.get("gen_ai.tool.call.result"))
    return [
        make.event("pre_tool", origin=origin("span", span.trace, span.span, "begins"), **call),
        make.event(
            "post_tool", at=span.ends or None, tool_output=result, error=span.failed, duration_ms=took, **call
        ),
    ]


def _messages(span: Record, make: Maker) -> Iterator[DedupedEvent]:
    """Yield the last message to the model, if a person wrote it, and the model's."""
    asked = opened(span.attributes.get("gen_ai.input.messages"))
    last = asked[-1] if isinstance(asked, list) and asked else None
    if isinstance(last, dict) and last.get("role") == "user" and (text := _spoken(last)):
        key = origin("span", span.trace, "asked", text)
        yield make.event("message", role="user", content=[said(text)], origin=key)
    answered = opened(span.attributes.get("gen_ai.output.messages"))
    for number, message in enumerate(answered if isinstance(answered, list) else []):
        if isinstance(message, dict) and (text := _spoken(message)):
            key = origin("span", span.trace, span.span, "answered", number)
            at = span.ends or None
            yield make.event("message", role="assistant", content=[said(text)], origin=key, at=at)


def _spoken(message: dict[str, Any]) -> str:
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, str):
        return parts
    texts = [
        part.get("content", part.get("text"))
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict) and part.get("type") == "text"
    ]
    return "\n\n".join(text for text in texts if isinstance(text, str))
