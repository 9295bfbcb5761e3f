"""The log's signing key: a file outside the database, made on first use, for this process's user alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from django.conf import settings

from coordinator.lib import private_files
from coordinator.models import AuditKey
from coordinator.transparency.notes import NoteError, NoteSigner, NoteVerifier

REMEDY = "Put the right key file there, or make a new key with `signalbox manage audit rotate-key`."


class KeyUnusable(Exception):
    """The signing key cannot be read. The text says what to do."""


def audit_key_path() -> Path:
    """Return where the key is: SIGNALBOX_AUDIT_KEY, or `audit_key` in the data folder."""
    return Path(settings.AUDIT_KEY_FILE)


def load_or_create_audit_signer() -> NoteSigner:
    """Return this server's key, made where there is none. Raises KeyUnusable."""
    file = audit_key_path()
    try:
        if not file.exists():
            if load_log_verifiers():
                raise NoteError("it does not exist, and this log has been signed before. " + REMEDY)
            create_audit_key_file_if_missing(file, NoteSigner.generate_note_signer(log_origin_or_new_name()))
        private_files.make_file_private(file)
        signer = NoteSigner.parse(file.read_text())
    except (OSError, private_files.PathNotPrivate, NoteError) as problem:
        raise KeyUnusable(f"The audit log's key {file} cannot be used: {problem}") from None
    if load_log_verifiers() and signer.name != log_origin_or_new_name():
        raise KeyUnusable(
            f"The key {file} is for the log {signer.name}, and this database's log is {log_origin_or_new_name()}. "
            + REMEDY
        )
    return signer


def replace_audit_key() -> NoteSigner:
    """Replace the key with a new one and return that; the old key stays beside it with the ending `.old`."""
    file, new = audit_key_path(), NoteSigner.generate_note_signer(log_origin_or_new_name())
    temporary_path = write_temporary_key_file(file, new)
    if file.exists():
        old = file.with_name(file.name + ".old")
        old.unlink(missing_ok=True)
        os.link(file, old)
    temporary_path.replace(file)
    return new


def load_log_verifiers() -> list[NoteVerifier]:
    """Return the public keys that checkpoints were signed with, oldest first; one that cannot be read is left out."""
    verifiers = []
    for text in AuditKey.objects.order_by("first_used_at").values_list("verifier", flat=True):
        try:
            verifiers.append(NoteVerifier.parse(text))
        except NoteError:
            continue
    return verifiers


def log_origin_or_new_name() -> str:
    """Return the log's name: that of its first key, or a new one where the log has none yet."""
    keys = load_log_verifiers()
    return keys[0].name if keys else f"signalbox/{secrets.token_hex(8)}"


def create_audit_key_file_if_missing(file: Path, key: NoteSigner) -> None:
    """Make the file, whole at once; where another server that shares it was faster, its file stays."""
    temporary_path = write_temporary_key_file(file, key)
    try:
        os.link(temporary_path, file)
    except FileExistsError:
        pass
    finally:
        temporary_path.unlink()


def write_temporary_key_file(file: Path, key: NoteSigner) -> Path:
    """Write a key beside `file`, and have it on the disk when this returns."""
    temporary_path = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(key.private_key_text + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    return temporary_path
