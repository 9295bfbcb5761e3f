"""What a session changed, for its page: the files with their line counts, and as much of the diff as fits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from coordinator.models import DrivenCommand, DrivenSession, Run, Session, SessionChange
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.title_words import preview_markdown
from dashboard.text import patches
from dashboard.text.diffs import Marked

MOST_TURNS = 100
MOST_FILES = 300  # on a page
MOST_LINES = 4_000  # of all diffs on a page
MOST_OF_A_FILE = 600  # lines, unless the page shows only this file
OPEN_LINES = 400  # of the diffs that are unfolded at first
WIDEST = 1_000  # characters of a line
LONGEST_PREVIEW = 60  # characters of a turn's prompt
ADDED, MOVED, REMOVED = "Added", "Moved", "Removed"
WORDS = {"A": ADDED, "D": REMOVED, "R": MOVED, "C": "Copied", "T": "Made another kind", "M": "Changed"}
TONES = {ADDED: "good", REMOVED: "bad", MOVED: "calm"}
MODES = {"100755": "made executable", "100644": "made not executable"}


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A changed file, with the lines of its diff."""

    number: int  # its position in the report
    path: str
    was: str  # the path before it was renamed, or ""
    word: str
    note: str
    added: int
    removed: int
    lines: list[Marked] = field(default_factory=list)
    left: int = 0  # lines of the diff that are not shown
    is_open: bool = False

    @property
    def file_key(self) -> str:
        """A key for the file on its page, which does not change when other files are added."""
        return hashlib.sha256(self.path.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def chip_tone(self) -> str:
        """The tone of the file's chip."""
        return TONES.get(self.word, "")

    @property
    def folder_path(self) -> str:
        """The path of the file's folder, with the slash at the end."""
        return self.path[: self.path.rfind("/") + 1]

    @property
    def base_name(self) -> str:
        """The file's name without its folder."""
        return self.path[self.path.rfind("/") + 1 :]


@dataclass(frozen=True, slots=True)
class TurnChoice:
    """A turn whose changes can be shown."""

    id: int  # primary key of its SessionChange
    number: int  # in the session, from 1
    at: datetime
    prompt: str
    files: int  # number of changed files

    @property
    def prompt_preview(self) -> str:
        """The beginning of the prompt on one line, without Markdown."""
        return preview_markdown(self.prompt, LONGEST_PREVIEW)


@dataclass(frozen=True, slots=True)
class ChangeComparison:
    """The changes of a turn or session, ready for display."""

    row: SessionChange
    files: list[ChangedFile]
    total: int  # number of files
    added: int  # lines
    removed: int  # lines
    hidden: int  # files that are not listed
    given_up: bool  # there are changed files, but no diff


def build_changes_context(session: Session, chosen: str, number: str = "") -> dict[str, Any]:
    """Return the context of `sessions/_changes.html`.

    It contains the changes of the turn `chosen`, or of the whole session if there is no such turn.
    """
    rows = SessionChange.objects.filter(session=session)
    changed_turns = list_changed_turns(session)
    turn = next((run_turn for run_turn in changed_turns if str(run_turn.id) == chosen), None)
    row = rows.filter(pk=turn.id).first() if turn else rows.filter(run_id="").first()
    if (
        row is None and turn is None and changed_turns
    ):  # without changes of the whole session, the latest turn shows the reason
        turn = changed_turns[0]
        row = rows.filter(pk=turn.id).first()
    return {
        "turns": changed_turns,
        "turn": turn,
        "shown": build_reported_change_comparison(
            row, int(number) if number.isdecimal() and len(number) < 6 else None
        )
        if row
        else None,
        **build_worktree_context(session),
    }


def count_changed_files_if_reported(session_id: str) -> int | None:
    """Return how many files the session changed, or None if that is unknown."""
    row = SessionChange.objects.filter(session_id=session_id, run_id="").only("files").first()
    return len(list_file_reports(row)) if row else None


def build_worktree_context(session: Session) -> dict[str, Any]:
    """Return the state of the session's work tree, and the latest command to remove it."""
    driven = DrivenSession.objects.filter(pk=session.pk).first()
    orders = DrivenCommand.objects.filter(session=session).order_by("-ordered_at")[:50]
    order = next(
        (worktree_order for worktree_order in orders if "remove_worktree" in (worktree_order.command or {})),
        None,
    )
    return {"driven": driven, "worktree": driven.worktree if driven else None, "removal": order}


def list_changed_turns(session: Session) -> list[TurnChoice]:
    """Return the session's turns with reported changes, the latest first."""
    session_changes = SessionChange.objects.filter(session=session).exclude(run_id="").defer("diff")
    rows = list(session_changes.order_by("-id")[: MOST_TURNS + 1])
    prompts = dict(Run.objects.filter(pk__in=[row.run_id for row in rows]).values_list("run_id", "prompt"))
    last = session_changes.count()
    return [
        TurnChoice(
            row.pk,
            last - place,
            row.told_at,
            str(mask_secrets_in_value(prompts.get(row.run_id) or ""))[:200],
            len(list_file_reports(row)),
        )
        for place, row in enumerate(rows[:MOST_TURNS])
    ]


def list_file_reports(row: SessionChange) -> list[Mapping[str, Any]]:
    files = row.files if isinstance(row.files, list) else []
    return [file for file in files if isinstance(file, Mapping) and isinstance(file.get("path"), str)]


def build_reported_change_comparison(row: SessionChange, alone: int | None) -> ChangeComparison:
    listed = list_file_reports(row)
    stretches = patches.diff_lines_by_path(row.diff or "")
    files, lines_left = [], MOST_LINES
    for number, file_entry in list(enumerate(listed))[:MOST_FILES]:
        if alone is not None and number != alone:
            continue
        lines = stretches.get(file_entry["path"], [])
        most = min(lines_left, MOST_LINES if alone is not None else MOST_OF_A_FILE)
        is_open = alone is not None or MOST_LINES - lines_left + len(lines) <= OPEN_LINES
        files.append(build_changed_file_row(number, file_entry, lines, most, is_open))
        lines_left -= len(files[-1].lines)
    return ChangeComparison(
        row,
        files,
        len(listed),
        sum(read_line_count_or_zero(one, "added") for one in listed),
        sum(read_line_count_or_zero(one, "removed") for one in listed),
        0 if alone is not None else max(0, len(listed) - MOST_FILES),
        given_up=row.diff is None and bool(listed),
    )


def build_changed_file_row(
    number: int, reported: Mapping[str, Any], lines: list[str], most: int, is_open: bool
) -> ChangedFile:
    drawn = [
        (sign, format_diff_line(line, sign))
        for sign, line in patches.walk_signed_lines(lines[: max(0, most)])
    ]
    notes = [MODES.get(str(reported.get("mode", "")), "")]
    notes += ["binary or large"] if reported.get("binary") else []
    return ChangedFile(
        number,
        str(reported["path"]),
        str(reported.get("from") or ""),
        WORDS.get(str(reported.get("status")), WORDS["M"]),
        ", ".join(note for note in notes if note),
        read_line_count_or_zero(reported, "added"),
        read_line_count_or_zero(reported, "removed"),
        drawn,
        max(0, len(lines) - max(0, most)),
        is_open and bool(drawn),
    )


def format_diff_line(line: str, sign: str) -> str:
    """Return a line of a diff with its sign, shortened to WIDEST. Hunk headers and git's notes have none."""
    if len(line) > WIDEST:
        line = f"{line[:WIDEST]}… ({len(line) - WIDEST:,} more characters)"
    return line if sign == "@" else f"{sign} {line}"


def read_line_count_or_zero(reported: Mapping[str, Any], name: str) -> int:
    value = reported.get(name)
    return value if isinstance(value, int) else 0
