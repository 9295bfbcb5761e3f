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

from coordinator.actions import approvals, audit
from coordinator.chat import stores
from coordinator.engine import engine_name, health, is_sqlite
from coordinator.engine.size import files
from coordinator.identity.actors import system
from coordinator.operations import startup
from coordinator.operations.backups import (
    KEYS,
    POSTGRES_FILE,
    SQLITE_FILE,
    Manifest,
    buckets,
    copy_synced,
    digest_of,
    error_in_one_line,
    place_of_key,
    postgres_arguments,
    read_manifest,
    require_room,
)

Say = Callable[[str], object]

# Where PostgreSQL's old tables wait until everything new is in its place.
ASIDE = "signalbox_replaced"
MAYBE_USED = "A backup was restored: the call may have run since the backup was made. It can ask again."


def restore(source: Path, now: datetime, *, replace: bool, say: Say) -> Manifest:
    """Replace the data here with the backup in the folder `source`, and migrate it where it is older.

    Without `replace` there may be no data here yet. Replaced data is kept beside its place, in folders that `say`
    names (on PostgreSQL: attachments and key; the old tables go when all is in its place). Approvals for one call that
    the backup knows as unused end: the call may have run since. Raises CommandError.
    """
    source = source.absolute()
    manifest = read_manifest(source)
    _refuse_what_does_not_fit(manifest)
    held = startup.hold_data_folder(Path(settings.DATA_DIR))
    try:
        _refuse_over_something(replace)
        say(f"Checking {len(manifest.files)} files …")
        _verify(source, manifest)
        say("Restoring them …")
        with error_in_one_line(f"Restoring {source}"):
            _put_back(source, manifest, now, say)
        connections.close_all()
        startup.prepare_database(migrate=True, say=say)
        with transaction.atomic():
            brought = buckets.now_in_folder(manifest)
            ended = approvals.end_unused(by=system("restore"), reason=MAYBE_USED, now=now)
            facts = {"path": str(source), "made_at": manifest.made_at, "version": manifest.version}
            audit.record(
                "BACKUP_RESTORED",
                actor=system("restore"),
                target=None,
                result="success",
                metadata=facts | {"approvals_ended": ended, "attachments_brought_from_bucket": brought},
                now=now,
            )
        if ended:
            say(f"Ended {ended} approvals of calls that may have run since the backup was made.")
        _tell_of_bucket(manifest, brought, say)
    finally:
        held.close()
    return manifest


def _tell_of_bucket(manifest: Manifest, brought: int, say: Say) -> None:
    """Print which files are in a bucket, and whether they are there."""
    if brought:
        say(
            f"{brought} attachments that were in S3 came with the backup and are in the data folder now. "
            "python manage.py move_attachments moves them."
        )
    if elsewhere := buckets.elsewhere():
        say(f"Not in the backup: {elsewhere.in_words}")
        then = str((manifest.elsewhere or {}).get("where") or "")
        if then and then != elsewhere.where:
            say(
                f"When it was made, they were in {then}: check that SIGNALBOX_S3_BUCKET and _PREFIX name that place."
            )


def _refuse_what_does_not_fit(manifest: Manifest) -> None:
    if manifest.engine != engine_name():
        raise CommandError(
            f"This backup is of {manifest.engine}, and DATABASE_URL names {engine_name()}. Point DATABASE_URL at "
            "the same engine (import_db imports another database's sessions)."
        )
    known = {name for app, name in startup.migrations_on_disk() if app == "coordinator"}
    if unknown := sorted(set(manifest.migrations) - known):
        raise CommandError(
            f"This backup was made by a newer Signalbox ({manifest.version}, migration {unknown[-1]}). Update first."
        )


def _refuse_over_something(replace: bool) -> None:
    folder = Path(settings.DATA_DIR)
    if not is_sqlite():
        startup.require_database()
        if health.servers_at_work():
            raise CommandError("A server is connected to this database. Stop it first, on every machine.")
        _refuse_over_old_tables_aside()
        stands = bool(connection.introspection.table_names())
    else:
        stands = files()[0].exists()
    stands = stands or any((folder / stores.FOLDER).rglob("*"))
    if stands and not replace:
        raise CommandError(
            f"There is already data here ({startup.describe_database()}). Add --replace to replace it with the backup."
        )


def _refuse_over_old_tables_aside() -> None:
    """Raise CommandError where an earlier restore was killed: nobody but a person can tell which tables count."""
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


