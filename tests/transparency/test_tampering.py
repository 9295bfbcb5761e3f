"""Whatever the owner of the database does to the log, the check finds it, or an old checkpoint from outside does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from coordinator.actions.audit import sealing
from coordinator.models import AuditCheckpoint, AuditLeaf, AuditLog, AuditNode
from coordinator.transparency import entries, keys, log_check, merkle, proofs
from tests.transparency.conftest import findings, seal

pytestmark = pytest.mark.django_db(transaction=True)
Write = Callable[[int], list[AuditLog]]
TODAY = datetime.now(UTC).isoformat()


@pytest.fixture
def sealed(write: Write) -> list[AuditLog]:
    """Twenty entries, sealed after the tenth and the twentieth."""
    rows = write(10)
    seal()
    rows += write(10)
    seal()
    assert findings() == []
    return rows


def sql(statement: str, *parameters: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def leaf_made_to_fit(row: AuditLog) -> None:
    """Change the leaf, too, as a thorough forger would."""
    stored = entries.load_audit_columns_by_id([row.pk])[row.pk]
    AuditLeaf.objects.filter(pk=row.pk).update(
        leaf_hash=entries.compute_audit_leaf_hash_bytes(stored, by_signalbox=True)
    )


@pytest.mark.parametrize(
    "change",
    [
        "actor_id = 'user:mallory'",
        "reason = 'Never'",
        'metadata = \'{"command":"true"}\'',
        "timestamp = '2026-01-01T00:00:00+00:00'",
        "result = 'denied'",
        "trace_id = 'x'",
    ],
)
def test_an_edited_row_is_named(sealed: list[AuditLog], change: str) -> None:
    sql(f"UPDATE audit_logs SET {change} WHERE id = %s", sealed[4].pk)
    assert findings() == [f"Entry 4 (audit row {sealed[4].pk}) was changed: it does not match its leaf."]
    found = proofs.verify_and_load_entry_status(sealed[4])
    assert found.state is proofs.EntryState.ALTERED
    with pytest.raises(proofs.ProofUnavailable, match="changed after it was written"):
        proofs.create_inclusion_proof_for_row(sealed[4])


def test_an_edited_row_whose_leaf_was_made_to_fit_is_between_two_checkpoints(sealed: list[AuditLog]) -> None:
    sql("UPDATE audit_logs SET reason = 'Never' WHERE id = %s", sealed[14].pk)
    leaf_made_to_fit(sealed[14])
    (found,) = findings()
    assert "something among entries 10 to 19 was changed" in found
    assert proofs.verify_and_load_entry_status(sealed[14]).state is proofs.EntryState.UNPROVED


def test_all_nodes_made_to_fit_help_nobody(write: Write) -> None:
    rows = write(300)
    seal()
    sql("UPDATE audit_logs SET reason = 'Never' WHERE id = %s", rows[3].pk)
    leaf_made_to_fit(rows[3])
    assert proofs.verify_and_load_entry_status(rows[3]).state is proofs.EntryState.UNPROVED
    AuditNode.objects.all().delete()
    sealing.tree.store_and_count_merkle_nodes(300)
    write(1)
    with pytest.raises(sealing.InconsistentLog, match="not what the last checkpoint says"):
        seal()
    assert "something among entries 0 to 299 was changed" in findings()[0]


def test_a_deleted_row_is_missed_until_its_90_days_are_over(sealed: list[AuditLog]) -> None:
    sql("DELETE FROM audit_logs WHERE id = %s", sealed[7].pk)
    (found,) = findings()
    assert found.startswith(f"Entry 7 (audit row {sealed[7].pk}) was deleted: it was sealed at")
    assert findings(now=datetime.now(UTC) + timedelta(days=91)) == []


def test_a_deleted_row_is_missed_although_its_checkpoints_were_dated_back(sealed: list[AuditLog]) -> None:
    sql("DELETE FROM audit_logs WHERE id = %s", sealed[7].pk)
    AuditCheckpoint.objects.update(created_at=datetime.now(UTC) - timedelta(days=120))
    (found,) = findings()
    assert found.startswith(
        f"Entry 7 (audit row {sealed[7].pk}) was deleted: it was written after an entry of"
    )


def test_rows_that_were_imported_may_go_before_their_90_days_here(write: Write) -> None:
    write(2)
    sql("INSERT INTO audit_logs (timestamp, event_type, result) VALUES (%s, 'THEIRS', 'success')", TODAY)
    seal()
    AuditLog.objects.filter(event_type="THEIRS").delete()
    report = log_check.check_entire_audit_log([], keys.load_log_verifiers(), datetime.now(UTC))
    assert report.problems == []
    assert report.log_check_remark_texts[0].startswith(
        "Entries of other programs whose rows were deleted: 1, the first is entry 2."
    )


def numbered_anew(rows: list[AuditLog]) -> None:
    """Give the leaves of these rows the numbers from 0 on, as if nothing else had ever been there."""
    AuditLeaf.objects.update(leaf_index=None)
    for number, row in enumerate(rows):
        AuditLeaf.objects.filter(pk=row.pk).update(leaf_index=number)


def test_a_deleted_entry_is_missed_although_the_gap_was_closed(sealed: list[AuditLog]) -> None:
    sql("DELETE FROM audit_logs WHERE id = %s", sealed[7].pk)
    sql("DELETE FROM audit_leaves WHERE audit_id = %s", sealed[7].pk)
    numbered_anew([*sealed[:7], *sealed[8:]])
    told = findings()
    assert "something among entries 0 to 9 was changed, added, removed or moved" in told[0]
    assert "covers 20 entries, and the log has 19" in told[1]


def test_an_entry_that_was_put_in_between_is_found(sealed: list[AuditLog], write: Write) -> None:
    (forged,) = write(1)  # as Signalbox itself would
    numbered_anew([*sealed[:13], forged, *sealed[13:]])
    (found,) = findings()
    assert "something among entries 10 to 19 was changed, added, removed or moved" in found


def test_a_deleted_leaf_is_a_gap(sealed: list[AuditLog]) -> None:
    sql("DELETE FROM audit_leaves WHERE audit_id = %s", sealed[7].pk)
    assert "Entry 7 is missing: the next in the log is 8." in findings()
    assert proofs.verify_and_load_entry_status(sealed[7]).state is proofs.EntryState.MISSING
    assert proofs.verify_and_load_entry_status(sealed[9]).state is proofs.EntryState.UNPROVED


def test_a_row_put_in_beside_the_log_is_named(sealed: list[AuditLog]) -> None:
    sql(
        "INSERT INTO audit_logs (timestamp, event_type, result) VALUES ('2026-11-22T10:00:00+00:00', 'X', 'success')"
    )
    row = AuditLog.objects.get(event_type="X")
    sql("DELETE FROM audit_leaves WHERE audit_id = %s", row.pk)
    assert findings() == [f"Audit row {row.pk} is not in the log: it was added without being logged."]


def test_two_entries_that_changed_places_are_found(sealed: list[AuditLog]) -> None:
    one, other = sealed[2].pk, sealed[3].pk
    for pk, number in ((one, 1002), (other, 2), (one, 3)):
        sql("UPDATE audit_leaves SET leaf_index = %s WHERE audit_id = %s", number, pk)
    assert "something among entries 0 to 9 was changed" in findings()[0]


def test_a_tail_that_was_cut_off_is_missed_and_never_sealed_over(
    sealed: list[AuditLog], write: Write
) -> None:
    for row in sealed[15:]:
        sql("DELETE FROM audit_leaves WHERE audit_id = %s", row.pk)
        sql("DELETE FROM audit_logs WHERE id = %s", row.pk)
    (found,) = findings()
    assert "covers 20 entries, and the log has 15" in found
    write(2)
    with pytest.raises(sealing.InconsistentLog, match="entries are missing at its end"):
        seal()
    write(10)  # more than there were
    with pytest.raises(sealing.InconsistentLog, match="not what the last checkpoint says"):
        seal()


def test_an_older_copy_is_found_by_a_checkpoint_that_was_kept_elsewhere(sealed: list[AuditLog]) -> None:
    kept = AuditCheckpoint.objects.get(tree_size=20).note
    AuditCheckpoint.objects.filter(tree_size=20).delete()
    for row in sealed[10:]:
        sql("DELETE FROM audit_leaves WHERE audit_id = %s", row.pk)
        sql("DELETE FROM audit_logs WHERE id = %s", row.pk)
    assert findings() == []  # the copy itself is sound
    (found,) = findings(kept)
    assert found.startswith("Given checkpoint 1 covers 20 entries, and the log has 10")


def test_a_log_written_anew_by_who_has_the_key_is_found_by_an_old_checkpoint(sealed: list[AuditLog]) -> None:
    kept = AuditCheckpoint.objects.get(tree_size=20).note
    sql("UPDATE audit_logs SET reason = 'Never' WHERE id = %s", sealed[4].pk)
    leaf_made_to_fit(sealed[4])
    AuditCheckpoint.objects.all().delete()
    seal()
    assert findings() == []
    (found,) = findings(kept)
    assert found.startswith("The log differs from given checkpoint 1: something among entries 0 to 19")


def test_a_checkpoint_that_was_edited_is_not_trusted(sealed: list[AuditLog]) -> None:
    note = AuditCheckpoint.objects.get(tree_size=10).note
    AuditCheckpoint.objects.filter(tree_size=10).update(note=note.replace("\n10\n", "\n11\n"))
    (found,) = findings()
    assert found.startswith("The database's checkpoint of 10 entries cannot be trusted: The signature of")


def test_a_checkpoint_of_a_stranger_is_not_trusted(sealed: list[AuditLog]) -> None:
    stranger = sealing.keys.NoteSigner.generate_note_signer(sealing.keys.log_origin_or_new_name())
    root = merkle.leaf_hash(b"anything")
    forged = stranger.sign_note(sealing.LogCheckpoint(stranger.name, 20, root).checkpoint_text)
    assert findings(forged) == ["No known key of this log has signed given checkpoint 1."]


def test_a_checkpoint_made_to_fit_is_not_believed_by_an_entry_s_page(sealed: list[AuditLog]) -> None:
    sql("UPDATE audit_logs SET reason = 'Never' WHERE id = %s", sealed[4].pk)
    leaf_made_to_fit(sealed[4])
    root = sealing.tree.LogTree().compute_log_root_hash(20)
    AuditCheckpoint.objects.filter(tree_size=20).update(root_hash=root)
    found = proofs.verify_and_load_entry_status(sealed[4])
    assert (found.state, "no key of this log has signed" in found.problem) == (
        proofs.EntryState.UNPROVED,
        True,
    )
