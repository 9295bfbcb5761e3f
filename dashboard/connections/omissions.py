"""Telemetry that was recently left out: who sent it, how often, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from coordinator.lib import instants
from coordinator.models import TelemetryOmission
from coordinator.sessions.omissions import OmissionKind

SHOWN_FOR = timedelta(days=14)  # since it was last left out
MOST_SHOWN = 100
# By kind: its label, and what to do.
KINDS: dict[str, tuple[str, str]] = {
    OmissionKind.EXPORT: (
        "Export refused",
        "Nothing of these exports is kept. The reason says what to change in the program's exporter.",
    ),
    OmissionKind.SPAN: (
        "Span not understood",
        "These spans are about a model or an agent, but of a kind that Signalbox does not know: their messages, calls"
        " and tokens are missing. Switch on what the help lists for the library, or update Signalbox. If that does not"
        " help, report the span's name and its library as a defect.",
    ),
    OmissionKind.RECORD: (
        "Record refused",
        "These records were read, but refused for the reason given. The rest of their exports is kept.",
    ),
    OmissionKind.ATTRIBUTE: (
        "Attribute not readable",
        "The value is not of the type that it claims, such as a whole number that is none. The rest of the record is"
        " kept. Where your program sets the attribute, correct it; otherwise update the library.",
    ),
}


@dataclass(frozen=True, slots=True)
class OmissionRow:
    """One row of the table of omissions."""

    row: TelemetryOmission

    @property
    def kind_label(self) -> str:
        return KINDS[self.row.kind][0] if self.row.kind in KINDS else self.row.kind

    @property
    def last_at(self) -> datetime:
        return instants.instant_from_microseconds(self.row.last_at_us)


@dataclass(frozen=True, slots=True)
class RecentOmissions:
    """The newest omissions, the number of further ones, and advice for each kind among them."""

    rows: list[OmissionRow]
    more: int
    advice: list[tuple[str, str]]


def load_recent_telemetry_omissions(now: datetime) -> RecentOmissions:
    """Return the omissions of the last 14 days, newest first."""
    since_us = instants.instant_to_microseconds(now - SHOWN_FOR)
    recent = TelemetryOmission.objects.filter(last_at_us__gte=since_us).order_by("-last_at_us", "-id")
    rows = [OmissionRow(row) for row in recent[:MOST_SHOWN]]
    kinds = {row.row.kind for row in rows}
    return RecentOmissions(
        rows,
        max(0, recent.count() - MOST_SHOWN),
        [label_and_advice for kind, label_and_advice in KINDS.items() if kind in kinds],
    )
