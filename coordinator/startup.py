"""What must be true before the first request: a database at this code's schema, static files in place.

Every failure is a CommandError of one line that says what to do, raised before anything is half-made.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import IO

from django.apps import apps
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder

Say = Callable[[str], object]
MigrationName = tuple[str, str]

# Any number that nobody else uses for an advisory lock on this database.
MIGRATION_LOCK = 0x51_6E_A1_B0


def prepare_database(*, migrate: bool, say: Say) -> None:
    """Check that the database answers and is not newer than the code; migrate it where it is older.

    Two servers that start at once on one database take turns. With `migrate=False` an older schema is an
    error. Raises CommandError.
    """
    require_database()
    with migration_lock():
        known, applied = migrations_on_disk(), applied_migrations()
        refuse_newer_database(known, applied)
        pending = known - applied
        if not pending:
            return
        if not migrate:
            raise CommandError(
                f"The database lacks {len(pending)} migrations. Run `python manage.py migrate`, "
                "or serve without --no-migrate."
            )
        say(f"Migrating the database ({len(pending)} steps) …")
        call_command("migrate", interactive=False, verbosity=0)


def migrations_on_disk() -> set[MigrationName]:
    """Return (app, name) of every migration of every app, by file name.

    Django's own loader would import them all and build their graph, which costs every restart 0.3 s.
    """
    found = set()
    for app in apps.get_app_configs():
        package = Path(app.path) / "migrations"
        names = (path.stem for path in package.glob("[!_]*.py"))
        found |= {(app.label, name) for name in names}
    return found


def applied_migrations() -> set[MigrationName]:
    """Return (app, name) of every migration that this database has had; none for a new one."""
    return set(MigrationRecorder(connection).applied_migrations())


def require_database() -> None:
    """Raise CommandError, in one line and without the password, if the database cannot be opened."""
    try:
        connection.ensure_connection()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, ImproperlyConfigured) as problem:
        first_line = str(problem).strip().splitlines()[0]
        raise CommandError(f"The database {describe_database()} cannot be opened: {first_line}") from None


def describe_database() -> str:
    """Name the database for a person: a file's path, or host and name. Never a password."""
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        return str(values["NAME"])
    return f"{values['NAME']} on {values['HOST'] or 'the local socket'}:{values['PORT'] or 5432}"


def refuse_newer_database(known: set[MigrationName], applied: set[MigrationName]) -> None:
    """Raise CommandError if a later version of the code has migrated this database."""
    unknown = sorted(name for app, name in applied - known if app == "coordinator")
    if unknown:
        raise CommandError(
            f"The database was made by a newer Signalbox (it has migration {unknown[-1]}). "
            "Update this checkout, or restore a backup of that time."
        )


@contextlib.contextmanager
def migration_lock() -> Iterator[None]:
    """Hold the one right to migrate this database, waiting for whoever has it."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
            try:
                yield
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])
        return
    lock = Path(f"{connection.settings_dict['NAME']}.migrating")
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def hold_data_folder(folder: Path) -> IO[str]:
    """Take the folder's lock for as long as this process lives; raise CommandError if another holds it.

    With SO_REUSEPORT a second server would start silently beside the first and share its connections.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "serve.lock").open("a+")
    except OSError as problem:
        raise CommandError(f"The data folder {folder} cannot be used: {problem.strerror}.") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        raise CommandError(f"Signalbox already runs on {folder} (process {file.read().strip()}).") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def prepare_static_files(*, say: Say) -> None:
    """Collect, hash and compress static files, unless what stands was made from the same sources."""
    stamp = settings.STATIC_ROOT / ".made-from"
    fingerprint = static_fingerprint()
    with contextlib.suppress(OSError):
        if stamp.read_text() == fingerprint:
            return
    say("Preparing static files …")
    try:
        call_command("collectstatic", interactive=False, verbosity=0, clear=True)
        stamp.write_text(fingerprint)
    except OSError as problem:
        raise CommandError(
            f"Static files cannot be written to {settings.STATIC_ROOT}: {problem.strerror}."
        ) from None


def static_fingerprint() -> str:
    """Return a digest of every source file's path, size and time, and of Django's version."""
    digest = hashlib.sha256(f"{version('django')} {version('whitenoise')}".encode())
    for finder in get_finders():
        for path, storage in finder.list([]):
            status = os.stat(storage.path(path))
            digest.update(f"{path}:{status.st_size}:{status.st_mtime_ns};".encode())
    return digest.hexdigest()
