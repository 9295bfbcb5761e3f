"""Credentials at rest: sealed with keys that are stored in a file of the data folder, not in the database.

A line of the file is a key, the newest first: it seals, and every one opens what it sealed. Each sealed text is bound
to its purpose, so that nobody who can write to the database moves a credential to another server.

    sealed:KEY-ID:BASE64 of nonce and AES-256-GCM
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

from coordinator.lib import private_files

NAME = "credential_keys"
PREFIX = "sealed:"
NONCE, KEY = 12, 32  # bytes


class KeyringUnusable(Exception):
    """The keys cannot be read, or the one that is wanted is not among them. The text says what to do."""


@dataclass(frozen=True, slots=True)
class CredentialKeyring:
    """The keys by id; the first seals."""

    keys: dict[str, bytes]

    @property
    def newest_key_id(self) -> str:
        return next(iter(self.keys))


def keyring_path() -> Path:
    """Return where the keys are: SIGNALBOX_CREDENTIAL_KEYS, or `credential_keys` in the data folder."""
    key_file = settings.CREDENTIAL_KEYS_FILE
    return Path(key_file).expanduser().absolute() if key_file else Path(settings.DATA_DIR) / NAME


def is_sealed_text(text: str) -> bool:
    return text.startswith(PREFIX)


def key_id_of_sealed_text(sealed: str) -> str:
    """Return the id of the key that sealed a text of `seal_text_with_keyring`."""
    return sealed.removeprefix(PREFIX).partition(":")[0]


def seal_text_with_keyring(purpose: str, text: str) -> str:
    """Return `text` sealed for `purpose`. Raises KeyringUnusable."""
    ring = load_or_create_keyring()
    nonce = secrets.token_bytes(NONCE)
    raw = nonce + AESGCM(ring.keys[ring.newest_key_id]).encrypt(nonce, text.encode(), purpose.encode())
    return f"{PREFIX}{ring.newest_key_id}:{base64.b64encode(raw).decode()}"


def unseal_text_with_keyring(purpose: str, sealed: str) -> str:
    """Return what was sealed for `purpose`.

    Raises KeyringUnusable where its key is not here, and for a text that was changed or sealed for something else.
    """
    key = load_or_create_keyring().keys.get(key_id_of_sealed_text(sealed))
    if key is None:
        raise KeyringUnusable(
            f"The key {key_id_of_sealed_text(sealed)[:16]!r} of a stored credential is not in {keyring_path()}. Put"
            " the right file there, from a backup, or enter the credential again."
        )
    try:
        raw = base64.b64decode(sealed.removeprefix(PREFIX).partition(":")[2], validate=True)
        return AESGCM(key).decrypt(raw[:NONCE], raw[NONCE:], purpose.encode()).decode()
    except (InvalidTag, ValueError, binascii.Error):
        raise KeyringUnusable(
            "A stored credential was changed, or belongs to something else. Enter it again."
        ) from None


def load_newest_key_id() -> str:
    """Return the id of the key that seals now."""
    return load_or_create_keyring().newest_key_id


def add_keyring_key() -> str:
    """Add a key that seals from now on, and return its id. The others still open what they sealed."""
    keys = dict([generate_key_id_and_bytes(), *load_or_create_keyring().keys.items()])
    overwrite_keyring_file(CredentialKeyring(keys))
    return next(iter(keys))


def remove_all_but_newest_key() -> int:
    """Remove every key but the newest and return how many. What those sealed cannot be opened afterwards."""
    ring = load_or_create_keyring()
    overwrite_keyring_file(CredentialKeyring({ring.newest_key_id: ring.keys[ring.newest_key_id]}))
    return len(ring.keys) - 1


def generate_key_id_and_bytes() -> tuple[str, bytes]:
    return secrets.token_hex(4), secrets.token_bytes(KEY)


def load_or_create_keyring() -> CredentialKeyring:
    """Return the file's keys, read again where it changed; makes a first key where there is no file."""
    file = keyring_path()
    try:
        if not file.exists():
            create_keyring_file_if_missing(file)
        private_files.make_file_private(file)
        status = file.stat()
        return parse_keyring_file(str(file), status.st_mtime_ns, status.st_ino)
    except (OSError, private_files.PathNotPrivate, ValueError) as problem:
        raise KeyringUnusable(
            f"The keys of the stored credentials, {file}, cannot be used: {problem}"
        ) from None


@lru_cache(maxsize=2)
def parse_keyring_file(file: str, _changed: int, _inode: int) -> CredentialKeyring:
    lines = [line.split() for line in Path(file).read_text().splitlines() if line.strip()]
    keys = {name: base64.b64decode(key, validate=True) for name, key in lines}
    if not keys or any(len(key) != KEY for key in keys.values()):
        raise ValueError("it holds no key, or one of the wrong length")
    return CredentialKeyring(keys)


def create_keyring_file_if_missing(file: Path) -> None:
    """Make the file with its first key, and its folder; where another process was faster, its file stays."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary_path = write_temporary_keyring(file, CredentialKeyring(dict([generate_key_id_and_bytes()])))
    try:
        os.link(temporary_path, file)
    except FileExistsError:
        pass
    finally:
        temporary_path.unlink()


def overwrite_keyring_file(ring: CredentialKeyring) -> None:
    file = keyring_path()
    write_temporary_keyring(file, ring).replace(file)


def write_temporary_keyring(file: Path, ring: CredentialKeyring) -> Path:
    """Write the keys to a new file next to `file`, and have them on the disk when this returns."""
    temporary_path = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        for name, key in ring.keys.items():
            opened.write(f"{name} {base64.b64encode(key).decode()}\n")
        opened.flush()
        os.fsync(opened.fileno())
    return temporary_path
