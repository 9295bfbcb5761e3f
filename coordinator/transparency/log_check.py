"""Checking the whole log against its rows, its checkpoints and old checkpoints that were kept elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from coordinator.models import AuditCheckpoint, AuditLeaf, AuditLog
from coordinator.models.audit import AUDIT_RETENTION
from coordinator.transparency import entries
from coordinator.transparency.merkle import EMPTY_ROOT, leaf_hash, node_hash
from coordinator.transparency.notes import LogCheckpoint, NoteError, NoteVerifier, SignedNote

STEP = 2_000  # leaves read at a time
SLACK = timedelta(days=1)  # entries are not written in the exact order of their times
MOST_LISTED = 100  # problems


@dataclass(frozen=True, slots=True)
class LogProblem:
    """One thing that is wrong, in words. `entry` is the leaf's number where it is about one entry."""

    text: str
    entry: int | None = None


@dataclass(slots=True)
class LogCheckReport:
    """What was checked and what is wrong."""

    entries: int = 0
    rows: int = 0
    checkpoints: int = 0
    root: bytes = EMPTY_ROOT
    problems: list[LogProblem] = field(default_factory=list)
    # Entries of other programs whose rows are not there.
    foreign_gone: list[int] = field(default_factory=list)
    newest_row_at: datetime | None = None  # the latest time of one of our rows that was met on the way
    unlisted: int = 0  # problems beyond MOST_LISTED

    @property
    def log_check_remark_texts(self) -> list[str]:
        """Findings that prove no change, but are worth knowing."""
        missing_entries = self.foreign_gone
        if not missing_entries:
            return []
        return [
            f"Entries of other programs whose rows were deleted: {len(missing_entries):,}, "
            f"the first is entry {missing_entries[0]}. Imported rows bring "
            "their own times and are deleted "
            f"{AUDIT_RETENTION.days} days after those."
        ]

    def add_log_problem(self, text: str, entry: int | None = None) -> None:
        if len(self.problems) < MOST_LISTED:
            self.problems.append(LogProblem(text, entry))
        else:
            self.unlisted += 1


class CompactMerkleTree:
    """The roots of a growing tree: the hashes of the complete subtrees that its leaves make, largest first."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []

    def add_merkle_leaf_hash(self, leaf: bytes) -> None:
        self._peaks.append(leaf)
        self.size += 1
        for _ in range((self.size & -self.size).bit_length() - 1):
            right, left_peak = self._peaks.pop(), self._peaks.pop()
            self._peaks.append(node_hash(left_peak, right))

    def current_merkle_root(self) -> bytes:
        if not self._peaks:
            return EMPTY_ROOT
        root_hash = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root_hash = node_hash(peak, root_hash)
        return root_hash


@dataclass(frozen=True, slots=True)
class ReferenceCheckpoint:
    """A checkpoint to compare with: where it comes from, in words, and when it was made (None: not known)."""

    checkpoint: LogCheckpoint
    where: str
    at: object = None


def check_entire_audit_log(
    outside: Iterable[str], trusted: Sequence[NoteVerifier], now: datetime
) -> LogCheckReport:
    """Check every leaf, row and checkpoint. `outside` are signed notes that were kept elsewhere, `trusted` the keys
    that may have signed them."""
    report = LogCheckReport()
    known_checkpoints = sorted(
        [
            *iterate_stored_checkpoints_reporting_problems(report, trusted),
            *iterate_outside_checkpoints_and_report(report, outside, trusted),
        ],
        key=lambda one: one.checkpoint.size,
    )
    report.checkpoints = len(known_checkpoints)
    report_leaf_and_checkpoint_differences(report, known_checkpoints, now)
    report_audit_rows_without_leaf(report)
    return report


def iterate_stored_checkpoints_reporting_problems(
    report: LogCheckReport, trusted: Sequence[NoteVerifier]
) -> Iterator[ReferenceCheckpoint]:
    for row in AuditCheckpoint.objects.order_by("tree_size").iterator(chunk_size=STEP):
        where = f"the database's checkpoint of {row.tree_size:,} entries"
        trusted_checkpoint = verify_and_parse_checkpoint_or_report(report, row.note, where, trusted)
        if trusted_checkpoint and (trusted_checkpoint.size, trusted_checkpoint.root) != (
            row.tree_size,
            bytes(row.root_hash),
        ):
            report.add_log_problem(f"In {where}, the note and the columns beside it differ.")
        if trusted_checkpoint:
            yield ReferenceCheckpoint(trusted_checkpoint, where, row.created_at)


def iterate_outside_checkpoints_and_report(
    report: LogCheckReport, notes: Iterable[str], trusted: Sequence[NoteVerifier]
) -> Iterator[ReferenceCheckpoint]:
    for number, note in enumerate(notes, start=1):
        where = f"given checkpoint {number}"
        if trusted_checkpoint := verify_and_parse_checkpoint_or_report(report, note, where, trusted):
            yield ReferenceCheckpoint(trusted_checkpoint, where)


def verify_and_parse_checkpoint_or_report(
    report: LogCheckReport, note: str, where: str, trusted: Sequence[NoteVerifier]
) -> LogCheckpoint | None:
    try:
        parsed = SignedNote.parse(note)
        checkpoint = LogCheckpoint.parse(parsed.text)
        if not parsed.filter_keys_that_signed([key for key in trusted if key.name == checkpoint.origin]):
            report.add_log_problem(f"No known key of this log has signed {where}.")
            return None
    except NoteError as problem:
        report.add_log_problem(f"{where[0].upper()}{where[1:]} cannot be trusted: {problem}")
        return None
    return checkpoint


def report_leaf_and_checkpoint_differences(
    report: LogCheckReport, checkpoints: Sequence[ReferenceCheckpoint], now: datetime
) -> None:
    """Walk through the leaves once, and compare the root at every checkpoint's size on the way."""
    tree, waiting, differs = CompactMerkleTree(), list(checkpoints), False
    right: list[ReferenceCheckpoint] = []
    for leaf, columns in iterate_leaves_with_rows():
        if leaf.leaf_index != tree.size:
            report.add_log_problem(
                f"Entry {tree.size} is missing: the next in the log is {leaf.leaf_index}.", tree.size
            )
            return
        report_leaf_row_mismatch(report, leaf, columns, waiting, now)
        tree.add_merkle_leaf_hash(bytes(leaf.leaf_hash or b""))
        report.entries, report.root = tree.size, EMPTY_ROOT
        while waiting and waiting[0].checkpoint.size == tree.size:
            reached = waiting.pop(0)
            if reached.checkpoint.root == tree.current_merkle_root():
                right.append(reached)
            elif not differs:
                differs = True
                report.add_log_problem(describe_where_log_was_changed(right, reached))
    report.root = tree.current_merkle_root()
    for later in waiting:
        if later.checkpoint.size > tree.size:
            report.add_log_problem(
                f"{later.where[0].upper()}{later.where[1:]} covers {later.checkpoint.size:,} entries, and the log has "
                f"{tree.size:,}: its end was cut off, or an older copy of the database was restored.",
                tree.size,
            )


