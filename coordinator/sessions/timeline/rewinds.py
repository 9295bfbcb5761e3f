"""Events left behind by rewinding: the agent went on from an earlier message, and stays with what came before.

Agents report a rewind as an event of its own (`REWIND`), which gives the time range of the events left behind. The
events themselves stay as they are: they happened, and their requests cost money.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from coordinator.lib import instants
from coordinator.models import Event
from coordinator.models.fields import decode_stored_json
from coordinator.sessions.reports import REWIND

MAX_REWINDS = 500  # of a session, the newest, that a page reads


@dataclass(frozen=True, slots=True)
class RewoundSpan:
    """A stretch of a session that was left behind."""

    first_us: int  # microseconds, both included
    last_us: int


def load_rewound_spans(session_id: str, event_ids: Collection[int] | None = None) -> list[RewoundSpan]:
    """Return the stretches of a session that were left behind, by these events or by any.

    One query, answered by an index where there is none.
    """
    rewinds = Event.objects.filter(session_id=session_id, event_type=REWIND).order_by("-id")
    if event_ids is not None:
        rewinds = rewinds.filter(pk__in=event_ids)
    inputs = rewinds.values_list("tool_input", flat=True)[:MAX_REWINDS]
    spans = (parse_rewound_span(tool_input) for tool_input in inputs)
    return [span for span in spans if span is not None]


def parse_rewound_span(tool_input: object) -> RewoundSpan | None:
    """Return the stretch that an event of a rewind names; None where it cannot be read."""
    fields = decode_stored_json(tool_input) if isinstance(tool_input, str) else tool_input
    if not isinstance(fields, dict):
        return None
    ends = (fields.get("left_from"), fields.get("left_until"))
    first, last = (instants.parse_instant_or_none(end) if isinstance(end, str) else None for end in ends)
    if first is None or last is None or first > last:
        return None
    return RewoundSpan(instants.instant_to_microseconds(first), instants.instant_to_microseconds(last))


def is_in_rewound_span(spans: Sequence[RewoundSpan], at_us: int) -> bool:
    """Say whether what happened then was left behind."""
    return any(span.first_us <= at_us <= span.last_us for span in spans)
