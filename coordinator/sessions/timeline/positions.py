"""A place in a timeline, as URLs carry it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from coordinator.lib import instants

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class EventPosition:
    """An event's position: its instant in microseconds, ties by its id. Written `1767693601000001.42`."""

    at_us: int
    event_id: int

    def __str__(self) -> str:
        return f"{self.at_us}.{self.event_id}"

    @property
    def position_datetime(self) -> datetime | None:
        """The instant; None outside the years 1 to 9999."""
        try:
            return instants.instant_from_microseconds(self.at_us)
        except OverflowError:
            return None

    @classmethod
    def parse_event_position_or_none(cls, text: str) -> EventPosition | None:
        """Return the place that `text` names, or None where it names none."""
        at_us, _, event_id = text.partition(".")
        try:
            position = cls(int(at_us), int(event_id or 0))
        except ValueError:
            return None
        return position if max(abs(position.at_us), abs(position.event_id)) <= _LARGEST else None

    @classmethod
    def position_before_moment(cls, moment: datetime) -> EventPosition:
        """Return the place just before everything that happened at `moment`."""
        return cls(instants.instant_to_microseconds(moment), 0)
