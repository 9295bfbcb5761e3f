"""Putting a backup back: everything is checked and staged before the first thing that stands is touched."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection, connections

from coordinator import startup
from coordinator.actions import audit
from coordinator.actors import system
from coordinator.backups import (
    ATTACHMENTS,
    POSTGRES_FILE,
    SECRET_KEY,
    SQLITE_FILE,
    Manifest,
    copy_synced,
    digest_of,
    postgres_arguments,
    read_manifest,
    require_room,
    told_in_one_line,
)
from coordinator.database_size import files

Say = Callable[[str], object]


def restore(source: Path, now: datetime, *, replace: bool, say: Say) -> Manifest:
    """Put the backup in the folder `source` in the place of what stands here, and migrate it where it is older.

    Without `replace` nothing may stand here yet. What is replaced is kept beside, in a folder that `say` names
    (on PostgreSQL: attachments and key; the old tables go when the new ones are in). Raises CommandError.
    """
    source = source.absolute()
    manifest = read_manifest(source)
    _refuse_what_does_not_fit(manifest)
    held = startup.hold_data_folder(Path(settings.DATA_DIR))
    try:
        _refuse_over_something(replace)
        say(f"Checking {len(manifest.files)} files …")
        _verify(source, manifest)
        say("Putting them back …")
        with told_in_one_line(f"Restoring {source}"):
            _put_back(source, manifest, now, say)
        connections.close_all()
        startup.prepare_database(migrate=True, say=say)
        told = {"path": str(source), "made_at": manifest.made_at, "version": manifest.version}
        audit.record(
            "BACKUP_RESTORED", actor=system("restore"), target=None, result="success", metadata=told, now=now
        )
    finally:
        held.close()
    return manifest


def _refuse_what_does_not_fit(manifest: Manifest) -> None:
    if manifest.engine != connection.vendor:
        raise CommandError(
            f"This backup is of {manifest.engine}, and DATABASE_URL names {connection.vendor}. Point DATABASE_URL at "
            "the same engine (import_db brings another database's sessions in)."
        )
    known = {name for app, name in startup.migrations_on_disk() if app == "coordinator"}
    if unknown := sorted(set(manifest.migrations) - known):
        raise CommandError(
            f"This backup was made by a newer Signalbox ({manifest.version}, migration {unknown[-1]}). Update first."
        )


def _refuse_over_something(replace: bool) -> None:
    folder = Path(settings.DATA_DIR)
    if connection.vendor == "postgresql":
        startup.require_database()
        if _is_served():
            raise CommandError("A server is connected to this database. Stop it first, on every machine.")
        stands = bool(connection.introspection.table_names())
    else:
        stands = files()[0].exists()
    stands = stands or any((folder / ATTACHMENTS).rglob("*"))
    if stands and not replace:
        raise CommandError(
            f"There is data here already ({startup.describe_database()}). --replace puts the backup in its place."
        )


def _is_served() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'signalbox-feed'"
        )
        return bool(cursor.fetchone()[0])


def _verify(source: Path, manifest: Manifest) -> None:
    if not {SQLITE_FILE, POSTGRES_FILE} & manifest.files.keys():
        raise CommandError(f"{source} has no database in it.")
    for name, file in manifest.files.items():
        try:
            found = digest_of(source / name)
        except OSError as problem:
            raise CommandError(
                f"{source / name} cannot be read: {problem.strerror}. Nothing was changed."
            ) from None
        if found != file:
            raise CommandError(
                f"{source / name} is not what was backed up (its checksum). Nothing was changed."
            )


def _put_back(source: Path, manifest: Manifest, now: datetime, say: Say) -> None:
    folder = Path(settings.DATA_DIR)
    staged, replaced = folder / "restoring", folder / f"replaced-{now:%Y%m%d-%H%M%S}"
    shutil.rmtree(staged, ignore_errors=True)
    require_room(folder, 2 * manifest.size if connection.vendor == "sqlite" else manifest.size)
    staged.mkdir(mode=0o700)
    try:
        for name in manifest.files:
            if name != POSTGRES_FILE:
                copy_synced(source / name, staged / name)
        connections.close_all()
        if connection.vendor == "postgresql":
            _load_postgres(source / POSTGRES_FILE)
        _swap(staged, replaced)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    if replaced.exists():
        say(f"What was here before is in {replaced}; remove it when you are sure.")


def _swap(staged: Path, replaced: Path) -> None:
    """Move what stands out of the way and what is staged into its place; a few renames on one disk."""
    folder = Path(settings.DATA_DIR)
    places = {staged / ATTACHMENTS: folder / ATTACHMENTS}
    if (staged / SECRET_KEY).exists():
        places[staged / SECRET_KEY] = folder / SECRET_KEY
    leaving = [folder / "thumbnails"]
    if connection.vendor == "sqlite":
        database, log = files()
        places[staged / SQLITE_FILE] = database
        # A log of the old database beside the new one would damage it.
        leaving += [log, database.with_name(f"{database.name}-shm")]
    for old in [*places.values(), *leaving]:
        if old.exists():
            replaced.mkdir(mode=0o700, exist_ok=True)
            old.rename(replaced / old.name)
    for new, place in places.items():
        if new.exists():
            new.rename(place)


def _load_postgres(dump: Path) -> None:
    """Load the dump into a schema of its own name while the old tables wait under another one."""
    if shutil.which("pg_restore") is None:
        raise CommandError("pg_restore is not installed here. It comes with PostgreSQL's client programs.")
    arguments, environment = postgres_arguments()
    options = ["--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error"]
    command = ["pg_restore", *options, *arguments, str(dump)]
    with _old_tables_aside():
        connections.close_all()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise CommandError(f"pg_restore failed: {done.stderr.strip()[:500]} Nothing was changed.")


@contextmanager
def _old_tables_aside() -> Iterator[None]:
    """Have an empty schema for the length of the block; then the old one goes, or comes back if it fails."""
    aside = "signalbox_replaced"
    _run(
        f"DROP SCHEMA IF EXISTS {aside} CASCADE",
        f"ALTER SCHEMA public RENAME TO {aside}",
        "CREATE SCHEMA public",
    )
    try:
        yield
    except BaseException:
        _run("DROP SCHEMA public CASCADE", f"ALTER SCHEMA {aside} RENAME TO public")
        raise
    _run(f"DROP SCHEMA {aside} CASCADE")


def _run(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
