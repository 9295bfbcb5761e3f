"""The whole log as lines that somebody without Signalbox can check (verify_audit.py reads them).

The first line is about the file: {"signalbox_audit_export": 1, "keys": […], "checkpoint": "the signed note"}. Each
further line is a leaf, in order: {"index": 0, "entry": "the canonical entry, as text"}, or {"index": 0, "hash": "64 hex
digits"} where the row is not kept any longer or no longer fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from coordinator.models import AuditCheckpoint, AuditLeaf
from coordinator.transparency import entries
from coordinator.transparency.merkle import leaf_hash
from coordinator.transparency.notes import NoteVerifier

STEP = 1_000  # leaves read at a time


def iterate_log_export_records(
    checkpoint: AuditCheckpoint, verifiers: Sequence[NoteVerifier]
) -> Iterator[dict[str, Any]]:
    """Yield the lines of an export of what a checkpoint covers."""
    yield {
        "signalbox_audit_export": 1,
        "keys": [key.public_key_text for key in verifiers],
        "checkpoint": checkpoint.note,
    }
    for low in range(0, checkpoint.tree_size, STEP):
        high = min(low + STEP, checkpoint.tree_size)
        leaves = AuditLeaf.objects.filter(leaf_index__gte=low, leaf_index__lt=high).order_by("leaf_index")
        yield from iterate_leaf_export_records(list(leaves))


def iterate_leaf_export_records(leaves: list[AuditLeaf]) -> Iterator[dict[str, Any]]:
    stored = entries.load_audit_columns_by_id(leaf.audit_id for leaf in leaves)
    for leaf in leaves:
        stored_hash, columns = bytes(leaf.leaf_hash or b""), stored.get(leaf.audit_id)
        entry = (
            entries.encode_canonical_audit_entry(columns, by_signalbox=leaf.by_signalbox)
            if columns is not None
            else b""
        )
        if columns is not None and leaf_hash(entry) == stored_hash:
            yield {"index": leaf.leaf_index, "entry": entry.decode()}
        else:
            yield {"index": leaf.leaf_index, "hash": stored_hash.hex()}
