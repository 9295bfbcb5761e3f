"""Making a backup while the server runs and writes.

Attachments never change, are there before the row that names them, and go after it. So they are copied before the
database and, what came meanwhile, after it: whatever row the copy of the database has, its file is in the backup.
"""

from __future__ import annotations

import shlex
import shutil
import sqlite3
import subprocess
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection

from coordinator.actions.audit import audit, sealing
from coordinator.chat import stores
from coordinator.engine import engine_name, is_sqlite
from coordinator.engine.size import database_size_bytes
from coordinator.identity.actors import system_actor
from coordinator.models.chat import FilePlace
from coordinator.operations import startup
from coordinator.operations.backups import (
    KEYS,
    POSTGRES_FILE,
    SQLITE_FILE,
    BackupFile,
    BackupManifest,
    buckets,
    convert_errors_to_command_error,
    copy_file_and_return_digest,
    installed_key_file_path,
    measure_and_hash_backup_file,
    postgres_tool_arguments_and_environment,
    require_disk_space,
)
from coordinator.transparency.keys import KeyUnusable

TRANSPARENCY_LOG = "0047_transparency_log"  # the migration that makes its tables
Say = Callable[[str], object]


def write_backup_folder(
    target: Path, now: datetime, *, say: Say, with_bucket: bool = False
) -> BackupManifest:
    """Write a backup to the new folder `target`; it is there whole, or not at all. Raises CommandError.

    Attachments in a bucket are looked for there, and copied `with_bucket`.
    """
    target = target.absolute()
    if target.exists():
        raise CommandError(f"{target} already exists. Name a new folder.")
    startup.require_database_connection()
    has_leaves = ("coordinator", TRANSPARENCY_LOG) in startup.applied_migrations()
    if has_leaves:
        seal_audit_log_or_report(now, say)
    unfinished = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}.unfinished"
    try:
        with convert_errors_to_command_error(f"Writing {target}"):
            unfinished.mkdir(mode=0o700, parents=True)
            with_bucket = with_bucket and buckets.has_stored_files_table()
            bucket_bytes = buckets.sum_recorded_bucket_bytes() if with_bucket else 0
            folder_bytes = sum(
                file.size for file in stores.require_attachment_store(FilePlace.FOLDER).iterate_stored_files()
            )
            require_disk_space(unfinished, database_size_bytes() + folder_bytes + bucket_bytes)
            manifest = fill_backup_folder(unfinished, now, say, with_bucket=with_bucket)
            unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    facts: dict[str, Any] = {"path": str(target), "bytes": manifest.total_size, "files": len(manifest.files)}
    if manifest.elsewhere:
        facts["elsewhere"] = manifest.elsewhere
    audit.record_audit_entry(
        "BACKUP_MADE",
        actor=system_actor("backup"),
        target=None,
        result="success",
        metadata=facts,
        now=now,
        with_leaf=has_leaves,
    )
    return manifest


def seal_audit_log_or_report(now: datetime, say: Say) -> None:
    """Seal the audit log, so that a checkpoint covers its copy; a log that cannot be sealed is backed up, too."""
    try:
        sealing.sign_audit_checkpoint(now)
    except (sealing.InconsistentLog, KeyUnusable) as problem:
        say(f"The audit log could not be sealed: {problem}")


def fill_backup_folder(folder: Path, now: datetime, say: Say, *, with_bucket: bool) -> BackupManifest:
    migrations = sorted(name for app, name in startup.applied_migrations() if app == "coordinator")
    manifest = BackupManifest(version("signalbox"), now.isoformat(), engine_name(), migrations)
    say("Copying attachments …")
    copy_attachments_and_extend_manifest(folder, manifest, with_bucket=with_bucket)
    say("Copying the database …")
    if is_sqlite():
        manifest.tables = copy_sqlite_and_count_rows(folder / SQLITE_FILE)
        manifest.files[SQLITE_FILE] = measure_and_hash_backup_file(folder / SQLITE_FILE)
    else:
        dump_postgres_database(folder / POSTGRES_FILE)
        manifest.files[POSTGRES_FILE] = measure_and_hash_backup_file(folder / POSTGRES_FILE)
    copy_attachments_and_extend_manifest(folder, manifest, with_bucket=with_bucket)
    if buckets.has_stored_files_table() and (elsewhere := buckets.check_uncopied_bucket_files(manifest)):
        manifest.elsewhere = asdict(elsewhere)
        say(f"Not in this backup: {elsewhere.describe_bucket_files}")
    # After the database: what it holds was sealed with keys that are in the file by now.
    for name in KEYS:
        key = installed_key_file_path(name)
        if key.exists():
            manifest.files[name] = copy_file_and_return_digest(key, folder / name)
    manifest.write_manifest(folder)
    return manifest


def live_attachments_folder() -> Path:
    return Path(settings.DATA_DIR) / stores.FOLDER


def copy_attachments_and_extend_manifest(
    folder: Path, manifest: BackupManifest, *, with_bucket: bool
) -> None:
    if with_bucket:
        buckets.copy_objects_and_extend_manifest(folder, manifest)
    base = live_attachments_folder()
    for path in sorted(base.rglob("*")):
        name = f"{stores.FOLDER}/{path.relative_to(base).as_posix()}"
        if name in manifest.files or not path.is_file():
            continue
        try:
            manifest.files[name] = copy_file_until_unchanged(path, folder / name)
        except FileNotFoundError:  # its message was removed meanwhile
            (folder / name).unlink(missing_ok=True)


def copy_file_until_unchanged(path: Path, target: Path) -> BackupFile:
    """Copy a file again that grew while it was copied: it is being written just now."""
    copied = copy_file_and_return_digest(path, target)
    while copied.bytes != path.stat().st_size:
        target.unlink()
        copied = copy_file_and_return_digest(path, target)
    return copied


def copy_sqlite_and_count_rows(target: Path) -> dict[str, int]:
    """Copy the database as it is at one instant; return how many rows each table has.

    All pages in one step: a backup in several steps restarts whenever somebody commits between two. Writers continue
    (WAL).
    """
    target.touch(mode=0o600)
    name = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(name, timeout=10)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy, pages=-1)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log next to it
        problems = [row[0] for row in copy.execute("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise CommandError(
                f"The database is damaged, and so is its copy: {problems[0]}. No backup was kept."
            )
        return count_rows_by_table(copy)


def count_rows_by_table(database: sqlite3.Connection) -> dict[str, int]:
    """Return how many rows each table has, without those of a search index's own."""
    names = database.execute(
        "SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
    )
    return {
        name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608 - its own names
        for name, _type in sorted(names.fetchall())
        if not name.startswith("sqlite_")
    }


def dump_postgres_database(target: Path) -> None:
    """Have pg_dump copy the database; it works on a snapshot of its own, and writers go on."""
    arguments, environment = postgres_tool_arguments_and_environment()
    command = ["pg_dump", "--format=custom", "--no-owner", "--no-privileges", *arguments, f"--file={target}"]
    if shutil.which("pg_dump") is None:
        by_hand = shlex.join([*command[:-1], "--file=database.dump"])
        raise CommandError(
            "pg_dump is not installed here (it comes with PostgreSQL's client programs). On a machine that has it, "
            f"run: {by_hand}, and copy {live_attachments_folder()} and the files {' and '.join(KEYS)} of "
            f"{settings.DATA_DIR} beside it."
        )
    target.touch(mode=0o600)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise CommandError(f"pg_dump failed: {done.stderr.strip() or done.returncode}. No backup was kept.")
