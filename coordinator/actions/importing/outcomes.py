"""Results of an import by table, for people and for the report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_LINES = 10_000  # of one kind and table; the file next to the report has all


class CappedReportLines(list[str]):
    """The first some thousand lines of a kind; `total` counts all."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def add_line(self, line: str) -> None:
        """Count a line, and remember it if it is one of the first."""
        self.total += 1
        if len(self) < MOST_LINES:
            self.append(line)


@dataclass
class TableOutcome:
    """The result of one table: how many rows were imported, existed already, clash or cannot be stored.

    `replaced` are initial rows of this installation that nobody had changed. `aside` counts what was written to the
    file next to the report: rows, and values that have no column here. `changed` counts the values that differ from the
    source, by column and in words.
    """

    table: str
    rows: int
    is_known: bool = True  # that there is such a table here
    added: int = 0
    present: int = 0
    replaced: int = 0
    aside: int = 0
    masked: int = 0
    conflicts: CappedReportLines = field(default_factory=CappedReportLines)
    left_out: CappedReportLines = field(default_factory=CappedReportLines)
    changed: Counter[str] = field(default_factory=Counter)
    unreadable: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_report_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {
            "table": self.table,
            "rows": self.rows,
            "added": self.added,
            "known": self.present,
            "replaced": self.replaced,
            "conflicts": self.conflicts.total,
            "left_out": self.left_out.total,
            "kept_aside": self.aside,
            "secrets_masked": self.masked,
            "changed": dict(self.changed),
            "could_not_be_read": self.unreadable,
            "notes": self.notes,
            "first_conflicts": list(self.conflicts),
            "first_left_out": list(self.left_out),
        }


@dataclass
class ImportOutcome:
    """All of an import: its tables, and where its report and the rows that were kept aside lie (None: nowhere)."""

    outcomes: list[TableOutcome]
    report: Path | None = None
    aside: Path | None = None
    dropped_rows: int = 0  # what would have gone beyond the bound of that file

    @property
    def unreadable_lines(self) -> list[str]:
        """Return the messages about unreadable values."""
        return [f"{outcome.table}: {line}" for outcome in self.outcomes for line in outcome.unreadable]
