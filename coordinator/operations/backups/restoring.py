"""Restoring a backup: everything is checked and staged before any existing data is touched."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection, connections, transaction

from coordinator.actions import approvals
from coordinator.actions.audit import audit
from coordinator.chat import stores
from coordinator.engine import engine_name, health, is_sqlite
from coordinator.engine.size import sqlite_files
from coordinator.identity.actors import system_actor
from coordinator.operations import startup
from coordinator.operations.backups import (
    KEYS,
    POSTGRES_FILE,
    SQLITE_FILE,
    BackupManifest,
    buckets,
    convert_errors_to_command_error,
    copy_file_and_return_digest,
    installed_key_file_path,
    measure_and_hash_backup_file,
    postgres_tool_arguments_and_environment,
    read_backup_manifest,
    require_disk_space,
)

Say = Callable[[str], object]

# Where PostgreSQL's old tables wait until everything new is in its place.
ASIDE = "signalbox_replaced"
MAYBE_USED = "A backup was restored: the call may have run since the backup was made. It can ask again."


def restore_backup(source: Path, now: datetime, *, replace: bool, say: Say) -> BackupManifest:
    """Replace the data here with the backup in the folder `source`, and migrate it where it is older.

    Without `replace` there may be no data here yet. Replaced data is kept next to its place, in folders that `say`
    names (on PostgreSQL: attachments and key; the old tables go when all is in its place). Approvals for one call that
    the backup knows as unused end: the call may have run since. Raises CommandError.
    """
    source = source.absolute()
    manifest = read_backup_manifest(source)
    require_compatible_backup(manifest)
    lock = startup.lock_data_folder(Path(settings.DATA_DIR))
    try:
        require_nothing_to_overwrite(replace)
        say(f"Checking {len(manifest.files)} files …")
        verify_backup_files(source, manifest)
        say("Restoring them …")
        with convert_errors_to_command_error(f"Restoring {source}"):
            replace_data_with_backup(source, manifest, now, say)
        connections.close_all()
        startup.check_and_migrate_database(migrate=True, say=say)
        with transaction.atomic():
            brought = buckets.mark_files_local_and_count(manifest)
            ended = approvals.revoke_unused_single_use_approvals(
                actor=system_actor("restore"), reason=MAYBE_USED, now=now
            )
            facts = {"path": str(source), "made_at": manifest.made_at, "version": manifest.version}
            audit.record_audit_entry(
                "BACKUP_RESTORED",
                actor=system_actor("restore"),
                target=None,
                result="success",
                metadata=facts | {"approvals_ended": ended, "attachments_brought_from_bucket": brought},
                now=now,
            )
        if ended:
            say(f"Ended {ended} approvals of calls that may have run since the backup was made.")
        print_bucket_file_report(manifest, brought, say)
    finally:
        lock.close()
    return manifest


def print_bucket_file_report(manifest: BackupManifest, brought: int, say: Say) -> None:
    """Print which files are in a bucket, and whether they are there."""
    if brought:
        say(
            f"{brought} attachments that were in S3 came with the backup and are in the data folder now. "
            "signalbox manage move_attachments moves them."
        )
    if elsewhere := buckets.check_uncopied_bucket_files():
        say(f"Not in the backup: {elsewhere.describe_bucket_files}")
        then = str((manifest.elsewhere or {}).get("where") or "")
        if then and then != elsewhere.where:
            say(
                f"When it was made, they were in {then}: check that SIGNALBOX_S3_BUCKET and _PREFIX name that place."
            )


def require_compatible_backup(manifest: BackupManifest) -> None:
    if manifest.engine != engine_name():
        raise CommandError(
            f"This backup is of {manifest.engine}, and DATABASE_URL names {engine_name()}. Point DATABASE_URL at "
            "the same engine (import_db imports another database's sessions)."
        )
    known_migrations = {name for app, name in startup.migrations_on_disk() if app == "coordinator"}
    if unknown := sorted(set(manifest.migrations) - known_migrations):
        raise CommandError(
            f"This backup was made by a newer Signalbox ({manifest.version}, migration {unknown[-1]}). Update first."
        )


def require_nothing_to_overwrite(replace: bool) -> None:
    folder = Path(settings.DATA_DIR)
    if not is_sqlite():
        startup.require_database_connection()
        if health.count_server_processes():
            raise CommandError("A server is connected to this database. Stop it first, on every machine.")
        require_no_interrupted_restore()
        has_tables = bool(connection.introspection.table_names())
    else:
        has_tables = sqlite_files()[0].exists()
    has_tables = has_tables or any((folder / stores.FOLDER).rglob("*"))
    if has_tables and not replace:
        raise CommandError(
            f"There is already data here ({startup.describe_database()}). Add --replace to replace it with the backup."
        )


def require_no_interrupted_restore() -> None:
    """Raise CommandError where an earlier restore was killed: only a person can decide which tables count."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [ASIDE])
        if cursor.fetchone() is None:
            return
    raise CommandError(
        f"An earlier restore was interrupted. The tables from before it are in the schema {ASIDE} of "
        f"{startup.describe_database()}. Put them back with psql, then restore again: "
        f"DROP SCHEMA public CASCADE; ALTER SCHEMA {ASIDE} RENAME TO public; "
        f"(or, only if you want what is in public instead: DROP SCHEMA {ASIDE} CASCADE;)"
    )


def verify_backup_files(source: Path, manifest: BackupManifest) -> None:
    if not {SQLITE_FILE, POSTGRES_FILE} & manifest.files.keys():
        raise CommandError(f"{source} contains no database.")
    for name, file in manifest.files.items():
        try:
            digest = measure_and_hash_backup_file(source / name)
        except OSError as problem:
            raise CommandError(
                f"{source / name} cannot be read: {problem.strerror}. Nothing was changed."
            ) from None
        if digest != file:
            raise CommandError(
                f"{source / name} has changed since the backup (its checksum differs). Nothing was changed."
            )


