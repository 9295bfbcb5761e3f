"""Preparations before the first request: a database at this code's schema, static files in place.

Every failure is a CommandError of one line that says what to do, raised before anything is half-made.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from django.apps import apps
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from coordinator.engine import database_move_state, health, is_sqlite, pooling
from coordinator.engine.locks import hold_migration_lock, run_with_lock_retries
from coordinator.lib.listening_sockets import LET_GO_WITHIN
from coordinator.operations import migrating, static_files, triggers_and_groups

Say = Callable[[str], object]
MigrationName = tuple[str, str]
LOCK_FILE = "serve.lock"  # in the data folder: who holds it, and a line of coordinator.operations.restarting
PAST_THE_POOLER = (
    "The feed needs a database session of its own: DATABASE_URL must lead to PostgreSQL itself. SIGNALBOX_POOL_URL "
    "may name the pooler for everything else."
)


def check_and_migrate_database(*, migrate: bool, say: Say, migrate_anyway: bool = False) -> None:
    """Check that the database answers and is not newer than the code, and migrate it where it is older.

    Two servers that start at once on one database take turns. While servers of an older version run, only migrations
    are applied that they can go on with, unless `migrate_anyway`. With `migrate=False` an older schema is an error.
    Raises CommandError.
    """
    require_reachable_unmoved_database()
    with hold_migration_lock():
        pending, newer = report_and_find_migration_differences(say)
        if not pending:
            if migrate and not newer:
                restore_missing_triggers_or_fail(say)
            return
        require_permission_to_migrate(pending, migrate=migrate)
        if applied_migrations() and not migrate_anyway:
            require_migrations_safe_for_running_servers()
        say(f"Migrating the database ({len(pending)} steps) …")
        call_command("migrate", interactive=False, verbosity=0)


def require_usable_and_check_migration(*, migrate: bool, say: Say) -> bool:
    """Say whether `check_and_migrate_database` would migrate. Raises CommandError where it would refuse to begin."""
    require_reachable_unmoved_database()
    pending, _ = report_and_find_migration_differences(say)
    if pending:
        require_permission_to_migrate(pending, migrate=migrate)
    return bool(pending)


def require_reachable_unmoved_database() -> None:
    """Raise CommandError where the database does not answer, is behind the wrong pooler, or has moved."""
    require_database_connection()
    require_compatible_pooler()
    refuse_moved_database()


def report_and_find_migration_differences(say: Say) -> tuple[set[MigrationName], list[str]]:
    """Return the migrations that the database lacks, and the names of those that only a newer version knows.

    Raises CommandError where a newer version has changed too much for this one.
    """
    known_migrations, applied = migrations_on_disk(), applied_migrations()
    refuse_newer_database(known_migrations, applied)
    if newer := find_newer_migrations(known_migrations, applied):
        say(
            f"A newer Signalbox has migrated the database ({newer[-1]}). This version can still use it; update soon."
        )
    return known_migrations - applied, newer


def require_permission_to_migrate(pending: set[MigrationName], *, migrate: bool) -> None:
    """Raise CommandError where migrations are pending and `--no-migrate` was given."""
    if not migrate:
        raise CommandError(
            f"The database lacks {len(pending)} migrations. Run `signalbox manage migrate`, "
            "or serve without --no-migrate."
        )


def restore_missing_triggers_or_fail(say: Say) -> None:
    """Create the triggers and groups that a process killed after the last migration left out."""
    try:
        run_with_lock_retries(lambda: restore_and_report_missing_triggers(say))
    except DatabaseError as problem:
        raise CommandError(
            f"The feed's triggers cannot be restored: {first_error_line(problem)} Try again in a moment."
        ) from None


def restore_and_report_missing_triggers(say: Say) -> None:
    if touched := triggers_and_groups.restore_triggers_and_groups(connection.alias):
        say(f"Restored {len(touched)} of the feed's triggers that an interrupted upgrade left out.")


def require_migrated_database() -> None:
    """Raise CommandError, in one line, unless this code's tables are all there; make no file."""
    name = connection.settings_dict["NAME"]
    started = "Start `signalbox serve` once, or run `signalbox manage migrate`, and try again."
    if is_sqlite() and not connection.in_atomic_block and not Path(name).is_file():
        raise CommandError(f"There is no database {name} yet. {started}")
    require_database_connection()
    known_migrations, applied = migrations_on_disk(), applied_migrations()
    if not applied:
        raise CommandError(f"The database {describe_database()} has no tables yet. {started}")
    refuse_newer_database(known_migrations, applied)
    if pending := known_migrations - applied:
        raise CommandError(f"The database {describe_database()} lacks {len(pending)} migrations. {started}")


def migrations_on_disk() -> set[MigrationName]:
    """Return (app, name) of every migration of every app, by file name.

    Django's own loader would import them all and build their graph, which costs every restart 0.3 s.
    """
    names_by_app = set()
    for app in apps.get_app_configs():
        package = Path(app.path) / "migrations"
        names = (path.stem for path in package.glob("[!_]*.py"))
        names_by_app |= {(app.label, name) for name in names}
    return names_by_app


def applied_migrations(on: BaseDatabaseWrapper = connection) -> set[MigrationName]:
    """Return (app, name) of every migration that a database has had, by default this one; none for a new one."""
    return set(MigrationRecorder(on).applied_migrations())


def require_database_connection() -> None:
    """Raise CommandError, in one line and without the password, if the database cannot be opened."""
    try:
        connection.ensure_connection()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, ImproperlyConfigured) as problem:
        error_line = first_error_line(problem)
        hint = f" {PAST_THE_POOLER}" if "startup parameter" in error_line else ""
        raise CommandError(
            f"The database {describe_database()} cannot be opened: {error_line}{hint}"
        ) from None