def describe_where_log_was_changed(right: Sequence[ReferenceCheckpoint], reached: ReferenceCheckpoint) -> str:
    """Say between which checkpoints the log was changed; `right` are those that it agrees with."""
    size = reached.checkpoint.size
    before = next((earlier for earlier in reversed(right) if earlier.checkpoint.size < size), None)
    since = before.checkpoint.size if before else 0
    when = f", which was right at {before.at}" if before and isinstance(before.at, datetime) else ""
    return (
        f"The log differs from {reached.where}: something among entries {since:,} to "
        f"{size - 1:,} was changed, added, removed or moved{when}."
    )


def iterate_leaves_with_rows() -> Iterator[tuple[AuditLeaf, Mapping[str, Any] | None]]:
    """Yield every numbered leaf in order, with its row's columns (None: the row is gone)."""
    after = -1
    while page := list(AuditLeaf.objects.filter(leaf_index__gt=after).order_by("leaf_index")[:STEP]):
        stored = entries.load_audit_columns_by_id(leaf.audit_id for leaf in page)
        for leaf in page:
            yield leaf, stored.get(leaf.audit_id)
        after = page[-1].leaf_index or 0


def report_leaf_row_mismatch(
    report: LogCheckReport,
    leaf: AuditLeaf,
    columns: Mapping[str, Any] | None,
    waiting: Sequence[ReferenceCheckpoint],
    now: datetime,
) -> None:
    if leaf.leaf_hash is None:
        return  # not sealed yet
    name = f"Entry {leaf.leaf_index} (audit row {leaf.audit_id})"
    if columns is None:
        report_missing_audit_row(report, leaf, name, waiting, now)
        return
    report.rows += 1
    if leaf.by_signalbox:
        update_newest_checked_row_time(report, columns["timestamp"])
    if leaf_hash(entries.encode_canonical_audit_entry(columns, by_signalbox=leaf.by_signalbox)) != bytes(
        leaf.leaf_hash
    ):
        report.add_log_problem(f"{name} was changed: it does not match its leaf.", leaf.leaf_index)


def report_missing_audit_row(
    report: LogCheckReport, leaf: AuditLeaf, name: str, waiting: Sequence[ReferenceCheckpoint], now: datetime
) -> None:
    """Report a row that is not there, unless its retention may be over.

    They are not where a checkpoint sealed it since, or where an entry before it is still kept.
    """
    if bytes(leaf.leaf_hash or b"") == leaf_hash(entries.build_entry_for_deleted_audit_row(leaf.audit_id)):
        return
    sealed = next((checkpoint.at for checkpoint in waiting if isinstance(checkpoint.at, datetime)), None)
    before = report.newest_row_at
    if sealed is not None and sealed > now - AUDIT_RETENTION:
        when = f"it was sealed at {sealed:%Y-%m-%d %H:%M} UTC"
    elif before is not None and before > now - AUDIT_RETENTION + SLACK:
        when = f"it was written after an entry of {before:%Y-%m-%d %H:%M} UTC that is still there"
    else:
        return
    if leaf.by_signalbox:
        report.add_log_problem(
            f"{name} was deleted: {when}, and rows are kept for {AUDIT_RETENTION.days} days.", leaf.leaf_index
        )
    else:
        report.foreign_gone.append(leaf.leaf_index or 0)


def update_newest_checked_row_time(report: LogCheckReport, stored: object) -> None:
    try:
        written = datetime.fromisoformat(str(stored))
    except ValueError:
        return
    if written.tzinfo is not None and (report.newest_row_at is None or written > report.newest_row_at):
        report.newest_row_at = written


def report_audit_rows_without_leaf(report: LogCheckReport) -> None:
    """Report rows without a leaf: somebody dropped the trigger before writing them."""
    after = -1
    while page := list(
        AuditLog.objects.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:STEP]
    ):
        audit_leaf_rows = set(AuditLeaf.objects.filter(pk__in=page).values_list("pk", flat=True))
        for pk in page:
            if pk not in audit_leaf_rows:
                report.add_log_problem(
                    f"Audit row {pk} is not in the log: it was added without being logged."
                )
        after = page[-1]