def replace_data_with_backup(source: Path, manifest: BackupManifest, now: datetime, say: Say) -> None:
    destinations = restore_destinations()
    aside = find_unused_name_in_folders(
        f"replaced-{now:%Y%m%d-%H%M%S}", {place.parent for place in destinations.values()}
    )
    remove_staged_files(destinations.values())
    require_restore_space(manifest, destinations)
    try:
        for name in manifest.files:
            top, _, below = name.partition("/")
            if top in destinations:
                copy_file_and_return_digest(
                    source / name, staging_path_next_to_folder(destinations[top]) / below
                )
        connections.close_all()
        with nullcontext() if is_sqlite() else postgres_dump_swapped_in(source / POSTGRES_FILE):
            old_folders = swap_data_folders(destinations, aside)
    finally:
        remove_staged_files(destinations.values())
    if old_folders:
        folders = " and ".join(str(folder) for folder in old_folders)
        say(f"What was here before is in {folders}; remove it when you are sure.")


def restore_destinations() -> dict[str, Path]:
    """Return where the parts of a backup belong, by their names in it; PostgreSQL's tables have no place here."""
    folder = Path(settings.DATA_DIR)
    destinations = {
        stores.FOLDER: folder / stores.FOLDER,
        **{name: installed_key_file_path(name) for name in KEYS},
    }
    if is_sqlite():
        destinations[SQLITE_FILE] = sqlite_files()[0]
    return destinations


def find_unused_name_in_folders(name: str, folders: Collection[Path]) -> str:
    """Return the name, or the first of `name-2`, `name-3`, … that is in none of the folders."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(
        free_name for free_name in names if not any((folder / free_name).exists() for folder in folders)
    )


def staging_path_next_to_folder(folder: Path) -> Path:
    """Return where the new `place` is made ready: next to it, as nothing is renamed from one disk to another."""
    return folder.with_name(f"{folder.name}.restoring")


def remove_staged_files(destinations: Iterable[Path]) -> None:
    for staged in map(staging_path_next_to_folder, destinations):
        if staged.is_dir():
            shutil.rmtree(staged, ignore_errors=True)
        else:
            staged.unlink(missing_ok=True)


def require_restore_space(manifest: BackupManifest, destinations: dict[str, Path]) -> None:
    """Raise CommandError where a disk has not the room for what goes there; twice for a database, to migrate it."""
    folders: dict[int, Path] = {}
    needed: Counter[int] = Counter()
    for name, file in manifest.files.items():
        destination = destinations.get(name.partition("/")[0])
        if destination is not None:
            destination.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk = device_number_of_folder(destination.parent)
            folders.setdefault(disk, destination.parent)
            needed[disk] += file.bytes * (2 if name == SQLITE_FILE else 1)
    for disk, folder in folders.items():
        require_disk_space(folder, needed[disk])


def device_number_of_folder(folder: Path) -> int:
    return folder.stat().st_dev


def swap_data_folders(destinations: dict[str, Path], aside: str) -> list[Path]:
    """Move existing data into folders called `aside` next to it and staged data into its place; return the folders.

    Where a step fails, those before it are undone and its error is raised.
    """
    new = [
        destination
        for destination in destinations.values()
        if staging_path_next_to_folder(destination).exists()
    ]
    old = {*new, destinations[stores.FOLDER], destinations[stores.FOLDER].with_name("thumbnails")}
    if SQLITE_FILE in destinations:
        database, log = sqlite_files()
        # A log of the old database next to the new one would damage it.
        old |= {log, database.with_name(f"{database.name}-shm")}
    moved_folders: list[Path] = []
    with ExitStack() as undo:

        def move_reversibly(source: Path, target: Path) -> None:
            source.rename(target)
            undo.callback(target.rename, source)

        for destination in sorted(destination for destination in old if destination.exists()):
            folder = destination.parent.resolve() / aside
            if folder not in moved_folders:
                folder.mkdir(mode=0o700)
                undo.callback(folder.rmdir)
                moved_folders.append(folder)
            move_reversibly(destination, folder / destination.name)
        for destination in new:
            move_reversibly(staging_path_next_to_folder(destination), destination)
        undo.pop_all()
    return moved_folders


@contextmanager
def postgres_dump_swapped_in(dump: Path) -> Iterator[None]:
    """Have the dump's tables in the place of the old ones; the old ones come back if it or the block fails."""
    if shutil.which("pg_restore") is None:
        raise CommandError("pg_restore is not installed here. It comes with PostgreSQL's client programs.")
    arguments, environment = postgres_tool_arguments_and_environment()
    options = ["--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error"]
    command = ["pg_restore", *options, *arguments, str(dump)]
    with empty_public_schema_during_block():
        connections.close_all()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise CommandError(f"pg_restore failed: {done.stderr.strip()[:500]} Nothing was changed.")
        yield


@contextmanager
def empty_public_schema_during_block() -> Iterator[None]:
    """Have an empty schema for the length of the block; then the old one goes, or comes back if it fails."""
    execute_sql_in_one_transaction(f"ALTER SCHEMA public RENAME TO {ASIDE}", "CREATE SCHEMA public")
    try:
        yield
    except BaseException:
        execute_sql_in_one_transaction("DROP SCHEMA public CASCADE", f"ALTER SCHEMA {ASIDE} RENAME TO public")
        raise
    execute_sql_in_one_transaction(f"DROP SCHEMA {ASIDE} CASCADE")


def execute_sql_in_one_transaction(*statements: str) -> None:
    """Run the statements in one transaction: a restore that is killed leaves all of them done, or none."""
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