def _verify(source: Path, manifest: Manifest) -> None:
    if not {SQLITE_FILE, POSTGRES_FILE} & manifest.files.keys():
        raise CommandError(f"{source} contains no database.")
    for name, file in manifest.files.items():
        try:
            found = digest_of(source / name)
        except OSError as problem:
            raise CommandError(
                f"{source / name} cannot be read: {problem.strerror}. Nothing was changed."
            ) from None
        if found != file:
            raise CommandError(
                f"{source / name} has changed since the backup (its checksum differs). Nothing was changed."
            )


def _put_back(source: Path, manifest: Manifest, now: datetime, say: Say) -> None:
    places = _places()
    aside = _free_name(f"replaced-{now:%Y%m%d-%H%M%S}", {place.parent for place in places.values()})
    _remove_staged(places.values())
    _require_room(manifest, places)
    try:
        for name in manifest.files:
            top, _, below = name.partition("/")
            if top in places:
                copy_synced(source / name, _staged(places[top]) / below)
        connections.close_all()
        with nullcontext() if is_sqlite() else _loaded_into_postgres(source / POSTGRES_FILE):
            kept = _swap(places, aside)
    finally:
        _remove_staged(places.values())
    if kept:
        folders = " and ".join(str(folder) for folder in kept)
        say(f"What was here before is in {folders}; remove it when you are sure.")


def _places() -> dict[str, Path]:
    """Return where the parts of a backup belong, by their names in it; PostgreSQL's tables have no place here."""
    folder = Path(settings.DATA_DIR)
    places = {stores.FOLDER: folder / stores.FOLDER, **{name: place_of_key(name) for name in KEYS}}
    if is_sqlite():
        places[SQLITE_FILE] = files()[0]
    return places


def _free_name(name: str, folders: Collection[Path]) -> str:
    """Return the name, or the first of `name-2`, `name-3`, … that is in none of the folders."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(one for one in names if not any((folder / one).exists() for folder in folders))


def _staged(place: Path) -> Path:
    """Return where the new `place` is made ready: beside it, as nothing is renamed from one disk to another."""
    return place.with_name(f"{place.name}.restoring")


def _remove_staged(places: Iterable[Path]) -> None:
    for staged in map(_staged, places):
        if staged.is_dir():
            shutil.rmtree(staged, ignore_errors=True)
        else:
            staged.unlink(missing_ok=True)


def _require_room(manifest: Manifest, places: dict[str, Path]) -> None:
    """Raise CommandError where a disk has not the room for what goes there; twice for a database, to migrate it."""
    folders: dict[int, Path] = {}
    needed: Counter[int] = Counter()
    for name, file in manifest.files.items():
        place = places.get(name.partition("/")[0])
        if place is not None:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk = _disk_of(place.parent)
            folders.setdefault(disk, place.parent)
            needed[disk] += file.bytes * (2 if name == SQLITE_FILE else 1)
    for disk, folder in folders.items():
        require_room(folder, needed[disk])


def _disk_of(folder: Path) -> int:
    return folder.stat().st_dev


def _swap(places: dict[str, Path], aside: str) -> list[Path]:
    """Move existing data into folders called `aside` beside it and staged data into its place; return the folders.

    Where a step fails, those before it are undone and its error is raised.
    """
    new = [place for place in places.values() if _staged(place).exists()]
    old = {*new, places[stores.FOLDER], places[stores.FOLDER].with_name("thumbnails")}
    if SQLITE_FILE in places:
        database, log = files()
        # A log of the old database beside the new one would damage it.
        old |= {log, database.with_name(f"{database.name}-shm")}
    kept: list[Path] = []
    with ExitStack() as undo:

        def move(source: Path, target: Path) -> None:
            source.rename(target)
            undo.callback(target.rename, source)

        for place in sorted(place for place in old if place.exists()):
            folder = place.parent.resolve() / aside
            if folder not in kept:
                folder.mkdir(mode=0o700)
                undo.callback(folder.rmdir)
                kept.append(folder)
            move(place, folder / place.name)
        for place in new:
            move(_staged(place), place)
        undo.pop_all()
    return kept


@contextmanager
def _loaded_into_postgres(dump: Path) -> Iterator[None]:
    """Have the dump's tables in the place of the old ones; the old ones come back if it or the block fails."""
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
        yield


@contextmanager
def _old_tables_aside() -> Iterator[None]:
    """Have an empty schema for the length of the block; then the old one goes, or comes back if it fails."""
    _run(f"ALTER SCHEMA public RENAME TO {ASIDE}", "CREATE SCHEMA public")
    try:
        yield
    except BaseException:
        _run("DROP SCHEMA public CASCADE", f"ALTER SCHEMA {ASIDE} RENAME TO public")
        raise
    _run(f"DROP SCHEMA {ASIDE} CASCADE")


def _run(*statements: str) -> None:
    """Run the statements in one transaction: a restore that is killed leaves all of them done, or none."""
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
