"""What an agent said and took, from lines of its transcript that came along with a hook. Pure.

`client.transcript_lines` sends them. They become the events that an import of the transcript would make, under the same
origins. So what is told twice, by hooks, by lines that come again or by a later import, is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from coordinator.client.transcript_lines import FIELD
from coordinator.dialects.hooks import AgentHook
from coordinator.importing.lines import LineReader, UnknownLineKind
from coordinator.lib import instants
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST

MOST_LINES = 2_000
EventsOf = Callable[[AgentHook, str], list[DedupedEvent]]


def add_transcript_events(
    events_of: EventsOf, reader: Callable[[str], LineReader], source: str, *, tells_tokens: bool
) -> EventsOf:
    """Return a dialect's `events_of` that also makes events of the lines which come along.

    `reader` makes a reader for a session. With `tells_tokens` they tell what the agent's requests took, too.
    """
    kinds = {"message", MODEL_REQUEST} if tells_tokens else {"message"}

    def build_completed_events(hook: AgentHook, session_id: str) -> list[DedupedEvent]:
        if FIELD not in hook.fields:
            return [*events_of(hook, session_id)]
        plain = replace(hook, fields={name: value for name, value in hook.fields.items() if name != FIELD})
        attached_lines = read_attached_lines(hook.fields[FIELD], hook.session, reader(hook.session))
        text_pieces = [
            event
            for event in attached_lines
            if event.event_type in kinds and event.role in {None, "assistant"}
        ]
        for event in text_pieces:
            event.session_id, event.source = session_id, source
        return [*text_pieces, *events_of(plain, session_id)]

    return build_completed_events


def read_attached_lines(lines: object, session: str, reader: LineReader) -> Iterator[DedupedEvent]:
    """Yield the events of these lines; those that are not understood, or of another session, are left out."""
    for line in lines[:MOST_LINES] if isinstance(lines, list) else []:
        try:
            imported_lines = reader.read_line(line.encode()) if isinstance(line, str) else []
        except (UnknownLineKind, UnicodeEncodeError):
            continue
        for one in (one for record in imported_lines if record.session == session for one in record.events):
            event = one.event
            if instants.parse_instant(event.timestamp):
                event.unless = (*event.unless, *one.also)
                yield event
