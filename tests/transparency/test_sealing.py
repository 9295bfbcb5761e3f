"""Each audit row is a leaf; leaves are numbered as they are committed, and sealed by a signed checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from coordinator.actions.audit import sealing
from coordinator.models import AuditCheckpoint, AuditKey, AuditLeaf, AuditLog
from coordinator.transparency import entries, keys, merkle
from coordinator.transparency.notes import LogCheckpoint, SignedNote
from tests.transparency.conftest import findings, seal

pytestmark = pytest.mark.django_db(transaction=True)
Write = Callable[[int], list[AuditLog]]
FOREIGN = """
INSERT INTO audit_logs (timestamp, event_type, actor_id, result, metadata) VALUES (%s, 'THEIRS', 'x', 'success', %s)"""


def by_another_program(metadata: str | None = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(FOREIGN, ["2026-11-22T10:00:00+00:00", metadata])


def test_a_row_gets_its_number_and_its_hash_in_its_own_transaction(write: Write) -> None:
    rows = write(3)
    leaves = list(AuditLeaf.objects.order_by("leaf_index"))
    assert [(leaf.audit_id, leaf.leaf_index, leaf.by_signalbox) for leaf in leaves] == [
        (row.pk, number, True) for number, row in enumerate(rows)
    ]
    stored = entries.load_audit_columns_by_id([row.pk for row in rows])
    for leaf in leaves:
        entry = entries.encode_canonical_audit_entry(stored[leaf.audit_id], by_signalbox=True)
        assert bytes(leaf.leaf_hash or b"") == merkle.leaf_hash(entry)


def test_what_is_rolled_back_leaves_no_gap(write: Write) -> None:
    write(1)
    with transaction.atomic():
        write(2)
        transaction.set_rollback(True)
    write(1)
    assert list(AuditLeaf.objects.order_by("leaf_index").values_list("leaf_index", flat=True)) == [0, 1]


def test_a_row_of_another_program_is_taken_in_and_marked(write: Write) -> None:
    write(1)
    by_another_program('{"a": 1, "a": 2, "big": 123456789012345678901234567890}')
    write(1)
    made = seal()
    assert made is not None
    assert made.tree_size == 3
    theirs = AuditLeaf.objects.get(leaf_index=1)
    assert not theirs.by_signalbox
    stored = entries.load_audit_columns_by_id([theirs.audit_id])[theirs.audit_id]
    entry = entries.encode_canonical_audit_entry(stored, by_signalbox=False)
    assert b'"written_by":"other program"' in entry
    assert b'"metadata_text":"{\\"a\\": 1, \\"a\\": 2' in entry
    assert bytes(theirs.leaf_hash or b"") == merkle.leaf_hash(entry)
    assert findings() == []


def test_a_row_that_is_gone_before_it_was_read_is_told_as_lost(write: Write) -> None:
    write(1)
    by_another_program()
    AuditLog.objects.filter(event_type="THEIRS").delete()
    made = seal()
    assert made is not None
    assert made.tree_size == 2
    assert findings() == []


def test_a_checkpoint_is_signed_by_a_key_outside_the_database(write: Write, key_file: Path) -> None:
    write(5)
    made = seal()
    assert made is not None
    assert key_file.stat().st_mode & 0o777 == 0o600
    note = SignedNote.parse(made.note)
    checkpoint = LogCheckpoint.parse(note.text)
    assert (checkpoint.size, checkpoint.root) == (5, bytes(made.root_hash))
    (key,) = keys.load_log_verifiers()
    assert note.filter_keys_that_signed([key]) == [key]
    assert (
        AuditKey.objects.get().verifier == keys.load_or_create_audit_signer().public_verifier.public_key_text
    )


def test_nothing_new_makes_no_checkpoint(write: Write) -> None:
    assert seal() is None
    write(1)
    assert seal() is not None
    assert seal() is None
    assert AuditCheckpoint.objects.count() == 1


def test_two_processes_that_seal_the_same_entries_make_one_checkpoint(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(3)
    assert seal() is not None
    monkeypatch.setattr(sealing.tree, "find_newest_checkpoint", lambda: None)  # as it was a moment before
    assert seal() is None
    assert AuditCheckpoint.objects.count() == 1


def test_a_new_key_signs_from_then_on_and_old_checkpoints_stay_good(write: Write, key_file: Path) -> None:
    write(2)
    seal()
    old = keys.load_or_create_audit_signer()
    new = keys.replace_audit_key()
    assert (new.name, new.seed != old.seed) == (old.name, True)
    write(2)
    seal()
    assert [key.public_key_text for key in keys.load_log_verifiers()] == [
        old.public_verifier.public_key_text,
        new.public_verifier.public_key_text,
    ]
    assert findings() == []


def test_a_key_of_another_log_signs_nothing(write: Write, key_file: Path) -> None:
    write(1)
    seal()
    key_file.write_text(keys.NoteSigner.generate_note_signer("signalbox/another").private_key_text)
    write(1)
    with pytest.raises(keys.KeyUnusable, match="is for the log signalbox/another"):
        seal()


@pytest.mark.parametrize("number", [1, 255, 256, 257, 700])
def test_inner_nodes_that_are_kept_are_those_that_follow_from_the_leaves(write: Write, number: int) -> None:
    write(number)
    made = seal()
    assert made is not None
    leaves = [bytes(leaf.leaf_hash or b"") for leaf in AuditLeaf.objects.order_by("leaf_index")]

    def tree(level: int, position: int) -> bytes:
        return merkle.hash_complete_subtree_from_parts(leaves[position << level : (position + 1) << level])

    assert bytes(made.root_hash) == merkle.compute_tree_root(tree, number)
    assert sealing.tree.LogTree(stores_nodes=False).compute_log_root_hash(number) == bytes(made.root_hash)


def test_the_job_seals_what_the_log_has(write: Write) -> None:
    write(2)
    sealing.seal_and_send_audit_log(timezone.now())
    assert AuditCheckpoint.objects.get().tree_size == 2


def test_a_lost_key_is_not_replaced_by_itself(write: Write, key_file: Path) -> None:
    write(1)
    seal()
    key_file.unlink()
    write(1)
    with pytest.raises(keys.KeyUnusable, match="it does not exist, and this log has been signed before"):
        seal()
    call_command("audit", "rotate-key", stdout=StringIO())
    assert AuditLog.objects.filter(event_type="AUDIT_KEY_ROTATED").count() == 1
    assert findings() == []
