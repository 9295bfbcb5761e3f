"""The event of a rewind: a person takes turns back, and the agent goes on from an earlier message."""

from __future__ import annotations

from typing import Any

from coordinator.lib import instants


def build_rewind_event_input(
    previous_message_at: str, left_from: str, left_until: str, resumed_at: str, messages: int
) -> dict[str, Any] | None:
    """Return what the event of a rewind says; None where the times cannot be read.

    The stretch begins half way between what was kept and what was left, and ends half way between that and what came
    then: hooks report the same messages some milliseconds earlier or later.

    Args:
        previous_message_at: when the last message that was kept was written; "" where there is none.
        left_from: when the first message that was left behind was written.
        left_until: when the last one was.
        resumed_at: when the person went on.
        messages: how many messages were left behind.
    """
    first, last = instants.parse_instant_or_none(left_from), instants.parse_instant_or_none(left_until)
    if first is None or last is None:
        return None
    before, after = (
        instants.parse_instant_or_none(previous_message_at) or first,
        instants.parse_instant_or_none(resumed_at) or last,
    )
    begin = before + (first - before) / 2 if before <= first else first
    end = last + (after - last) / 2 if last <= after else last
    if begin > end:
        return None
    return {
        "left_from": instants.format_canonical_instant(begin),
        "left_until": instants.format_canonical_instant(end),
        "messages": messages,
    }
