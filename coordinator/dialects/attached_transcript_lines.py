"""Events from transcript lines that are attached to a hook: an agent's messages, usage and limits. Pure.

`client.transcript_lines` sends them. They become the events that an import of the transcript would make, under the same
origins. So what is reported twice, by hooks, by repeated lines or by a later import, is written once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from coordinator.client.transcript_lines import FIELD
from coordinator.dialects.hooks import AgentHook
from coordinator.importing.lines import ImportedLine, LineReader, UnknownLineKind
from coordinator.lib import instants
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST

MOST_LINES = 2_000


def build_speech_and_usage_events(
    hook: AgentHook, reader: LineReader, *, with_tokens: bool
) -> list[DedupedEvent]:
    """Return what the assistant said in the lines that came along with a hook.

    With `with_tokens` also what its requests to the model took.
    """
    kinds = {"message", MODEL_REQUEST} if with_tokens else {"message"}
    return [
        event
        for event in iterate_events_of_attached_lines(hook.fields[FIELD], hook.session, reader)
        if event.event_type in kinds and event.role in {None, "assistant"}
    ]


def find_attached_usage_limit_line(lines: object, reader: LineReader, now: datetime) -> ImportedLine | None:
    """Return the line with the limits of a subscription that came along with a hook; None where none has any."""
    for _ in iterate_events_of_attached_lines(lines, "", reader):
        pass  # the reader remembers the limits
    return next((line for line in reader.flush_pending_file_lines(now) if line.limits), None)


def iterate_events_of_attached_lines(
    lines: object, session: str, reader: LineReader
) -> Iterator[DedupedEvent]:
    """Yield the events of these lines; those that are not understood, or of another session, are left out."""
    for line in lines[:MOST_LINES] if isinstance(lines, list) else []:
        try:
            imported_lines = reader.convert_line_to_events(line.encode()) if isinstance(line, str) else []
        except (UnknownLineKind, UnicodeEncodeError):
            continue
        for imported in (
            imported for record in imported_lines if record.session == session for imported in record.events
        ):
            event = imported.event
            if instants.parse_instant_or_none(event.timestamp):
                event.unless = (*event.unless, *imported.also)
                yield event
