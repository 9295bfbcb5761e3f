"""`manage.py audit …`: seal the audit log, check it, export it, and look after its signing key."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from coordinator.actions.audit import audit, sealing
from coordinator.identity.actors import system_actor
from coordinator.models import AuditCheckpoint, AuditLog
from coordinator.models.audit import AUDIT_RETENTION
from coordinator.transparency import exporting, keys, log_check, notes, proofs, tree

MOST_BYTES = 64 * 1024 * 1024  # of a file of checkpoints


class Command(BaseCommand):
    """The audit log is a transparency log: each entry is a leaf of a Merkle tree that is signed every minute."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True, parser_class=ArgumentParser)
        commands.add_parser("seal", help="sign a checkpoint of everything now, and send it out")
        verify = commands.add_parser("verify", help="check every entry, row and checkpoint")
        verify.add_argument(
            "--checkpoint", type=Path, action="append", default=[], metavar="FILE",
            help="a file with checkpoints that you kept elsewhere; may be repeated",
        )  # fmt: skip
        verify.add_argument(
            "--key", action="append", default=[], metavar="KEY",
            help="a public key that you noted elsewhere (name+hash+base64), instead of those in the database",
        )  # fmt: skip
        proof = commands.add_parser("proof", help="print the proof file of one audit row")
        proof.add_argument("row", type=int, help="the row's number, as in the address of its page")
        export = commands.add_parser(
            "export", help="write the whole log to a file that can be checked without Signalbox"
        )
        export.add_argument("file", type=Path, help="the file to write (NDJSON)")
        commands.add_parser("checkpoint", help="print the newest checkpoint")
        commands.add_parser("key", help="print the public key")
        commands.add_parser(
            "rotate-key", help="make a new signing key; old checkpoints are still verified with the old one"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        {
            "seal": self.seal_audit_log,
            "verify": self.verify_audit_log,
            "proof": self.print_audit_proof,
            "export": self.export_audit_log,
            "checkpoint": self.print_newest_checkpoint,
            "key": self.ensure_and_print_public_key,
            "rotate-key": self.rotate_audit_key,
        }[options["what"]](options)

    def seal_audit_log(self, options: dict[str, Any]) -> None:
        now = timezone.now()
        try:
            checkpoint = sealing.sign_audit_checkpoint(now)
        except (sealing.InconsistentLog, keys.KeyUnusable) as problem:
            raise CommandError(str(problem)) from None
        sealing.send_pending_checkpoints(now, at_once=True)
        self.stdout.write(
            f"Sealed {checkpoint.tree_size:,} entries." if checkpoint else "Everything is sealed already."
        )

    def verify_audit_log(self, options: dict[str, Any]) -> None:
        try:
            trusted = [notes.NoteVerifier.parse(text) for text in options["key"]] or keys.load_log_verifiers()
            checkpoint_notes = [note for file in options["checkpoint"] for note in read_signed_notes(file)]
        except notes.NoteError as problem:
            raise CommandError(str(problem)) from None
        report = log_check.check_entire_audit_log(checkpoint_notes, trusted, timezone.now())
        self.stdout.write(
            f"Checked {report.entries:,} entries, {report.rows:,} rows that are still there, and "
            f"{report.checkpoints:,} checkpoints."
        )
        for remark in report.log_check_remark_texts:
            self.stdout.write(remark)
        if not report.problems:
            self.stdout.write("Nothing was changed.")
            return
        for log_problem in report.problems:
            self.stderr.write(log_problem.text)
        more = f" (and {report.unlisted:,} more)" if report.unlisted else ""
        raise CommandError(f"The audit log fails the check. Findings: {len(report.problems):,}{more}.")

    def print_audit_proof(self, options: dict[str, Any]) -> None:
        row = AuditLog.objects.filter(pk=options["row"]).first()
        if row is None:
            raise CommandError(
                f"There is no such audit row. Rows are deleted after {AUDIT_RETENTION.days} days."
            )
        try:
            self.stdout.write(proofs.create_inclusion_proof_for_row(row).proof_file_text, ending="")
        except proofs.ProofUnavailable as problem:
            raise CommandError(str(problem)) from None

    def export_audit_log(self, options: dict[str, Any]) -> None:
        newest = require_newest_checkpoint()
        try:
            with options["file"].open("x", encoding="utf-8") as file:
                count = write_audit_export_and_count(file, newest)
        except FileExistsError:
            raise CommandError(f"{options['file']} already exists. Name a new file.") from None
        except OSError as problem:
            raise CommandError(f"{options['file']} cannot be written: {problem.strerror}.") from None
        self.stdout.write(
            f"Wrote {count:,} entries. Check them with verify_audit.py (page Audit log, Verify)."
        )

    def print_newest_checkpoint(self, options: dict[str, Any]) -> None:
        self.stdout.write(require_newest_checkpoint().note, ending="")

    def ensure_and_print_public_key(self, options: dict[str, Any]) -> None:
        try:
            self.stdout.write(keys.load_or_create_audit_signer().public_verifier.public_key_text)
        except keys.KeyUnusable as problem:
            raise CommandError(str(problem)) from None

    def rotate_audit_key(self, options: dict[str, Any]) -> None:
        now = timezone.now()
        try:
            old = self.seal_log_and_return_old_public_key(now)
            new = keys.replace_audit_key().public_verifier.public_key_text
        except (keys.KeyUnusable, sealing.InconsistentLog, OSError) as problem:
            raise CommandError(str(problem)) from None
        change = {"before": {"key": old}, "after": {"key": new}}
        audit.record_audit_entry(
            "AUDIT_KEY_ROTATED",
            actor=system_actor("cli"),
            target=None,
            result="success",
            metadata=change,
            now=now,
        )
        sealing.sign_audit_checkpoint(now)
        self.stdout.write(f"The new public key. Write it down outside this machine:\n{new}")

    @staticmethod
    def seal_log_and_return_old_public_key(now: datetime) -> str | None:
        """Seal what is there and return the old public key; None where the old key is lost."""
        if not keys.audit_key_path().exists():
            return None
        old = keys.load_or_create_audit_signer().public_verifier.public_key_text
        sealing.sign_audit_checkpoint(now)
        return old


def read_signed_notes(file: Path) -> list[str]:
    """Return the signed notes in a file, one after another. Raises CommandError, NoteError."""
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(MOST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as problem:
        raise CommandError(f"{file} cannot be read: {problem}.") from None
    if len(text) > MOST_BYTES:
        raise CommandError(
            f"{file} is longer than {MOST_BYTES // 2**20} MiB. Give only its newest checkpoints."
        )
    return notes.split_signed_notes(text)


def require_newest_checkpoint() -> AuditCheckpoint:
    newest = tree.find_newest_checkpoint()
    if newest is None:
        raise CommandError("There is no checkpoint yet. Make one with `signalbox manage audit seal`.")
    return newest


def write_audit_export_and_count(file: TextIO, checkpoint: AuditCheckpoint) -> int:
    count = -1  # the first line is about the file
    for line in exporting.iterate_log_export_records(checkpoint, keys.load_log_verifiers()):
        file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        count += 1
        if count and count % 10_000 == 0 and sys.stderr.isatty():
            print(f"\r{count:,} entries", end="", file=sys.stderr)
    return count
