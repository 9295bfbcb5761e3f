"""The state of one entry in the log, and its proof as a file that people can mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from coordinator.models import AuditCheckpoint, AuditLeaf, AuditLog
from coordinator.transparency import entries, merkle
from coordinator.transparency.keys import load_log_verifiers
from coordinator.transparency.notes import InclusionProof, LogCheckpoint, NoteError, SignedNote
from coordinator.transparency.tree import LogTree, MissingLeaf, find_newest_checkpoint


class EntryState(StrEnum):
    """An entry's state in the log."""

    SEALED = "sealed"  # as it was written, and a signed checkpoint covers it
    WAITING = "waiting"  # as it was written; the next checkpoint will cover it
    ALTERED = "altered"  # the row is not what was written
    # The row fits its leaf, but no signed checkpoint shows that this leaf was in the log.
    UNPROVED = "unproved"
    MISSING = "missing"  # it has no leaf: somebody went around the log


class ProofUnavailable(Exception):
    """There is no proof of an entry. The text says why."""


@dataclass(frozen=True, slots=True)
class LogEntryStatus:
    """An audit row in the log. `checkpoint` is the newest that covers it, `problem` says what is wrong in words."""

    state: EntryState
    index: int | None
    by_signalbox: bool
    checkpoint: AuditCheckpoint | None = None
    problem: str = ""
    canonical: bytes = b""
    path: tuple[bytes, ...] = ()

    @property
    def witness_names(self) -> list[str]:
        return list_witness_names(self.checkpoint) if self.checkpoint else []


def verify_and_load_entry_status(row: AuditLog) -> LogEntryStatus:
    """Return a row's state in the log now."""
    return verify_and_load_entry_statuses([row])[0]


def verify_and_load_entry_statuses(rows: Sequence[AuditLog]) -> list[LogEntryStatus]:
    """Return each row's state in the log now."""
    ids = [row.pk for row in rows]
    leaves, stored = AuditLeaf.objects.in_bulk(ids), entries.load_audit_columns_by_id(ids)
    newest, tree = find_newest_checkpoint(), LogTree()
    is_sound = newest is not None and is_checkpoint_signature_valid(newest)
    return [evaluate_log_entry(leaves.get(pk), stored.get(pk), newest, tree, is_sound=is_sound) for pk in ids]


def find_row_ids_differing_from_log(rows: Sequence[AuditLog]) -> set[int]:
    """Return the ids of those rows that do not match their leaves, or have none: fast enough for lists."""
    ids = [row.pk for row in rows]
    leaves, stored = AuditLeaf.objects.in_bulk(ids), entries.load_audit_columns_by_id(ids)
    return {pk for pk in ids if not audit_row_matches_leaf(leaves.get(pk), stored.get(pk))}


def audit_row_matches_leaf(leaf: AuditLeaf | None, columns: Mapping[str, Any] | None) -> bool:
    """Say whether a row is what its leaf says. A leaf without a hash is not sealed yet."""
    if leaf is None or columns is None:
        return leaf is not None
    return leaf.leaf_hash is None or bytes(leaf.leaf_hash) == entries.compute_audit_leaf_hash_bytes(
        columns, by_signalbox=leaf.by_signalbox
    )


def is_checkpoint_signature_valid(checkpoint: AuditCheckpoint) -> bool:
    """Say whether a known key has signed what the columns beside the note say."""
    try:
        note = SignedNote.parse(checkpoint.note)
        log_checkpoint = LogCheckpoint.parse(note.text)
        signed = note.filter_keys_that_signed(
            key for key in load_log_verifiers() if key.name == log_checkpoint.origin
        )
    except NoteError:
        return False
    return bool(signed) and (log_checkpoint.size, log_checkpoint.root) == (
        checkpoint.tree_size,
        bytes(checkpoint.root_hash),
    )


def evaluate_log_entry(
    leaf: AuditLeaf | None,
    columns: Mapping[str, Any] | None,
    newest: AuditCheckpoint | None,
    tree: LogTree,
    *,
    is_sound: bool,
) -> LogEntryStatus:
    if leaf is None:
        problem = "This row is not in the log: it was added without being logged."
        return LogEntryStatus(EntryState.MISSING, None, False, problem=problem)
    entry = LogEntryStatus(EntryState.WAITING, leaf.leaf_index, leaf.by_signalbox)
    if leaf.leaf_index is None or leaf.leaf_hash is None:
        return entry
    canonical = (
        b""
        if columns is None
        else entries.encode_canonical_audit_entry(columns, by_signalbox=leaf.by_signalbox)
    )
    if merkle.leaf_hash(canonical) != bytes(leaf.leaf_hash):
        problem = "The row was changed after it was written: it does not match its leaf in the log."
        return replace(entry, state=EntryState.ALTERED, problem=problem)
    entry = replace(entry, canonical=canonical)
    if newest is None or newest.tree_size <= leaf.leaf_index:
        return entry
    if not is_sound:
        return log_entry_with_failed_proof(
            entry, "The newest checkpoint was changed: no key of this log has signed what it says."
        )
    return prove_entry_or_mark_unproved(entry, leaf, newest, tree)


def prove_entry_or_mark_unproved(
    entry: LogEntryStatus, leaf: AuditLeaf, newest: AuditCheckpoint, tree: LogTree
) -> LogEntryStatus:
    index, size, leaf_hash = leaf.leaf_index or 0, newest.tree_size, bytes(leaf.leaf_hash or b"")
    try:
        path = merkle.inclusion_path(tree.compute_subtree_hash, index, size)
        merkle.require_valid_inclusion_proof(leaf_hash, index, size, path, bytes(newest.root_hash))
    except (MissingLeaf, merkle.ProofError):
        return log_entry_with_failed_proof(
            entry,
            f"The log was changed: it does not show this entry in the signed checkpoint of {size:,} entries.",
        )
    return replace(entry, state=EntryState.SEALED, checkpoint=newest, path=tuple(path))


def log_entry_with_failed_proof(entry: LogEntryStatus, problem: str) -> LogEntryStatus:
    return replace(entry, state=EntryState.UNPROVED, problem=problem)


def create_inclusion_proof_for_row(row: AuditLog) -> InclusionProof:
    """Return the proof file of a row, with its canonical form as the extra data. Raises ProofUnavailable."""
    entry = verify_and_load_entry_status(row)
    if entry.state is EntryState.WAITING:
        raise ProofUnavailable(
            "The log is sealed once a minute, and this entry is not sealed yet. Try again in a minute."
        )
    if entry.state is not EntryState.SEALED:
        raise ProofUnavailable(f"There is no proof of this entry. {entry.problem}")
    return build_sealed_entry_inclusion_proof(entry)


def build_sealed_entry_inclusion_proof(entry: LogEntryStatus) -> InclusionProof:
    """Return the proof file of an entry that is sealed."""
    assert entry.checkpoint is not None
    assert entry.index is not None
    return InclusionProof(entry.index, entry.path, entry.checkpoint.note, entry.canonical)


def list_witness_names(checkpoint: AuditCheckpoint) -> list[str]:
    """Return the names of those who signed a checkpoint besides the log itself."""
    try:
        note = SignedNote.parse(checkpoint.note)
        own = LogCheckpoint.parse(note.text).origin
    except NoteError:
        return []
    return sorted({signature.name for signature in note.signatures} - {own})
