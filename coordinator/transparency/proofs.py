"""The state of one entry in the log, and its proof as a file that people can mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from coordinator.models import AuditCheckpoint, AuditLeaf, AuditLog
from coordinator.transparency import entries, merkle
from coordinator.transparency.keys import known
from coordinator.transparency.notes import Checkpoint, Note, NoteError, Proof
from coordinator.transparency.tree import Gap, Tree, newest_checkpoint


class EntryState(StrEnum):
    """An entry's state in the log."""

    SEALED = "sealed"  # as it was written, and a signed checkpoint covers it
    WAITING = "waiting"  # as it was written; the next checkpoint will cover it
    ALTERED = "altered"  # the row is not what was written
    # The row fits its leaf, but no signed checkpoint shows that this leaf was in the log.
    UNPROVED = "unproved"
    MISSING = "missing"  # it has no leaf: somebody went around the log


class NoProof(Exception):
    """There is no proof of an entry. The text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An audit row in the log. `checkpoint` is the newest that covers it, `problem` says what is wrong in words."""

    standing: EntryState
    index: int | None
    by_signalbox: bool
    checkpoint: AuditCheckpoint | None = None
    problem: str = ""
    canonical: bytes = b""
    path: tuple[bytes, ...] = ()

    @property
    def witnesses(self) -> list[str]:
        return witnesses_of(self.checkpoint) if self.checkpoint else []


def look_up(row: AuditLog) -> Entry:
    """Return a row's state in the log now."""
    return look_up_all([row])[0]


def look_up_all(rows: Sequence[AuditLog]) -> list[Entry]:
    """Return each row's state in the log now."""
    ids = [row.pk for row in rows]
    leaves, stored = AuditLeaf.objects.in_bulk(ids), entries.stored_columns(ids)
    newest, tree = newest_checkpoint(), Tree()
    is_sound = newest is not None and _is_sound(newest)
    return [_entry(leaves.get(pk), stored.get(pk), newest, tree, is_sound=is_sound) for pk in ids]


def changed_among(rows: Sequence[AuditLog]) -> set[int]:
    """Return the ids of those rows that do not match their leaves, or have none: fast enough for lists."""
    ids = [row.pk for row in rows]
    leaves, stored = AuditLeaf.objects.in_bulk(ids), entries.stored_columns(ids)
    return {pk for pk in ids if not _fits(leaves.get(pk), stored.get(pk))}


def _fits(leaf: AuditLeaf | None, columns: Mapping[str, Any] | None) -> bool:
    """Say whether a row is what its leaf says. A leaf without a hash is not sealed yet."""
    if leaf is None or columns is None:
        return leaf is not None
    return leaf.leaf_hash is None or bytes(leaf.leaf_hash) == entries.hash_of(
        columns, by_signalbox=leaf.by_signalbox
    )


def _is_sound(checkpoint: AuditCheckpoint) -> bool:
    """Say whether a known key has signed what the columns beside the note say."""
    try:
        note = Note.parse(checkpoint.note)
        found = Checkpoint.parse(note.text)
        signed = note.signed_by(key for key in known() if key.name == found.origin)
    except NoteError:
        return False
    return bool(signed) and (found.size, found.root) == (checkpoint.tree_size, bytes(checkpoint.root_hash))


def _entry(
    leaf: AuditLeaf | None,
    columns: Mapping[str, Any] | None,
    newest: AuditCheckpoint | None,
    tree: Tree,
    *,
    is_sound: bool,
) -> Entry:
    if leaf is None:
        problem = "This row is not in the log: it was added without being logged."
        return Entry(EntryState.MISSING, None, False, problem=problem)
    entry = Entry(EntryState.WAITING, leaf.leaf_index, leaf.by_signalbox)
    if leaf.leaf_index is None or leaf.leaf_hash is None:
        return entry
    canonical = b"" if columns is None else entries.entry_of(columns, by_signalbox=leaf.by_signalbox)
    if merkle.leaf_hash(canonical) != bytes(leaf.leaf_hash):
        problem = "The row was changed after it was written: it does not match its leaf in the log."
        return replace(entry, standing=EntryState.ALTERED, problem=problem)
    entry = replace(entry, canonical=canonical)
    if newest is None or newest.tree_size <= leaf.leaf_index:
        return entry
    if not is_sound:
        return _unproved(
            entry, "The newest checkpoint was changed: no key of this log has signed what it says."
        )
    return _sealed(entry, leaf, newest, tree)


def _sealed(entry: Entry, leaf: AuditLeaf, newest: AuditCheckpoint, tree: Tree) -> Entry:
    index, size, found = leaf.leaf_index or 0, newest.tree_size, bytes(leaf.leaf_hash or b"")
    try:
        path = merkle.inclusion_path(tree.subtree, index, size)
        merkle.verify_inclusion(found, index, size, path, bytes(newest.root_hash))
    except (Gap, merkle.ProofError):
        return _unproved(
            entry,
            f"The log was changed: it does not show this entry in the signed checkpoint of {size:,} entries.",
        )
    return replace(entry, standing=EntryState.SEALED, checkpoint=newest, path=tuple(path))


def _unproved(entry: Entry, problem: str) -> Entry:
    return replace(entry, standing=EntryState.UNPROVED, problem=problem)


def proof_of(row: AuditLog) -> Proof:
    """Return the proof file of a row, with its canonical form as the extra data. Raises NoProof."""
    entry = look_up(row)
    if entry.standing is EntryState.WAITING:
        raise NoProof(
            "The log is sealed once a minute, and this entry is not sealed yet. Try again in a minute."
        )
    if entry.standing is not EntryState.SEALED:
        raise NoProof(f"There is no proof of this entry. {entry.problem}")
    return proof_of_entry(entry)


def proof_of_entry(entry: Entry) -> Proof:
    """Return the proof file of an entry that is sealed."""
    assert entry.checkpoint is not None
    assert entry.index is not None
    return Proof(entry.index, entry.path, entry.checkpoint.note, entry.canonical)


def witnesses_of(checkpoint: AuditCheckpoint) -> list[str]:
    """Return the names of those who signed a checkpoint besides the log itself."""
    try:
        note = Note.parse(checkpoint.note)
        own = Checkpoint.parse(note.text).origin
    except NoteError:
        return []
    return sorted({one.name for one in note.signatures} - {own})
