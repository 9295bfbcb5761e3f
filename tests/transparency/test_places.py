"""Checkpoints reach files, git repositories, webhooks, mail and witnesses; what fails is told and tried again."""

from __future__ import annotations

import base64
import io
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core import mail
from django.core.management import call_command
from django.utils import timezone

from coordinator.actions.audit import sealing
from coordinator.models import AuditCheckpoint, AuditDelivery, AuditLog, Job
from coordinator.models.jobs import LEASE
from coordinator.operations.doctor import upkeep
from coordinator.transparency import destinations as places
from coordinator.transparency import keys, merkle, proofs, state
from coordinator.transparency.notes import (
    COSIGNATURE,
    LogCheckpoint,
    NoteVerifier,
    SignedNote,
    format_note_signature_line,
    split_signed_notes,
)
from tests.jobs.processes import kill_worker, worker_process
from tests.transparency.conftest import findings

pytestmark = pytest.mark.django_db(transaction=True)
Write = Callable[[int], list[AuditLog]]


class Witness(ThreadingHTTPServer):
    """A witness as c2sp.org/tlog-witness describes it, and a receiver of anything at /hook."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.private = Ed25519PrivateKey.generate()
        self.key = NoteVerifier("witness.test/w", COSIGNATURE, self.private.public_key().public_bytes_raw())
        self.log_key: NoteVerifier | None = None
        self.known = (0, b"")
        self.received: list[str] = []
        self.status = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, body: str) -> tuple[int, str]:
        """Answer one add-checkpoint."""
        head, note = body.split("\n\n", 1)
        old, *path = head.split("\n")
        assert self.log_key is not None
        read = SignedNote.parse(note)
        assert read.filter_keys_that_signed([self.log_key]) == [self.log_key]
        checkpoint, since = LogCheckpoint.parse(read.text), int(old.removeprefix("old "))
        if since != self.known[0]:
            return 409, f"{self.known[0]}\n"
        hashes = [base64.b64decode(one) for one in path]
        if since:
            merkle.require_valid_consistency_proof(
                since, checkpoint.size, hashes, self.known[1], checkpoint.root
            )
        else:
            assert hashes == []
        self.known = (checkpoint.size, checkpoint.root)
        signed = self.private.sign(f"cosignature/v1\ntime 1800000000\n{read.text}".encode())
        return 200, format_note_signature_line(self.key, (1_800_000_000).to_bytes(8) + signed)


class Handler(BaseHTTPRequestHandler):
    server: Witness

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.received.append(body)
        status, text = self.server.add(body) if self.path == "/w/add-checkpoint" else (200, "")
        self.send_response(self.server.status or status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def witness() -> Iterator[Witness]:
    with Witness() as server:
        yield server
        server.shutdown()


def sealed_and_sent(write: Write, number: int = 3) -> AuditCheckpoint:
    write(number)
    sealing.seal_and_send_audit_log(timezone.now())
    return AuditCheckpoint.objects.order_by("-tree_size")[0]


def test_a_file_gets_each_note(write: Write, settings: Any, tmp_path: Path) -> None:
    settings.AUDIT_CHECKPOINTS = [f"file:{tmp_path}/kept"]
    notes = [sealed_and_sent(write).note for _ in range(2)]
    assert split_signed_notes((tmp_path / "kept").read_text()) == notes
    sealing.seal_and_send_audit_log(timezone.now())
    assert split_signed_notes((tmp_path / "kept").read_text()) == notes, "nothing new, and it was sent again"
    assert findings(*notes) == []


def test_a_git_repository_has_a_commit_for_each(write: Write, settings: Any, tmp_path: Path) -> None:
    there, tree = tmp_path / "there.git", tmp_path / "tree"
    for words in (["init", "-q", "--bare", str(there)], ["clone", "-q", str(there), str(tree)]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    settings.AUDIT_CHECKPOINTS = [f"git:{tree}"]
    sealed_and_sent(write)
    branch = subprocess.run(
        ["git", "-C", str(tree), "branch", "--show-current"], check=True, capture_output=True, text=True
    ).stdout.strip()
    subprocess.run(
        ["git", "-C", str(tree), "push", "-q", "-u", "origin", branch], check=True, capture_output=True
    )
    newest = sealed_and_sent(write)
    told = subprocess.run(
        ["git", "-C", str(there), "log", "--format=%s", branch], check=True, capture_output=True, text=True
    ).stdout
    assert told.splitlines() == ["Checkpoint of 6 audit entries", "Checkpoint of 3 audit entries"]
    kept = subprocess.run(
        ["git", "-C", str(there), "show", f"{branch}:checkpoint"], check=True, capture_output=True, text=True
    ).stdout
    assert kept == newest.note


def test_a_webhook_gets_the_note(write: Write, settings: Any, witness: Witness) -> None:
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    settings.AUDIT_CHECKPOINTS = [f"{witness.url}/hook"]
    assert witness.received == [sealed_and_sent(write).note]


def test_mail_goes_out_once_a_day(write: Write, settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example"
    settings.AUDIT_CHECKPOINTS = ["mailto:auditor@example.org"]
    first = sealed_and_sent(write)
    sealed_and_sent(write)
    assert [one.to for one in mail.outbox] == [["auditor@example.org"]]
    assert first.note in mail.outbox[0].body
    sealing.send_pending_checkpoints(timezone.now() + timedelta(hours=24))
    assert [one.subject for one in mail.outbox][1:] == ["Audit checkpoint of 6 entries"]


def test_a_witness_signs_and_its_signature_is_in_every_later_proof(
    write: Write, settings: Any, witness: Witness
) -> None:
    settings.AUDIT_CHECKPOINTS = [f"witness:{witness.key.public_key_text} {witness.url}/w"]
    (row, *_) = write(3)
    sealing.sign_audit_checkpoint(timezone.now())
    witness.log_key = keys.load_or_create_audit_signer().public_verifier
    sealing.seal_and_send_audit_log(timezone.now())
    write(4)
    sealing.seal_and_send_audit_log(timezone.now())
    newest = AuditCheckpoint.objects.order_by("-tree_size")[0]
    assert witness.known == (7, bytes(newest.root_hash))
    log_key = keys.load_or_create_audit_signer().public_verifier
    assert SignedNote.parse(newest.note).filter_keys_that_signed([log_key, witness.key]) == [
        log_key,
        witness.key,
    ]
    assert witness.key.name in proofs.create_inclusion_proof_for_row(row).proof_file_text
    assert proofs.verify_and_load_entry_status(row).witness_names == [witness.key.name]


def test_a_witness_that_knows_more_than_we_thought_is_asked_from_there(
    write: Write, settings: Any, witness: Witness
) -> None:
    settings.AUDIT_CHECKPOINTS = [f"witness:{witness.key.public_key_text} {witness.url}/w"]
    write(3)
    sealing.sign_audit_checkpoint(timezone.now())
    witness.log_key = keys.load_or_create_audit_signer().public_verifier
    sealing.seal_and_send_audit_log(timezone.now())
    AuditDelivery.objects.all().delete()
    write(2)
    sealing.seal_and_send_audit_log(timezone.now())
    assert [body.split("\n")[0] for body in witness.received] == ["old 0", "old 0", "old 3"]
    assert AuditDelivery.objects.get().tree_size == 5


def test_a_signature_that_is_not_the_witness_s_is_no_signature(
    write: Write, settings: Any, witness: Witness
) -> None:
    settings.AUDIT_CHECKPOINTS = [f"witness:{witness.key.public_key_text} {witness.url}/w"]
    write(3)
    sealing.sign_audit_checkpoint(timezone.now())
    witness.log_key = keys.load_or_create_audit_signer().public_verifier
    witness.private = Ed25519PrivateKey.generate()
    sealing.seal_and_send_audit_log(timezone.now())
    assert "is wrong" in (Job.objects.get(name=state.SEND_CHECKPOINT).error or "")
    assert witness.key.name not in AuditCheckpoint.objects.get().note


def test_a_place_that_fails_keeps_no_other_from_hearing_and_is_told(
    write: Write, settings: Any, tmp_path: Path, witness: Witness
) -> None:
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    settings.AUDIT_CHECKPOINTS = [
        f"file:{tmp_path}/no/folder",
        f"{witness.url}/hook",
        f"file:{tmp_path}/kept",
    ]
    witness.status, hook = 503, places.parse_checkpoint_destination(f"{witness.url}/hook").name
    newest = sealed_and_sent(write)
    assert split_signed_notes((tmp_path / "kept").read_text()) == [newest.note]
    errors = {place.place: place.error for place in state.list_checkpoint_deliveries()}
    assert errors == {
        f"file:{tmp_path}/kept": None,
        f"file:{tmp_path}/no/folder": "No such file or directory",
        hook: "answered 503",
    }
    told = {check.name: check for check in upkeep.iterate_audit_log_checks(timezone.now())}
    assert "do not reach" in told["audit checkpoints"].message
    witness.status, received = 0, len(witness.received)
    sealing.seal_and_send_audit_log(timezone.now())
    assert len(witness.received) == received, "it was not given time to come back"
    sealing.seal_and_send_audit_log(timezone.now() + timedelta(seconds=10))
    errors = {place.place: place.error for place in state.list_checkpoint_deliveries()}
    assert [name for name, error in errors.items() if error is not None] == [f"file:{tmp_path}/no/folder"]
    assert Job.objects.get(name=state.SEND_CHECKPOINT).attempts == 2


def test_a_place_that_is_set_no_more_is_forgotten(write: Write, settings: Any, tmp_path: Path) -> None:
    settings.AUDIT_CHECKPOINTS = [f"file:{tmp_path}/no/folder"]
    sealed_and_sent(write)
    assert Job.objects.filter(name=state.SEND_CHECKPOINT).count() == 1
    settings.AUDIT_CHECKPOINTS = []
    sealing.seal_and_send_audit_log(timezone.now())
    assert not Job.objects.filter(name=state.SEND_CHECKPOINT).exists()


def test_the_command_tries_at_once_what_failed(write: Write, settings: Any, tmp_path: Path) -> None:
    settings.AUDIT_CHECKPOINTS = [f"file:{tmp_path}/folder/kept"]
    sealed_and_sent(write)
    (tmp_path / "folder").mkdir()
    call_command("audit", "seal", stdout=io.StringIO())
    assert (tmp_path / "folder/kept").exists()
    assert not Job.objects.filter(name=state.SEND_CHECKPOINT).exists()


def test_a_worker_that_was_killed_while_it_sent_is_made_up_for(
    write: Write, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AUDIT_CHECKPOINTS = [f"file:{tmp_path}/kept"]
    write(3)
    now = timezone.now()

    def send_until_killed(tell: Callable[[bytes], None]) -> None:
        def append(*_: object) -> str:
            tell(b"begun")
            signal.pause()
            return ""

        places.append_note_to_file = append
        sealing.seal_and_send_audit_log(now)

    with worker_process(send_until_killed) as (pid, told):
        assert os.read(told, 5) == b"begun"
        kill_worker(pid)
    sealing.seal_and_send_audit_log(now + LEASE / 2)
    assert not (tmp_path / "kept").exists()
    sealing.seal_and_send_audit_log(now + LEASE)
    assert len(split_signed_notes((tmp_path / "kept").read_text())) == 1


@pytest.mark.parametrize("text", ["", "file:", "ftp://x", "witness:nonsense https://x", "mailto:nobody"])
def test_a_setting_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="SIGNALBOX_AUDIT_CHECKPOINTS"):
        places.parse_checkpoint_destination(text)


def test_addresses_are_told_without_their_secrets() -> None:
    name = places.parse_checkpoint_destination("https://user:word@hooks.example/T0/secret?token=words").name
    assert name.startswith("https://hooks.example (")
    assert not any(word in name for word in ("word", "secret", "token"))


def test_the_hooks_of_a_git_folder_are_not_run_and_a_link_is_not_followed(
    write: Write, settings: Any, tmp_path: Path, key_file: Path
) -> None:
    tree = tmp_path / "tree"
    subprocess.run(["git", "init", "-q", str(tree)], check=True, capture_output=True)
    hook = tree / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    (tree / "checkpoint").symlink_to(key_file)
    (tmp_path / "link").symlink_to(key_file)
    settings.AUDIT_CHECKPOINTS = [f"git:{tree}", f"file:{tmp_path}/link"]
    sealed_and_sent(write)
    assert not (tmp_path / "ran").exists()
    assert key_file.read_text().startswith("PRIVATE+KEY+")
    assert key_file.read_text().count("\n") == 1
    assert AuditDelivery.objects.get(place=f"git:{tree}").tree_size == 3
    assert Job.objects.get(name=state.SEND_CHECKPOINT, subject=f"file:{tmp_path}/link").error is not None