def first_error_line(problem: Exception) -> str:
    return str(problem).strip().splitlines()[0]


def require_compatible_pooler() -> None:
    """Raise CommandError where a pooler is in the way, or not set up as the workers need it (engine/pooling.py)."""
    if pooling.is_pooled_by_transaction():
        raise CommandError(f"{describe_database()} is a pooler in transaction mode. {PAST_THE_POOLER}")
    if not settings.POOL:
        return
    through = pooling.make_database_wrapper({**connections.settings["default"], **settings.POOL})
    try:
        lacking = pooling.list_unapplied_timeout_settings(through)
    except DatabaseError as problem:
        database_label = describe_database(settings.POOL)
        raise CommandError(
            f"The pooler of SIGNALBOX_POOL_URL, {database_label}, cannot be used: {first_error_line(problem)}"
        ) from None
    finally:
        through.close()
    if lacking:
        raise CommandError(
            f"Behind the pooler of SIGNALBOX_POOL_URL {', '.join(lacking)}: a stuck statement would stop a worker. "
            f"Add connect_query='{pooling.SET_UP}' to the database's line in pgbouncer.ini."
        )


def describe_database(values: dict[str, Any] | None = None) -> str:
    """Name the database for a person: a file's path, or host and name. Never a password."""
    values = values or connection.settings_dict
    if is_sqlite():
        return str(values["NAME"])
    return f"{values['NAME']} on {values['HOST'] or 'the local socket'}:{values['PORT'] or 5432}"


def refuse_moved_database() -> None:
    """Raise CommandError where this database's contents are in another one, or only some of another one's are here."""
    if database_move_state.is_closed_by_move():
        raise CommandError(
            f"{describe_database()} was moved to PostgreSQL by an older version and refuses writes. Set DATABASE_URL "
            "to PostgreSQL. To use the file all the same, drop its triggers whose names begin with "
            f"{database_move_state.TRIGGER}."
        )
    if database_move_state.is_move_incomplete():
        raise CommandError(
            f"{describe_database()} is incomplete: a move to it from SQLite was interrupted. "
            "Run `signalbox manage move_to` again, or set DATABASE_URL to what it was before."
        )


def find_newer_migrations(known_migrations: set[MigrationName], applied: set[MigrationName]) -> list[str]:
    """Return the migrations that only a later version of the code knows, in order."""
    return sorted(name for app, name in applied - known_migrations if app == "coordinator")


def require_migrations_safe_for_running_servers() -> None:
    """Raise CommandError where running servers could not go on with the pending migrations."""
    if not health.count_server_processes() or not (
        broken := migrating.select_unsafe_findings(migrating.list_pending_migration_safety_findings())
    ):
        return
    # The sessions of the server that this one follows end in a moment.
    until = time.monotonic() + LET_GO_WITHIN
    while server_process_count := health.count_server_processes():
        if time.monotonic() > until:
            raise CommandError(
                f"{server_process_count} processes of other servers use this database, and {broken[0].migration} is "
                f"not safe beside an older version: {broken[0].why}. Stop the other servers first, or use "
                "--migrate-anyway. `signalbox manage check_migrations` shows more."
            )
        time.sleep(0.1)


def refuse_newer_database(known_migrations: set[MigrationName], applied: set[MigrationName]) -> None:
    """Raise CommandError if a later version of the code has migrated this database further than this one can follow."""
    if taken_away := migrating.select_version_breaking_migrations(
        find_newer_migrations(known_migrations, applied)
    ):
        raise CommandError(
            f"The database was made by a newer Signalbox (it has migration {taken_away[-1]}). "
            "Update this checkout, or restore a backup from before it."
        )


def lock_data_folder(folder: Path, inherited: int | None = None, *, remedy: str = "") -> IO[str]:
    """Take the folder's lock for as long as this process lives; raise CommandError if another holds it.

    Args:
        folder: the data folder. It is made where it is missing.
        inherited: the lock's open file that this process has had since before it restarted itself.
        remedy: what to do where another process holds the lock.

    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK_FILE).open("a+") if inherited is None else os.fdopen(inherited, "a+")
    except OSError as problem:
        raise CommandError(f"The data folder {folder} cannot be used: {problem.strerror}.") from None
    if not wait_for_lock_or_timeout(file):
        file.seek(0)
        runs = f"Signalbox already runs on {folder} (process {file.readline().strip()})."
        raise CommandError(f"{runs} {remedy}".strip()) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def wait_for_lock_or_timeout(file: IO[str]) -> bool:
    """Lock the file; the workers of a server that was killed let go of it within a second."""
    deadline = time.monotonic() + LET_GO_WITHIN
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        else:
            return True


def collect_static_files_if_changed(*, say: Say) -> None:
    """Collect, hash and compress static files, unless the present ones were made from the same sources."""
    stamp = settings.STATIC_ROOT / ".made-from"
    fingerprint = static_source_files_digest()
    with contextlib.suppress(OSError):
        if stamp.read_text() == fingerprint:
            return
    say("Preparing static files …")
    try:
        static_files.renew_static_files(settings.STATIC_ROOT)
        stamp.write_text(fingerprint)
    except OSError as problem:
        raise CommandError(
            f"Static files cannot be written to {settings.STATIC_ROOT}: {problem.strerror}."
        ) from None


def static_source_files_digest() -> str:
    """Return a digest of every source file's path, size and time, and of Django's version."""
    digest = hashlib.sha256(f"{version('django')} {version('whitenoise')}".encode())
    for finder in get_finders():
        for path, storage in finder.list([]):
            status = os.stat(storage.path(path))
            digest.update(f"{path}:{status.st_size}:{status.st_mtime_ns};".encode())
    return digest.hexdigest()
