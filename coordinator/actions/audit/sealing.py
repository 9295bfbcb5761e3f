"""Sealing of the audit log: hashes for rows of other programs, signed checkpoints, and their export.

It runs about once a minute, before each backup, and by `signalbox manage audit seal`; in one worker at a time (a
lease).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from coordinator.actions.upkeep.jobs import (
    LEASE_RENEWER,
    ClaimedJob,
    JobAttemptFailed,
    claim_jobs,
    delete_completed_job,
    enqueue_jobs,
    job_retry_delay,
    postpone_job,
    reschedule_waiting_jobs,
    retry_job_later,
)
from coordinator.models import AuditCheckpoint, AuditDelivery, AuditKey, AuditLeaf, Job
from coordinator.transparency import destinations as places
from coordinator.transparency import entries, keys, tree
from coordinator.transparency.destinations import CheckpointDestination, NotDelivered
from coordinator.transparency.merkle import leaf_hash
from coordinator.transparency.notes import LogCheckpoint
from coordinator.transparency.state import SEND_CHECKPOINT

log = logging.getLogger(__name__)

STEP = 500  # leaves hashed in one transaction


class InconsistentLog(Exception):
    """The log is not the continuation of its last checkpoint: it was tampered with. No new one is signed."""


def seal_and_send_audit_log(now: datetime) -> None:
    """Seal what is new and send it out.

    Raises JobAttemptFailed where it cannot be sealed: then nothing is sent, either.
    """
    try:
        sign_audit_checkpoint(now)
    except (InconsistentLog, keys.KeyUnusable) as problem:
        raise JobAttemptFailed(f"The audit log was not sealed: {problem}") from None
    send_pending_checkpoints(now)


def sign_audit_checkpoint(now: datetime) -> AuditCheckpoint | None:
    """Sign a checkpoint of all entries there are; return it, or None where nothing is new.

    Raises InconsistentLog where the log does not continue its last checkpoint, and KeyUnusable.
    """
    while fill_missing_leaf_hashes():
        pass
    size = count_contiguous_hashed_leaves()
    last = tree.find_newest_checkpoint()
    if last is not None:
        require_log_extends_checkpoint(last, size)
        if last.tree_size == size:
            return None
    if size == 0:
        return None
    signer = keys.load_or_create_audit_signer()
    try:
        tree.store_and_count_merkle_nodes(size)
        root = tree.LogTree().compute_log_root_hash(size)
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


def fill_missing_leaf_hashes() -> int:
    """Fill in the hashes of up to STEP leaves that have none: rows of other programs; return how many."""
    leaves = AuditLeaf.objects.filter(leaf_hash__isnull=True, leaf_index__isnull=False).order_by("leaf_index")
    bare = list(leaves.values_list("audit_id", flat=True)[:STEP])
    stored = entries.load_audit_columns_by_id(bare)
    hashes = [(hash_audit_entry(audit_id, stored.get(audit_id)), audit_id) for audit_id in bare]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE audit_leaves SET leaf_hash = %s WHERE audit_id = %s AND leaf_hash IS NULL", hashes
        )
    return len(hashes)


def hash_audit_entry(audit_id: int, columns: Mapping[str, Any] | None) -> bytes:
    if columns is None:
        return leaf_hash(entries.build_entry_for_deleted_audit_row(audit_id))
    return entries.compute_audit_leaf_hash_bytes(columns, by_signalbox=False)


def count_contiguous_hashed_leaves() -> int:
    """Return up to which leaf the log can be sealed: all of them, or up to the first without a hash."""
    bare = (
        AuditLeaf.objects.filter(leaf_hash__isnull=True, leaf_index__isnull=False)
        .order_by("leaf_index")
        .first()
    )
    if bare is not None:
        return bare.leaf_index or 0
    return tree.count_log_entries()


def require_log_extends_checkpoint(last: AuditCheckpoint, size: int) -> None:
    """Raise InconsistentLog unless the log of `size` entries begins with what the last checkpoint covers."""
    if size < last.tree_size:
        raise InconsistentLog(
            f"The last checkpoint covers {last.tree_size:,} entries, and the log has {size:,}: entries are missing at "
            "its end, or an older copy of the database was put back. Run `signalbox manage audit verify`."
        )
    try:
        same = tree.LogTree().compute_log_root_hash(last.tree_size) == bytes(last.root_hash)
    except tree.MissingLeaf as gap:
        raise InconsistentLog(f"{gap} Run `signalbox manage audit verify`.") from None
    if not same:
        raise InconsistentLog(
            f"The first {last.tree_size:,} entries are not what the last checkpoint says. "
            "Run `signalbox manage audit verify`."
        )


def send_pending_checkpoints(now: datetime, *, at_once: bool = False) -> None:
    """Send the newest checkpoint to every place that does not have it yet; `at_once` also to those that failed lately.

    Each such place has a job, so that one that fails is tried again by itself, later and later. They are done in the
    order of the places: witnesses first.
    """
    newest = tree.find_newest_checkpoint()
    if newest is None:
        return
    destinations = {place.name: place for place in places.load_checkpoint_destinations()}
    sent_sizes = dict(AuditDelivery.objects.values_list("place", "tree_size"))
    behind = [name for name in destinations if sent_sizes.get(name, 0) < newest.tree_size]
    jobs = Job.objects.filter(name=SEND_CHECKPOINT)
    queued = set(jobs.values_list("subject", flat=True))
    if missing := [name for name in behind if name not in queued]:
        enqueue_jobs(SEND_CHECKPOINT, missing, now=now)
    if queued - set(behind):
        jobs.exclude(subject__in=behind).delete()  # the setting names them no more
    if at_once:
        reschedule_waiting_jobs(SEND_CHECKPOINT, behind, at=now, now=now)
    claims = {job.subject: job for job in claim_jobs([SEND_CHECKPOINT], now=now)}
    with LEASE_RENEWER.renew_leases_during_block(claims.values()):
        for name in [name for name in behind if name in claims]:
            send_checkpoint_or_reschedule_job(destinations[name], claims[name], newest, now)


def send_checkpoint_or_reschedule_job(
    destination: CheckpointDestination, job: ClaimedJob, checkpoint: AuditCheckpoint, now: datetime
) -> None:
    delivery, _ = AuditDelivery.objects.get_or_create(place=destination.name)
    last = delivery.delivered_at
    if isinstance(last, datetime) and now - destination.pace < last <= now:
        postpone_job(job, at=last + destination.pace, now=now)
        return
    try:
        note = destination.send(checkpoint.note, delivery.tree_size)
    except NotDelivered as problem:
        log.warning("A checkpoint was not delivered to %s: %s", destination.name, problem)
        retry_job_later(job, error=str(problem), at=now + job_retry_delay(job.attempts), now=now)
        return
    except Exception as problem:  # one destination's error must not keep the others from receiving it
        log.exception("A checkpoint was not delivered to %s", destination.name)
        retry_job_later(job, error=type(problem).__name__, at=now + job_retry_delay(job.attempts), now=now)
        return
    with transaction.atomic():
        if note != checkpoint.note:
            checkpoint.note = note
            checkpoint.save(update_fields=["note"])
        AuditDelivery.objects.filter(pk=delivery.pk, tree_size__lt=checkpoint.tree_size).update(
            tree_size=checkpoint.tree_size, delivered_at=now
        )
        delete_completed_job(job)
