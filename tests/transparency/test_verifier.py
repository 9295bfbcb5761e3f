"""`verify_audit.py`, alone: a proof or an export convinces it, and nothing that was tampered with does."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from coordinator import transparency
from coordinator.actions.audit import audit
from coordinator.identity.actors import system_actor
from coordinator.models import AuditLog
from coordinator.transparency import destinations as places
from coordinator.transparency import keys, notes, proofs
from tests.transparency.conftest import seal

pytestmark = pytest.mark.django_db(transaction=True)
PROGRAM = Path(transparency.__file__).parent / "verify_audit.py"
Write = Callable[[int], list[AuditLog]]


@pytest.fixture
def verify(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """A function that runs the program on a text, in a folder without our code; gives its exit code and words."""

    def verify(text: str, *words: str) -> tuple[int, str]:
        program, file = tmp_path / "verify_audit.py", tmp_path / "given"
        program.write_bytes(PROGRAM.read_bytes())
        file.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(program), str(file), *words],
            cwd=tmp_path, env={"PYTHONPATH": "", "PATH": ""}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return verify


def command(*words: str) -> str:
    out = StringIO()
    call_command("audit", *words, stdout=out, stderr=out)
    return out.getvalue()


def test_a_proof_tells_who_approved_what_and_when(write: Write, verify: Callable[..., Any]) -> None:
    rows = write(9)
    seal()
    key = keys.load_or_create_audit_signer().public_verifier.public_key_text
    for row in rows:
        code, said = verify(proofs.create_inclusion_proof_for_row(row).proof_file_text, "--key", key)
        assert code == 0, said
        assert "The proof is valid. Entry" in said
        assert f"target_id: {row.target_id}" in said
        assert f"timestamp: {row.timestamp.isoformat(timespec='microseconds')}" in said
        assert '"command": "make' in said


def test_a_proof_with_another_entry_in_it_does_not_hold(write: Write, verify: Callable[..., Any]) -> None:
    row = write(9)[3]
    seal()
    text, key = (
        proofs.create_inclusion_proof_for_row(row).proof_file_text,
        keys.load_or_create_audit_signer().public_verifier.public_key_text,
    )
    entry = next(line for line in text.splitlines() if line.startswith("extra "))
    forged = base64.b64encode(base64.b64decode(entry[6:]).replace(b"make 3", b"make 4")).decode()
    code, said = verify(text.replace(entry, f"extra {forged}"), "--key", key)
    assert (code, "The entry is not in the log that was signed" in said) == (1, True)
    code, said = verify(text.replace("index 3", "index 4"), "--key", key)
    assert code == 1
    other = keys.NoteSigner.generate_note_signer(
        keys.log_origin_or_new_name()
    ).public_verifier.public_key_text
    code, said = verify(text, "--key", other)
    assert (code, "The log's key has not signed this checkpoint" in said) == (1, True)
    code, said = verify(text, "--key", key, "--witness", other.replace(keys.log_origin_or_new_name(), "w"))
    assert code == 1


def test_an_export_holds_until_a_line_is_changed(
    write: Write, verify: Callable[..., Any], tmp_path: Path
) -> None:
    rows = write(7)
    seal()
    AuditLog.objects.filter(pk=rows[2].pk).delete()
    assert "Wrote 7 entries" in command("export", str(tmp_path / "export"))
    text, key = (
        (tmp_path / "export").read_text(),
        keys.load_or_create_audit_signer().public_verifier.public_key_text,
    )
    code, said = verify(text, "--key", key)
    assert (code, said) == (
        0,
        f"The export is valid: 7 entries, 6 of them with their text. Signed by {keys.log_origin_or_new_name()}.\n",
    )
    lines = text.splitlines(keepends=True)
    for forged in (
        text.replace("make 5", "make 6"),
        "".join([*lines[:3], *lines[4:]]),
        "".join(lines[:-1]),
        "".join([*lines[:2], lines[3], lines[2], *lines[4:]]),
        text.replace('"index":2,"hash":"', '"index":2,"hash":"00', 1).replace("00", "", 1),
    ):
        assert verify(forged, "--key", key)[0] != 0
    with pytest.raises(CommandError, match="already exists"):
        command("export", str(tmp_path / "export"))


def test_what_is_no_proof_ends_in_one_line(verify: Callable[..., Any], write: Write) -> None:
    write(1)
    seal()
    key = keys.load_or_create_audit_signer().public_verifier.public_key_text
    for text in ("", "c2sp.org/tlog-proof@v1\n", "{}", '{"signalbox_audit_export": 2}', "\0\0"):
        code, said = verify(text, "--key", key)
        assert code in {1, 2}
        assert "Traceback" not in said
    assert verify("", "--key", "nonsense")[0] == 1


def test_the_command_checks_the_log(write: Write, tmp_path: Path) -> None:
    rows = write(3)
    assert command("seal") == "Sealed 3 entries.\n"
    assert command("seal") == "Everything is sealed already.\n"
    kept = tmp_path / "kept"
    kept.write_text(command("checkpoint"))
    told = command("verify", "--checkpoint", str(kept), "--key", command("key").strip())
    assert (
        told == "Checked 3 entries, 3 rows that are still there, and 2 checkpoints.\nNothing was changed.\n"
    )
    AuditLog.objects.filter(pk=rows[1].pk).update(actor_id="user:mallory")
    with pytest.raises(CommandError, match="fails the check"):
        command("verify")


def test_a_row_that_waits_has_no_proof_yet(write: Write) -> None:
    (row,) = write(1)
    with pytest.raises(CommandError, match="not sealed yet"):
        command("proof", str(row.pk))
    seal()
    assert command("proof", str(row.pk)).startswith("c2sp.org/tlog-proof@v1\n")


def test_the_key_is_rotated_with_a_word_in_the_log(write: Write) -> None:
    write(1)
    before = command("key")
    told = command("rotate-key")
    after = command("key")
    assert before != after
    assert after.strip() in told
    assert AuditLog.objects.filter(event_type="AUDIT_KEY_ROTATED").count() == 1
    assert "Nothing was changed." in command("verify")


def test_foreign_text_cannot_draw_over_what_the_verifier_says(verify: Callable[..., Any]) -> None:
    row = audit.record_audit_entry(
        "X",
        actor=system_actor("tests"),
        target="\x1b[2J\nSigned by nobody\u202e",
        result="success",
        reason="\x9b",
    )
    seal()
    code, said = verify(
        proofs.create_inclusion_proof_for_row(row).proof_file_text,
        "--key",
        keys.load_or_create_audit_signer().public_verifier.public_key_text,
    )
    assert code == 0
    assert "target_id: \\u001b[2J\\nSigned by nobody\\u202e" in said
    assert "\x1b" not in said
    assert "\x9b" not in said


def test_what_was_judged_is_what_its_digest_names(verify: Callable[..., Any]) -> None:
    judged = {"tool_name": "Bash", "tool_input": {"command": "make"}}
    packed = json.dumps(judged, sort_keys=True, separators=(",", ":")).encode()
    for digest, code in ((hashlib.sha256(packed).hexdigest(), 0), ("0" * 64, 1)):
        metadata = {"judged": judged, "judged_sha256": digest}
        row = audit.record_audit_entry(
            "X", actor=system_actor("tests"), target=None, result="allowed", metadata=metadata
        )
        seal()
        found, said = verify(
            proofs.create_inclusion_proof_for_row(row).proof_file_text,
            "--key",
            keys.load_or_create_audit_signer().public_verifier.public_key_text,
        )
        assert found == code, said
    assert "its judged_sha256 is not the digest of what it shows as judged" in said


def test_a_row_of_another_program_is_called_so(verify: Callable[..., Any], write: Write) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_logs (timestamp, event_type, result) VALUES ('2026-11-22T10:00:00+00:00', 'X', 'denied')"
        )
    seal()
    code, said = verify(
        proofs.create_inclusion_proof_for_row(AuditLog.objects.get()).proof_file_text,
        "--key",
        keys.load_or_create_audit_signer().public_verifier.public_key_text,
    )
    assert code == 0
    assert "Another program wrote this row." in said


def witness_line(text: str, name: str, seed: bytes, at: int = 1_800_000_000) -> tuple[str, str]:
    """Return a witness's key, and its signature line under a note's text."""
    private = Ed25519PrivateKey.from_private_bytes(seed)
    witness = notes.NoteVerifier(name, notes.COSIGNATURE, private.public_key().public_bytes_raw())
    signature = private.sign(f"cosignature/v1\ntime {at}\n{text}".encode())
    return witness.public_key_text, notes.format_note_signature_line(witness, at.to_bytes(8) + signature)


def proof_and_text(write: Write) -> tuple[str, str, str]:
    """Return a proof's file, the part before its note, and its note's text."""
    row = write(4)[2]
    seal()
    whole = proofs.create_inclusion_proof_for_row(row).proof_file_text
    head, _, note = whole.partition("\n\n")
    return whole, head, note.rpartition("\n\n")[0] + "\n"


def test_a_witness_that_is_called_like_the_log_does_not_stand_for_it(
    write: Write, verify: Callable[..., Any]
) -> None:
    whole, head, text = proof_and_text(write)
    key = keys.load_or_create_audit_signer().public_verifier
    witness, line = witness_line(text, key.name, b"w" * 32)
    alone = f"{head}\n\n{text}\n{line}"
    code, said = verify(alone, "--key", key.public_key_text, "--witness", witness)
    assert (code, "The log's key has not signed" in said) == (1, True)
    code, said = verify(whole, "--key", key.public_key_text, "--witness", witness)
    assert (code, "has not signed this checkpoint" in said) == (1, True)  # nor the log for it
    code, said = verify(whole + line, "--key", key.public_key_text, "--witness", witness)
    assert (code, f"Signed by {key.name}, {key.name} at 2027-01-15" in said) == (0, True), said


def test_one_witness_does_not_stand_for_two_of_its_name(write: Write, verify: Callable[..., Any]) -> None:
    whole, _, text = proof_and_text(write)
    key = keys.load_or_create_audit_signer().public_verifier.public_key_text
    (one, line), (other, _) = (witness_line(text, "w.example", seed * 32) for seed in (b"1", b"2"))
    assert verify(whole + line, "--key", key, "--witness", one)[0] == 0
    code, said = verify(whole + line, "--key", key, "--witness", one, "--witness", other)
    assert (code, "has not signed this checkpoint" in said) == (1, True)
    code, said = verify(whole + line, "--key", key, "--witness", one, "--witness", one)
    assert (code, "Two of these keys are one" in said) == (1, True)


def test_a_key_is_taken_for_what_it_is_alone(write: Write, verify: Callable[..., Any]) -> None:
    whole, head, text = proof_and_text(write)
    signer = keys.load_or_create_audit_signer()
    own, own_line = witness_line(text, "w.example", signer.seed)  # the log's own key, as a witness
    code, said = verify(whole + own_line, "--key", signer.public_verifier.public_key_text, "--witness", own)
    assert (code, "Two of these keys are one" in said) == (1, True)
    code, said = verify(
        whole,
        "--key",
        signer.public_verifier.public_key_text,
        "--witness",
        signer.public_verifier.public_key_text,
    )
    assert (code, "--witness takes the key of a witness" in said) == (1, True)
    witness, line = witness_line(text, signer.name, b"w" * 32)
    code, said = verify(f"{head}\n\n{text}\n{line}", "--key", witness)
    assert (code, "--key takes the key of a log" in said) == (1, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n\u2014 ", "\n- "),  # signature lines begin with a dash of their own
        ("\n\u2014 ", "\u2028\u2014 "),
        ("index 2", "index \u0662"),
        ("index 2", "index 02"),
    ],
)
def test_other_spellings_of_a_proof_are_refused(
    write: Write, verify: Callable[..., Any], old: str, new: str
) -> None:
    whole, _, _ = proof_and_text(write)
    assert old in whole
    assert (
        verify(
            whole.replace(old, new),
            "--key",
            keys.load_or_create_audit_signer().public_verifier.public_key_text,
        )[0]
        != 0
    )


def test_a_witness_s_impossible_time_is_refused_in_a_line(write: Write, verify: Callable[..., Any]) -> None:
    whole, _, text = proof_and_text(write)
    witness, line = witness_line(text, "w.example", b"w" * 32, at=2**63)
    code, said = verify(
        whole + line,
        "--key",
        keys.load_or_create_audit_signer().public_verifier.public_key_text,
        "--witness",
        witness,
    )
    assert (code, "Traceback" in said) == (1, False)


def test_a_log_s_key_is_no_witness_to_send_checkpoints_to() -> None:
    key = keys.NoteSigner.generate_note_signer("log.example").public_verifier.public_key_text
    with pytest.raises(ValueError, match="This is a log's key"):
        places.parse_checkpoint_destination(f"witness:{key} https://w.example")
