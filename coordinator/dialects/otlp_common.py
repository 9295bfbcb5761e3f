"""Shared parts of OpenTelemetry logs and traces: plain values from OTLP, the emitter, and a record's events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from coordinator.dialects import claude_code, codex_telemetry, gemini_telemetry
from coordinator.dialects.hooks import make_event_origin, replace_unstorable_text
from coordinator.dialects.otlp_names import AGENT_NAME, CONVERSATION
from coordinator.dialects.otlp_records import TelemetryRecord
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.omissions import OmissionKind, TelemetryEmitter
from coordinator.sessions.reports import ANYWHERE, SessionLocation

MOST_NAMED, MOST_NAME = 5, 200  # of what was left out: names, and characters of each
# Agents whose log records are understood each in its own way.
BY_PREFIX = {one.PREFIX: one for one in (codex_telemetry, gemini_telemetry)}


@dataclass(frozen=True, slots=True)
class SessionReport:
    """What one record says: of which session (by its executor's id), running where, and as which events.

    The events' `session_id` is still to be filled in. One that is `only_known` makes no session. `thread` is the origin
    that another session has claimed where this is a sub-agent of it. `trace` is the id of the trace that it is from.
    """

    session: str
    where: SessionLocation
    events: list[DedupedEvent]
    only_known: bool = False
    thread: str | None = None
    trace: str | None = None


@dataclass(slots=True)
class OmittedRecordCounts:
    """Counts of an export's omitted records, by emitter, kind and name, reported to its sender and to people."""

    omissions: Counter[tuple[TelemetryEmitter, OmissionKind, str]] = field(default_factory=Counter)
    emitter: TelemetryEmitter = field(default_factory=TelemetryEmitter)  # of the record that is being read

    def add_omission(self, kind: OmissionKind, name: str, emitter: TelemetryEmitter | None = None) -> None:
        """Count what is left out; of the record that is being read, or of `emitter`."""
        self.omissions[emitter or self.emitter, kind, name[:MOST_NAME]] += 1

    def total_omissions_of_kind(self, kind: OmissionKind) -> int:
        return sum(count for (_, of_kind, _), count in self.omissions.items() if of_kind == kind)

    @property
    def message(self) -> str:
        """What was left out in words; nothing where all was understood."""
        parts = []
        for kind, value_kind in (
            (OmissionKind.SPAN, "spans were not understood"),
            (OmissionKind.ATTRIBUTE, "attributes could not be read"),
        ):
            if count := self.total_omissions_of_kind(kind):
                names = dict.fromkeys(name for (_, of_kind, name) in self.omissions if of_kind == kind)
                parts.append(f"{count} {value_kind} and left out: {', '.join(list(names)[:MOST_NAMED])}.")
        return " ".join(parts)


def convert_otlp_value_to_json(any_value: Any) -> Any:
    """Return an OTLP value as plain JSON. Raises ValueError for a whole number that is none."""
    if not isinstance(any_value, dict):
        return None
    for kind, value in any_value.items():
        if kind == "intValue":
            return require_otlp_integer(value)
        if kind == "arrayValue":
            return [
                convert_otlp_value_to_json(inner_value) for inner_value in otlp_list_field(value, "values")
            ]
        if kind == "kvlistValue":
            return convert_otlp_attributes_to_dict(otlp_list_field(value, "values"))
        return value
    return None


def require_otlp_integer(value: Any) -> int:
    """Return a whole number, which JSON may have as a text. Raises ValueError for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("no whole number")
    return int(value)


def convert_otlp_attributes_to_dict(pairs: Any, notes: OmittedRecordCounts | None = None) -> dict[str, Any]:
    """Return OTLP's list of pairs as an object. One that cannot be read is left out, and noted."""
    plain_values: dict[str, Any] = {}
    for pair in pairs if isinstance(pairs, list) else []:
        if not isinstance(pair, dict) or "key" not in pair:
            continue
        name = str(pair["key"])
        try:
            plain_values[name] = convert_otlp_value_to_json(pair.get("value"))
        except (ValueError, TypeError, OverflowError):
            if notes is not None:
                notes.add_omission(OmissionKind.ATTRIBUTE, name)
    return plain_values


def otlp_list_field(holder: Any, name: str) -> list[Any]:
    inner_values = holder.get(name) if isinstance(holder, dict) else None
    return inner_values if isinstance(inner_values, list) else []


def parse_nanoseconds_or_zero(value: Any) -> int:
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        return 0


def iterate_otlp_records(
    request: Any, outer: str, middle: str, inner: str, notes: OmittedRecordCounts
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yield each record of a request with its resource's attributes and the name of the library that made it."""
    for group in otlp_list_field(replace_unstorable_text(request), outer):
        pairs = otlp_list_field(group.get("resource"), "attributes") if isinstance(group, dict) else []
        service = str(convert_otlp_attributes_to_dict(pairs).get("service.name") or "")
        notes.emitter = TelemetryEmitter(service)
        resource = convert_otlp_attributes_to_dict(pairs, notes)
        for scope in otlp_list_field(group, middle):
            library = scope.get("scope") if isinstance(scope, dict) else None
            scope_name = str(library.get("name") or "") if isinstance(library, dict) else ""
            notes.emitter = TelemetryEmitter(service, scope_name)
            for record in otlp_list_field(scope, inner):
                if isinstance(record, dict):
                    yield resource, scope_name, record


def telemetry_session_location(record: TelemetryRecord, agent: str | None = None) -> SessionLocation:
    """Return where a record's session runs; `agent` names its agent where the record itself may name another."""
    service = record.resource.get("service.name")
    host = record.resource.get("host.name")
    program = find_agent_program_of_record(record)
    name = agent or record.first_text_attribute(*AGENT_NAME) or (str(service) if service else None)
    return SessionLocation(
        hostname=str(host) if host else None,
        agent_name=program or name,
        profile=program or (str(service) if service else "telemetry"),
    )


def find_agent_program_of_record(record: TelemetryRecord) -> str | None:
    """Return which of the agents that we know sends the record."""
    service = str(record.resource.get("service.name") or "")
    if service == claude_code.SOURCE or record.name.startswith("claude_code."):
        return claude_code.SOURCE
    programs = (module.PROGRAM for module in BY_PREFIX.values() if service.startswith(module.SERVICE))
    return next(programs, None)


def build_trace_session_id(trace: str) -> str:
    """Return the executor's id of the session that a trace is, where nothing in it names a conversation."""
    return f"trace:{trace}"


def trace_origin(trace: str) -> str:
    """Return the origin that the session of a trace claims, by which parts that do not name it are known to be its."""
    return f"{ANYWHERE}{make_event_origin('trace', trace)}"


def choose_fallback_session_id(record: TelemetryRecord) -> str:
    """Return the executor's id of the session of a record that names none: its process's, else its trace's own.

    A process names its session by `OTEL_RESOURCE_ATTRIBUTES=session.id=…`, where its library has no name for it.
    """
    named = (record.resource.get(name) for name in CONVERSATION)
    return next(
        (name for name in named if isinstance(name, str) and name), build_trace_session_id(record.trace)
    )
