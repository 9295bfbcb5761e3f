"""Whether the database is whole, at this code's schema, with its triggers and with the right time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from django.conf import settings
from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.db import connection
from django.utils import timezone

from coordinator.actions import audit
from coordinator.engine import health, is_sqlite, moved
from coordinator.engine.size import files, size_in_bytes
from coordinator.feed import triggers
from coordinator.feed.reader import Change, Feed
from coordinator.identity.actors import system
from coordinator.lib import sizes
from coordinator.models.audit import AUDIT_KEPT
from coordinator.operations import startup
from coordinator.operations.doctor import Check, fail, ok, warn

LARGE_LOG = 256 * 1024 * 1024  # bytes; SQLite works them off at about 4 MB when nobody reads for long
NOTICED_WITHIN = 1.0  # seconds
GIVE_UP = 5.0


def opens() -> Check:
    """Say which database it is, or that it cannot be opened."""
    try:
        startup.require_database()
    except CommandError as problem:
        return fail("database", str(problem), "Check DATABASE_URL, and that the database server runs.")
    size = sizes.in_words(size_in_bytes())
    return ok("database", f"{health.version()} at {startup.describe_database()}, {size}")


def examine(now: datetime) -> Iterator[Check]:
    """Yield every check of a database that opens. The last one writes an audit row."""
    yield from _sqlite_settings() if is_sqlite() else _postgres_settings()
    yield from _pooler()
    yield from _moving()
    yield _migrations()
    yield _triggers()
    yield _clock(now)
    yield _feed()


def _moving() -> Iterator[Check]:
    """Report a move to PostgreSQL that is not finished, or that this database was left behind by one."""
    stage = moved.stage()
    again = "Run `manage.py move_to URL` again to continue."
    if stage is moved.Stage.LEFT:
        yield fail(
            "move", "All of this has moved to PostgreSQL.", "Set DATABASE_URL to that database, and restart."
        )
    elif stage is moved.Stage.ARRIVING:
        yield fail("move", "The move to this database is not finished.", again)
    elif stage is moved.Stage.LEAVING:
        yield warn(
            "move",
            "A move to PostgreSQL was begun and not finished; every write is noted for it.",
            f"{again} Or give it up with --undo.",
        )


def _sqlite_settings() -> Iterator[Check]:
    mode = health.scalar("PRAGMA journal_mode")
    if mode == "wal":
        yield ok("journal", "WAL: readers and the writer do not wait for each other")
    else:
        yield fail(
            "journal", f"The journal mode is {mode}, not wal.", "Put the file on a local disk, not a share."
        )
    log = files()[1]
    size = log.stat().st_size if log.exists() else 0
    if size > LARGE_LOG:
        yield warn(
            "journal",
            f"The write-ahead log has grown to {sizes.in_words(size)}: a program has kept a read transaction open "
            "for a long time.",
            "Close the program that keeps the file open (such as a database browser), or restart the server.",
        )
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA quick_check(5)")
        faults = [row[0] for row in cursor.fetchall()]
        cursor.execute("PRAGMA foreign_key_check")
        loose = len(cursor.fetchmany(1000))
    if faults != ["ok"]:
        yield fail("integrity", f"The file is damaged: {faults[0]}", "Stop the server and restore a backup.")
    elif loose:
        yield warn(
            "integrity",
            f"{loose} rows refer to rows that no longer exist.",
            "Another program wrote them. They do no harm.",
        )
    else:
        yield ok("integrity", "quick_check finds nothing wrong")


def _postgres_settings() -> Iterator[Check]:
    wrong = []
    for name, wanted in (("server_encoding", "UTF8"), ("fsync", "on"), ("full_page_writes", "on")):
        found = health.scalar(f"SHOW {name}")
        if found != wanted:
            wrong.append(f"{name} is {found}, not {wanted}")
    if wrong:
        yield warn(
            "integrity",
            f"{'; '.join(wrong)}.",
            "Data can be lost in a power cut, or in unusual characters. Correct this setting.",
        )
    else:
        yield ok("integrity", f"fsync on, UTF-8, data checksums {health.scalar('SHOW data_checksums')}")


def _pooler() -> Iterator[Check]:
    """Say whether a pooler is used as it can be; nothing where there is none."""
    try:
        startup.require_sessions()
    except CommandError as problem:
        yield fail("pooler", str(problem), "")
    else:
        if settings.POOL:
            yield ok("pooler", f"{startup.describe_database(settings.POOL)}; the feed connects past it")


def _migrations() -> Check:
    known, applied = startup.migrations_on_disk(), startup.applied_migrations()
    try:
        startup.refuse_newer_database(known, applied)
    except CommandError as problem:
        return fail("migrations", str(problem), "")
    if pending := known - applied:
        return fail("migrations", f"{len(pending)} are missing.", "python manage.py migrate")
    if newer := startup.migrations_of_newer(known, applied):
        return warn("migrations", f"A newer Signalbox has added {newer[-1]}.", "Update this server.")
    return ok("migrations", "all applied")


def _triggers() -> Check:
    if startup.migrations_of_newer(startup.migrations_on_disk(), startup.applied_migrations()):
        return ok("triggers", "are those of a newer version")
    wanted, found = triggers.expected(connection), triggers.standing(connection)
    missing = wanted.keys() - found.keys()
    altered = {name for name in wanted.keys() & found.keys() if found[name][1] != wanted[name].fingerprint}
    stray = found.keys() - wanted.keys()
    if missing or altered or stray:
        said = [
            f"{len(names)} {what} ({sorted(names)[0]})"
            for names, what in ((missing, "missing"), (altered, "altered"), (stray, "unknown"))
            if names
        ]
        return fail(
            "triggers",
            f"Open pages miss some changes: {', '.join(said)}.",
            "Run: python manage.py migrate",
        )
    if not health.has_trigger("audit_log_cleanup"):
        return warn(
            "triggers",
            f"The audit log is not cleaned up after {AUDIT_KEPT.days} days: its trigger is gone.",
            "Restore it.",
        )
    return ok("triggers", f"{len(wanted) + 1} are in place")


def _clock(now: datetime) -> Check:
    """Compare the database's time with this machine's, or with what was written last where they are one."""
    if theirs := health.time_there():
        apart = abs((theirs - timezone.now()).total_seconds())
        if apart > 2:
            return (fail if apart > 30 else warn)(
                "clock",
                f"The database's clock and this machine's are {apart:.0f} s apart.",
                "Synchronise both with NTP.",
            )
        return ok("clock", f"{apart * 1000:.0f} ms from the database's")
    newest = health.scalar("SELECT max(at) FROM changes")
    ahead = float(newest or 0) / 1000 - now.timestamp()
    if ahead > 5:
        return fail(
            "clock",
            f"The last change is {ahead:.0f} s in the future: the clock was set back.",
            "Synchronise it with NTP.",
        )
    return ok("clock", "no change has a time in the future")


def _feed() -> Check:
    """Write a row that changes nothing else and measure how long a tailer takes to notice it."""
    noticed = threading.Event()

    def look(batch: Sequence[Change]) -> None:
        if any(change.topic == "audit" for change in batch):
            noticed.set()

    feed = Feed()
    feed.listeners.append(look)
    feed.watch()
    try:
        feed.start()
        began = time.monotonic()
        audit.record("DOCTOR_RAN", actor=system("doctor"), target=None, result="success")
        noticed.wait(GIVE_UP)
        took = time.monotonic() - began
    except (DatabaseError, TimeoutError) as problem:
        return fail(
            "feed",
            f"Nothing can be written: {problem}",
            "Find the program that holds the lock, and check the disk.",
        )
    finally:
        feed.stop()
    if not noticed.is_set():
        return fail("feed", f"A change was not noticed within {GIVE_UP:g} s.", "python manage.py migrate")
    if took > NOTICED_WITHIN:
        return warn(
            "feed", f"A change was noticed after {took:.1f} s.", "The machine or its disk is overloaded."
        )
    return ok("feed", f"a change is noticed after {took * 1000:.0f} ms")
