"""OpenTelemetry as events of ours: Claude Code's log records and spans, and GenAI spans of any other agent.

Claude Code's hooks tell what happens, its telemetry what it costs; what both tell is written once, by origins that
both dialects name alike. Input tokens are kept without those read from a cache, as Claude Code counts them; the
GenAI conventions count them in, so they are taken out here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from coordinator.dialects import claude_code
from coordinator.dialects.hooks import as_object, mended, origin, result_origin, said, words_origin_of
from coordinator.lib import instants, json_bounds
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST, UNRECORDED_PROMPT, SessionLocation

SOURCE = "telemetry"
HIDDEN = {"<REDACTED>", "[REDACTED]"}  # what Claude Code says in place of texts that it was not told to send
# What its own hooks do, and its plugins: nothing that a person looks for in a session.
NOISE = ("hook_execution", "plugin_", "hook_registered", "skill_activated")
CONVERSATION = ("gen_ai.conversation.id", "session.id", "langfuse.session.id")
MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})
MOST = 2**53
OPENED_PER_CHARACTER = 10  # bytes of memory


@dataclass(frozen=True, slots=True)
class SessionReport:
    """What one record says: of which session (by its executor's id), running where, and as which events.

    The events' `session_id` is still to be filled in.
    """

    session: str
    where: SessionLocation
    events: list[DedupedEvent]


@dataclass(frozen=True, slots=True)
class _Record:
    """A log record or span: its name, attributes, those of its resource, and its beginning and end (ns)."""

    name: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    begins: int
    ends: int
    trace: str = ""
    span: str = ""
    failed: str | None = None

    def text(self, *names: str) -> str | None:
        """Return the first of the attributes that holds a text."""
        for name in names:
            value = self.attributes.get(name)
            if isinstance(value, str) and value.strip():
                return value
        return None

    def number(self, *names: str) -> int | None:
        """Return the first of the attributes that holds a whole number, sent as a number or as a text."""
        for name in names:
            value = self.attributes.get(name)
            try:
                number = int(float(value)) if not isinstance(value, bool | None) else None
            except (TypeError, ValueError, OverflowError):
                continue
            if number is not None and 0 <= number < MOST:
                return number
        return None


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


def _moment(nano: int, now: datetime) -> str:
    try:
        return instants.canonical(datetime.fromtimestamp(nano / 1e9, UTC) if nano else now)
    except (OverflowError, ValueError, OSError):
        return instants.canonical(now)


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


def _where(record: _Record) -> SessionLocation:
    service = record.resource.get("service.name")
    host = record.resource.get("host.name")
    agent = record.text("gen_ai.agent.name") or (str(service) if service else None)
    return SessionLocation(
        hostname=str(host) if host else None,
        agent_name=agent,
        profile=str(service) if service else "telemetry",
    )


# --- logs -------------------------------------------------------------------------------------------------


def from_logs(request: Any, now: datetime) -> list[SessionReport]:
    """Return the session reports of an ExportLogsServiceRequest; records without a session are left out."""
    found = []
    for resource, record in _resources(request, "resourceLogs", "scopeLogs", "logRecords"):
        attributes = attributes_of(_list(record, "attributes"))
        body = value_of(record.get("body"))
        name = str(attributes.get("event.name") or record.get("eventName") or body or "")
        begins = _nano(record.get("timeUnixNano")) or _nano(record.get("observedTimeUnixNano"))
        one = _Record(name.removeprefix("claude_code."), attributes, resource, begins, begins)
        session = one.text(*CONVERSATION)
        if session is None:
            continue
        events = _log_events(one, session, now)
        if events:
            found.append(SessionReport(session, _where(one), events))
    return found


def _log_events(record: _Record, session: str, now: datetime) -> list[DedupedEvent]:
    if record.name.startswith(NOISE) or not record.name:
        return []
    meaning = _LOGS.get(record.name, _milestone)
    sequence = record.attributes.get("event.sequence")
    key = origin(
        "log", session, record.name, sequence if sequence is not None else record.attributes, record.begins
    )
    if sequence is not None:
        key = origin("log", session, record.name, sequence)
    event = meaning(record, _Maker(record, session, key, now))
    return [] if event is None else [event]


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes events of one record, all under its time and origin unless told otherwise."""

    record: _Record
    session: str
    origin: str
    now: datetime

    def event(self, event_type: str, *, at: int | None = None, **values: Any) -> DedupedEvent:
        """Return an event; the record's attributes are kept beside its columns."""
        record = self.record
        values.setdefault("origin", self.origin)
        return DedupedEvent(
            event_type=event_type,
            session_id="",
            timestamp=_moment(record.begins if at is None else at, self.now),
            prompt_id=record.text("prompt.id"),
            source=SOURCE,
            extra={"record": record.name} | record.attributes,
            **values,
        )

    def usage(self, *, cached_inside: bool = False, **values: Any) -> DedupedEvent:
        """Return what a model was asked and took."""
        record = self.record
        read = record.number("cache_read_tokens", "gen_ai.usage.cache_read.input_tokens")
        written = record.number("cache_creation_tokens", "gen_ai.usage.cache_creation.input_tokens")
        given = record.number("input_tokens", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
        if cached_inside and given is not None:
            given = max(0, given - (read or 0) - (written or 0))
        return self.event(
            MODEL_REQUEST,
            model=record.text("model", "gen_ai.response.model", "gen_ai.request.model"),
            input_tokens=given,
            output_tokens=record.number(
                "output_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"
            ),
            cache_read_tokens=read,
            cache_write_tokens=written,
            **values,
        )


Meaning = Callable[[_Record, _Maker], DedupedEvent | None]


def _milestone(record: _Record, make: _Maker) -> DedupedEvent | None:
    return make.event(record.name, error=record.text("error", "error_message"))


def _prompt(record: _Record, make: _Maker) -> DedupedEvent | None:
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


def _response(record: _Record, make: _Maker) -> DedupedEvent | None:
    text = record.text("response")
    if text is None or text in HIDDEN:
        return None
    key = words_origin_of(make.session, None, record.text("prompt.id"), text)
    return make.event(
        "message", role="assistant", content=[said(text)], origin=key, model=record.text("model")
    )


def _result(record: _Record, make: _Maker) -> DedupedEvent | None:
    call_id = record.text("tool_use_id")
    if call_id is None:
        return _milestone(record, make)
    worked = str(record.attributes.get("success")).lower() != "false"
    error = None if worked else record.text("error", "error_type") or "The call failed."
    return _ended(record, make, call_id, error=error, origin=result_origin(make.session, call_id))


def _decision(record: _Record, make: _Maker) -> DedupedEvent | None:
    """A rejection becomes a result; no hook reports a rejection in the terminal."""
    call_id = record.text("tool_use_id")
    if record.text("decision") != "reject" or call_id is None:
        return None
    error = f"Rejected in the terminal ({record.text('source') or 'unknown'})."
    return _ended(record, make, call_id, error=error, origin=result_origin(make.session, call_id))


def _ended(record: _Record, make: _Maker, call_id: str, **values: Any) -> DedupedEvent:
    return make.event(
        "post_tool",
        tool_name=record.text("tool_name", "gen_ai.tool.name") or "tool",
        tool_use_id=call_id,
        duration_ms=record.number("duration_ms"),
        **values,
    )


def _api_request(record: _Record, make: _Maker) -> DedupedEvent | None:
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
    found = []
    for span in spans:
        events = _span_events(span, talks.get(span.trace) or f"trace:{span.trace}", now)
        if events:
            session = span.text(*CONVERSATION) or talks.get(span.trace) or f"trace:{span.trace}"
            found.append(SessionReport(session, _where(span), events))
    return found


def _span(resource: dict[str, Any], span: dict[str, Any]) -> _Record:
    status = span.get("status") if isinstance(span.get("status"), dict) else {}
    failed = status.get("code") in {2, "STATUS_CODE_ERROR"} if status else False
    attributes = attributes_of(_list(span, "attributes"))
    words = (status or {}).get("message") or attributes.get("error.type") or "The call failed."
    return _Record(
        str(span.get("name") or ""),
        attributes,
        resource,
        _nano(span.get("startTimeUnixNano")),
        _nano(span.get("endTimeUnixNano")),
        str(span.get("traceId") or "").lower(),
        str(span.get("spanId") or "").lower(),
        str(words) if failed else None,
    )


def _span_events(span: _Record, session: str, now: datetime) -> list[DedupedEvent]:
    make = _Maker(span, session, origin("span", span.trace, span.span), now)
    took = max(0, span.ends - span.begins) // 1_000_000
    if span.resource.get("service.name") == claude_code.SOURCE or span.name.startswith("claude_code."):
        return _claude_span(span, make, took)
    operation = span.text("gen_ai.operation.name")
    if operation == "execute_tool":
        return _tool_span(span, make, took)
    if operation in MODEL_OPERATIONS:
        usage = make.usage(cached_inside=True, duration_ms=took, at=span.ends or None, error=span.failed)
        return [*_messages(span, make), usage]
    return []


def _claude_span(span: _Record, make: _Maker, took: int) -> list[DedupedEvent]:
    """Of Claude Code's own spans, return only what its hooks and logs may not have reported."""
    call_id, request_id = span.text("tool_use_id", "gen_ai.tool.call.id"), span.text("request_id")
    if span.name == "claude_code.tool" and call_id:
        key = result_origin(make.session, call_id)
        return [_ended(span, make, call_id, error=span.failed, origin=key, at=span.ends or None)]
    if span.name == "claude_code.llm_request" and request_id:
        return [make.usage(duration_ms=took, origin=origin(make.session, "request", request_id))]
    return []


def _tool_span(span: _Record, make: _Maker, took: int) -> list[DedupedEvent]:
    call: dict[str, Any] = {
        "tool_name": span.text("gen_ai.tool.name") or span.name.removeprefix("execute_tool ") or "tool",
        "tool_input": as_object(_opened(span.attributes.get("gen_ai.tool.call.arguments"))),
        "tool_use_id": span.text("gen_ai.tool.call.id") or f"span:{span.span}",
    }
    result = _opened(span.attributes.get("gen_ai.tool.call.result"))
    return [
        make.event("pre_tool", origin=origin("span", span.trace, span.span, "begins"), **call),
        make.event(
            "post_tool", at=span.ends or None, tool_output=result, error=span.failed, duration_ms=took, **call
        ),
    ]


def _messages(span: _Record, make: _Maker) -> Iterator[DedupedEvent]:
    """Yield what was said last to the model, if a person said it, and what the model said."""
    asked = _opened(span.attributes.get("gen_ai.input.messages"))
    last = asked[-1] if isinstance(asked, list) and asked else None
    if isinstance(last, dict) and last.get("role") == "user" and (text := _spoken(last)):
        key = origin("span", span.trace, "asked", text)
        yield make.event("message", role="user", content=[said(text)], origin=key)
    answered = _opened(span.attributes.get("gen_ai.output.messages"))
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


def _opened(value: Any) -> Any:
    """Return a value that may have been sent as JSON in a text; one that would take far more memory stays a text."""
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            return json_bounds.loads(value, most=OPENED_PER_CHARACTER * len(value) + 16_384)
        except (ValueError, RecursionError):
            return value
    return value
