"""The minimap: the whole session as one strip above its rows, with errors, questions and the visible part.

Every slice is a link to its time, so it works without JavaScript. static/js/minimap.js moves the frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from coordinator.lib.times import format_duration
from coordinator.sessions.timeline import DensitySlot
from dashboard.timeline.rows import format_time_offset

HEIGHT = 22  # pixels of the tallest bar
TOP = 11  # pixels above the bars, for marks
LEAST_HEIGHT = 2
LEAST_RED = 4
GAP = 0.8  # percent of the width for an idle period that is left out


@dataclass(frozen=True, slots=True)
class MinimapSlice:
    """A slice of time, with its position in percent and pixels, its links and their label."""

    slot: DensitySlot
    x: float
    width: float
    height: int
    most_errors: int  # of any slice
    url: str
    page_url: str
    label: str

    @property
    def idle_label(self) -> str:
        return (
            f"{format_duration(timedelta(microseconds=self.slot.idle_us))} without events"
            if self.slot.idle_us
            else ""
        )

    @property
    def error_url(self) -> str:
        first = self.slot.first_error
        return f"{self.page_url}?event={first}#event-{first}" if first else ""

    @property
    def error_height(self) -> int:
        """The height of the red part of the bar: all of it in the slice with the most errors."""
        return max(round(self.height * math.sqrt(self.slot.errors / self.most_errors)), LEAST_RED)

    @property
    def error_y(self) -> int:
        return TOP + HEIGHT - self.error_height

    @property
    def bar_y(self) -> int:
        return TOP + HEIGHT - self.height

    @property
    def middle_x(self) -> float:
        """The position of its mark, in percent."""
        return round(self.x + self.width / 2, 2)


@dataclass(frozen=True, slots=True)
class Minimap:
    """A session's slices. `x` and `width` are the frame around the part that the page shows."""

    slices: list[MinimapSlice]
    x: float
    width: float


def build_minimap(
    slots: Sequence[DensitySlot],
    slice_url: Callable[[DensitySlot], str],
    page_url: str,
    frame: tuple[int, int] | None,
    began_us: int,
) -> Minimap | None:
    """Return the minimap of these slots, or None if there are none.

    Args:
        slots: The session's density by time.
        slice_url: Returns the URL to which a slice links.
        page_url: The URL of the timeline.
        frame: Start and end of the part that the page shows, in microseconds; None for no frame.
        began_us: When the session began.
    """
    if not slots:
        return None
    most = math.sqrt(max(slot.events for slot in slots) or 1)
    most_errors = max(slot.errors for slot in slots)
    idles = sum(slot.idle_us > 0 for slot in slots)
    width = (100 - idles * GAP) / len(slots)
    slices: list[MinimapSlice] = []
    x = 0.0
    for slot in slots:
        x += GAP if slot.idle_us else 0
        tall = max(round(HEIGHT * math.sqrt(slot.events) / most), LEAST_HEIGHT) if slot.events else 0
        slices.append(
            MinimapSlice(
                slot,
                round(x, 2),
                round(width, 2),
                height=max(tall, LEAST_RED) if slot.errors else tall,
                most_errors=most_errors,
                url=slice_url(slot),
                page_url=page_url,
                label=describe_slice(slot, began_us),
            )
        )
        x += width
    left_edge, right = frame_start_and_end_percent(slices, frame)
    return Minimap(slices, round(left_edge, 2), round(right - left_edge, 2))


def describe_slice(slot: DensitySlot, began_us: int) -> str:
    """Return the label of a slice: `From 9:12:30, for 4m 10s: 1,204 events, 3 errors, 1 question`."""
    text_parts = [format_counted_noun(slot.events, "event")]
    text_parts += [format_counted_noun(slot.errors, "error")] if slot.errors else []
    text_parts += (
        [format_counted_noun(slot.question_count, "question to people", "questions to people")]
        if slot.question_count
        else []
    )
    lasts = format_duration(timedelta(microseconds=slot.to_us - slot.from_us))
    return f"From {format_time_offset(slot.from_us, began_us)}, for {lasts}: {', '.join(text_parts)}"


def format_counted_noun(number: int, singular: str, many: str = "") -> str:
    return f"{number:,} {singular if number == 1 else many or f'{singular}s'}"


def frame_start_and_end_percent(
    slices: Sequence[MinimapSlice], frame: tuple[int, int] | None
) -> tuple[float, float]:
    """Return the start and end of the frame in percent; 0 and 0 without a frame."""
    if frame is None:
        return 0.0, 0.0
    first, last = (compute_minimap_percent(slices, at_us) for at_us in frame)
    return first, max(last, first + 0.4)


def compute_minimap_percent(slices: Sequence[MinimapSlice], at_us: int) -> float:
    slot = next(
        (current_slice for current_slice in reversed(slices) if current_slice.slot.from_us <= at_us),
        slices[0],
    )
    span = slot.slot.to_us - slot.slot.from_us
    share = min(max((at_us - slot.slot.from_us) / span, 0), 1) if span else 0
    return slot.x + share * slot.width
