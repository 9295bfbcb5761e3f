"""Backups: one folder with the database, the keys, the attachments and a manifest that vouches for them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection

from coordinator.lib import sizes
from coordinator.secrets import keyring

MANIFEST = "manifest.json"
SQLITE_FILE, POSTGRES_FILE = "database.sqlite3", "database.dump"
SECRET_KEY = "secret_key"  # noqa: S105 - a file's name
CREDENTIAL_KEYS = keyring.NAME
KEYS = (SECRET_KEY, CREDENTIAL_KEYS)

CHUNK = 1024 * 1024


def installed_key_file_path(name: str) -> Path:
    """Return the path of one of KEYS."""
    return keyring.keyring_path() if name == CREDENTIAL_KEYS else Path(settings.DATA_DIR) / name


@dataclass(frozen=True, slots=True)
class BackupFile:
    bytes: int
    sha256: str


@dataclass(slots=True)
class BackupManifest:
    """What a backup holds: by path below its folder, every file but the manifest itself.

    `migrations` are those of the coordinator that the database has had, `tables` how many rows each table has
    (empty where the engine's own tool made the copy, which has a consistent state of its own).
    """

    version: str
    made_at: str
    engine: str
    migrations: list[str]
    tables: dict[str, int] = field(default_factory=dict)
    files: dict[str, BackupFile] = field(default_factory=dict)
    elsewhere: dict[str, Any] | None = None  # attachments in a bucket (buckets.Elsewhere)

    def write_manifest(self, folder: Path) -> None:
        """Write the manifest into a backup's folder."""
        write_synced_file(folder / MANIFEST, json.dumps(asdict(self), indent=2).encode())

    @property
    def total_size(self) -> int:
        """How many bytes the files have together."""
        return sum(file.bytes for file in self.files.values())


def read_backup_manifest(folder: Path) -> BackupManifest:
    """Return a backup's manifest. Raises CommandError where there is none, or none that can be read."""
    try:
        fields: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        fields["files"] = {name: BackupFile(**file) for name, file in fields["files"].items()}
        manifest = BackupManifest(**fields)
    except FileNotFoundError:
        raise CommandError(f"{folder} is not a backup: it has no {MANIFEST}.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise CommandError(f"The manifest of {folder} cannot be read: {problem}") from None
    for name in manifest.files:
        if ".." in Path(name).parts or not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise CommandError(f"The manifest of {folder} names a file elsewhere: {name}.")
    return manifest


def measure_and_hash_backup_file(path: Path) -> BackupFile:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return BackupFile(size, digest.hexdigest())


def write_synced_file(path: Path, content: bytes) -> None:
    """Write a file for its owner alone, and have it on the disk when this returns."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def copy_file_and_return_digest(source: Path, target: Path) -> BackupFile:
    """Copy a file for its owner alone, have it on the disk when this returns, and return what was copied."""
    with source.open("rb") as read:
        return write_stream_and_return_digest(read, target)


def write_stream_and_return_digest(read: BinaryIO, target: Path) -> BackupFile:
    """Write what is read as `copy_file_and_return_digest` does."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        while chunk := read.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return BackupFile(size, digest.hexdigest())


def require_disk_space(folder: Path, needed: int) -> None:
    """Raise CommandError where the disk of `folder` has not `needed` bytes left."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CommandError(
            f"Not enough space in {folder}: {sizes.format_byte_count(needed)} needed,"
            f" {sizes.format_byte_count(free)} free. Nothing was changed."
        )


@contextmanager
def convert_errors_to_command_error(doing: str) -> Iterator[None]:
    """Return an error of the disk or SQLite as one line for the operator."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the output has gone, not the disk
    except OSError as problem:
        reason = "the disk is full" if problem.errno == errno.ENOSPC else f"{problem.strerror or problem}"
        raise CommandError(f"{doing} failed: {reason}. Nothing was changed.") from None
    except sqlite3.Error as problem:
        raise CommandError(f"{doing} failed: {problem}. Nothing was changed.") from None


def postgres_tool_arguments_and_environment() -> tuple[list[str], dict[str, str]]:
    """Return how PostgreSQL's own tools reach the database: arguments, and the environment with the password."""
    values = connection.settings_dict
    names = (("HOST", "--host"), ("PORT", "--port"), ("USER", "--username"))
    arguments = [f"{option}={values[name]}" for name, option in names if values[name]]
    options = values.get("OPTIONS", {})
    environment = dict(os.environ)
    if values["PASSWORD"]:
        environment["PGPASSWORD"] = str(values["PASSWORD"])
    for option in ("sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs"):
        if option in options:
            environment[f"PG{option.upper().replace('_', '')}"] = str(options[option])
    return [*arguments, f"--dbname={values['NAME']}"], environment
