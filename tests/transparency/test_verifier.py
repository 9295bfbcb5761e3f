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
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from coordinator import transparency
from coordinator.actions import audit
from coordinator.identity.actors import system
from coordinator.models import AuditLog
from coordinator.transparency import keys, proofs
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
    key = keys.signer().verifier.text
    for row in rows:
        code, said = verify(proofs.proof_of(row).text, "--key", key)
        assert code == 0, said
        assert "The proof is valid. Entry" in said
        assert f"target_id: {row.target_id}" in said
        assert f"timestamp: {row.timestamp.isoformat(timespec='microseconds')}" in said
        assert '"command": "make' in said


def test_a_proof_with_another_entry_in_it_does_not_hold(write: Write, verify: Callable[..., Any]) -> None:
    row = write(9)[3]
    seal()
    text, key = proofs.proof_of(row).text, keys.signer().verifier.text
    entry = next(line for line in text.splitlines() if line.startswith("extra "))
    forged = base64.b64encode(base64.b64decode(entry[6:]).replace(b"make 3", b"make 4")).decode()
    code, said = verify(text.replace(entry, f"extra {forged}"), "--key", key)
    assert (code, "The entry is not in the log that was signed" in said) == (1, True)
    code, said = verify(text.replace("index 3", "index 4"), "--key", key)
    assert code == 1
    other = keys.Signer.make(keys.origin()).verifier.text
    code, said = verify(text, "--key", other)
    assert (code, "The log's key has not signed this checkpoint" in said) == (1, True)
    code, said = verify(text, "--key", key, "--witness", other.replace(keys.origin(), "w"))
    assert code == 1


def test_an_export_holds_until_a_line_is_changed(
    write: Write, verify: Callable[..., Any], tmp_path: Path
) -> None:
    rows = write(7)
    seal()
    AuditLog.objects.filter(pk=rows[2].pk).delete()
    assert "Wrote 7 entries" in command("export", str(tmp_path / "export"))
    text, key = (tmp_path / "export").read_text(), keys.signer().verifier.text
    code, said = verify(text, "--key", key)
    assert (code, said) == (
        0,
        f"The export is valid: 7 entries, 6 of them with their text. Signed by {keys.origin()}.\n",
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
    key = keys.signer().verifier.text
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
    row = audit.record(
        "X", actor=system("tests"), target="\x1b[2J\nSigned by nobody\u202e", result="success", reason="\x9b"
    )
    seal()
    code, said = verify(proofs.proof_of(row).text, "--key", keys.signer().verifier.text)
    assert code == 0
    assert "target_id: \\u001b[2J\\nSigned by nobody\\u202e" in said
    assert "\x1b" not in said
    assert "\x9b" not in said


def test_what_was_judged_is_what_its_digest_names(verify: Callable[..., Any]) -> None:
    judged = {"tool_name": "Bash", "tool_input": {"command": "make"}}
    packed = json.dumps(judged, sort_keys=True, separators=(",", ":")).encode()
    for digest, code in ((hashlib.sha256(packed).hexdigest(), 0), ("0" * 64, 1)):
        metadata = {"judged": judged, "judged_sha256": digest}
        row = audit.record("X", actor=system("tests"), target=None, result="allowed", metadata=metadata)
        seal()
        found, said = verify(proofs.proof_of(row).text, "--key", keys.signer().verifier.text)
        assert found == code, said
    assert "its judged_sha256 is not the digest of what it shows as judged" in said


def test_a_row_of_another_program_is_called_so(verify: Callable[..., Any], write: Write) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_logs (timestamp, event_type, result) VALUES ('2026-11-22T10:00:00+00:00', 'X', 'denied')"
        )
    seal()
    code, said = verify(proofs.proof_of(AuditLog.objects.get()).text, "--key", keys.signer().verifier.text)
    assert code == 0
    assert "Another program wrote this row." in said
