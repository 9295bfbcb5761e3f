"""Sealing the audit log: hashes for rows of other programs, a signed checkpoint, and its way to places outside.

About once a minute, before each backup, and by `manage.py audit seal`; by one worker at a time (a lease).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from coordinator.models import AuditCheckpoint, AuditDelivery, AuditKey, AuditLeaf
from coordinator.transparency import destinations as places
from coordinator.transparency import entries, keys, tree
from coordinator.transparency.destinations import CheckpointDestination, NotDelivered
from coordinator.transparency.merkle import leaf_hash
from coordinator.transparency.notes import LogCheckpoint

log = logging.getLogger(__name__)

STEP = 500  # leaves hashed in one transaction


class InconsistentLog(Exception):
    """The log is not the continuation of its last checkpoint: it was tampered with. No new one is signed."""


def seal_and_send_log(now: datetime) -> None:
    """Seal what is new and send it out; what stands in the way is logged, and told by the doctor and on the page."""
    try:
        sign_audit_checkpoint(now)
    except (InconsistentLog, keys.KeyUnusable) as problem:
        log.error("The audit log was not sealed: %s", problem)
        return
    send_pending_checkpoints(now)


def sign_audit_checkpoint(now: datetime) -> AuditCheckpoint | None:
    """Sign a checkpoint of all entries there are; return it, or None where nothing is new.

    Raises InconsistentLog where the log does not continue its last checkpoint, and KeyUnusable.
    """
    while hash_unsealed_leaves():
        pass
    size = count_hashed_leaves()
    last = tree.find_newest_checkpoint()
    if last is not None:
        require_log_continues(last, size)
        if last.tree_size == size:
            return None
    if size == 0:
        return None
    signer = keys.load_audit_signer()
    try:
        tree.store_complete_nodes(size)
        root = tree.LogTree().compute_root_hash(size)
    except tree.MissingLeaf as gap:
        raise InconsistentLog(str(gap)) from None
    note = signer.sign_note(LogCheckpoint(signer.name, size, root).checkpoint_text)
    with transaction.atomic():
        AuditKey.objects.get_or_create(
            verifier=signer.public_verifier.public_key_text, defaults={"first_used_at": now}
        )
        sealed, is_new = AuditCheckpoint.objects.get_or_create(
            tree_size=size, defaults={"root_hash": root, "note": note, "created_at": now}
        )
    return sealed if is_new else None  # another process was as far at the same moment


def hash_unsealed_leaves() -> int:
    """Fill in the hashes of up to STEP leaves that have none: rows of other programs; return how many."""
    leaves = AuditLeaf.objects.filter(leaf_hash__isnull=True, leaf_index__isnull=False).order_by("leaf_index")
    bare = list(leaves.values_list("audit_id", flat=True)[:STEP])
    stored = entries.load_stored_columns(bare)
    hashes = [(hash_audit_entry(audit_id, stored.get(audit_id)), audit_id) for audit_id in bare]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE audit_leaves SET leaf_hash = %s WHERE audit_id = %s AND leaf_hash IS NULL", hashes
        )
    return len(hashes)


def hash_audit_entry(audit_id: int, columns: Mapping[str, Any] | None) -> bytes:
    if columns is None:
        return leaf_hash(entries.build_lost_entry(audit_id))
    return entries.compute_entry_hash(columns, by_signalbox=False)


def count_hashed_leaves() -> int:
    """Return up to which leaf the log can be sealed: all of them, or up to the first without a hash."""
    bare = (
        AuditLeaf.objects.filter(leaf_hash__isnull=True, leaf_index__isnull=False)
        .order_by("leaf_index")
        .first()
    )
    if bare is not None:
        return bare.leaf_index or 0
    return tree.count_log_entries()


def require_log_continues(last: AuditCheckpoint, size: int) -> None:
    """Raise InconsistentLog unless the log of `size` entries begins with what the last checkpoint covers."""
    if size < last.tree_size:
        raise InconsistentLog(
            f"The last checkpoint covers {last.tree_size:,} entries, and the log has {size:,}: entries are missing at "
            "its end, or an older copy of the database was put back. Run `manage.py audit verify`."
        )
    try:
        same = tree.LogTree().compute_root_hash(last.tree_size) == bytes(last.root_hash)
    except tree.MissingLeaf as gap:
        raise InconsistentLog(f"{gap} Run `manage.py audit verify`.") from None
    if not same:
        raise InconsistentLog(
            f"The first {last.tree_size:,} entries are not what the last checkpoint says. Run `manage.py audit verify`."
        )


def send_pending_checkpoints(now: datetime) -> None:
    """Send the newest checkpoint to every place that does not have it yet; note what came of it."""
    newest = tree.find_newest_checkpoint()
    if newest is None:
        return
    for place in places.load_checkpoint_destinations():
        known, _ = AuditDelivery.objects.get_or_create(place=place.name)
        if known.tree_size < newest.tree_size and is_delivery_due(place, known, now):
            send_checkpoint(place, known, newest, now)


def is_delivery_due(place: CheckpointDestination, known: AuditDelivery, now: datetime) -> bool:
    last = known.delivered_at
    return not isinstance(last, datetime) or last <= now - place.pace or last > now


def send_checkpoint(
    place: CheckpointDestination, known: AuditDelivery, checkpoint: AuditCheckpoint, now: datetime
) -> None:
    try:
        note = place.send(checkpoint.note, known.tree_size)
    except NotDelivered as problem:
        AuditDelivery.objects.filter(pk=known.pk).update(failed_at=now, error=str(problem)[:500])
        log.warning("A checkpoint was not delivered to %s: %s", place.name, problem)
        return
    except Exception as problem:  # one place's fault must not keep the others from hearing
        AuditDelivery.objects.filter(pk=known.pk).update(failed_at=now, error=type(problem).__name__)
        log.exception("A checkpoint was not delivered to %s", place.name)
        return
    with transaction.atomic():
        if note != checkpoint.note:
            checkpoint.note = note
            checkpoint.save(update_fields=["note"])
        AuditDelivery.objects.filter(pk=known.pk, tree_size__lt=checkpoint.tree_size).update(
            tree_size=checkpoint.tree_size, delivered_at=now, failed_at=None, error=None
        )
