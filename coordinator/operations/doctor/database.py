"""Checks that the database is intact, at this code's schema, with its triggers and with the right time."""

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

from coordinator.actions.audit import audit
from coordinator.engine import health, is_sqlite
from coordinator.engine.size import database_size_bytes, sqlite_files
from coordinator.feed import triggers
from coordinator.feed.reader import ChangeFeed, FeedChange
from coordinator.identity.actors import system_actor
from coordinator.lib import sizes
from coordinator.models.audit import AUDIT_RETENTION
from coordinator.operations import shrinking, startup
from coordinator.operations.doctor import CheckResult, failed_check, passed_check, warning_check

LARGE_LOG = 256 * 1024 * 1024  # bytes; SQLite works them off at about 4 MB when nobody reads for long
NOTICED_WITHIN = 1.0  # seconds
GIVE_UP = 5.0


def check_database_opens() -> CheckResult:
    """Say which database it is, or that it cannot be opened."""
    try:
        startup.require_database_connection()
    except CommandError as problem:
        return failed_check(
            "database", str(problem), "Check DATABASE_URL, and that the database server runs."
        )
    size = sizes.format_byte_count(database_size_bytes())
    return passed_check("database", f"{health.database_version()} at {startup.describe_database()}, {size}")


def iterate_database_checks(now: datetime) -> Iterator[CheckResult]:
    """Yield every check of a database that opens. The last one writes an audit row."""
    yield from iterate_sqlite_file_checks() if is_sqlite() else iterate_postgres_settings_checks()
    yield from iterate_pooler_checks()
    yield from iterate_unfinished_move_checks()
    yield check_applied_migrations()
    yield check_feed_triggers()
    yield check_database_clock(now)
    yield check_feed_delay_by_writing()


def iterate_unfinished_move_checks() -> Iterator[CheckResult]:
    """Report that this database is incomplete after a move, or that its contents have moved away."""
    try:
        startup.refuse_moved_database()
    except CommandError as problem:
        yield failed_check("move", str(problem), "")


def iterate_sqlite_file_checks() -> Iterator[CheckResult]:
    mode = health.select_scalar("PRAGMA journal_mode")
    if mode == "wal":
        yield passed_check("journal", "WAL: readers and the writer do not wait for each other")
    else:
        yield failed_check(
            "journal", f"The journal mode is {mode}, not wal.", "Put the file on a local disk, not a share."
        )
    log = sqlite_files()[1]
    size = log.stat().st_size if log.exists() else 0
    if size > LARGE_LOG:
        yield warning_check(
            "journal",
            f"The write-ahead log has grown to {sizes.format_byte_count(size)}: a program has kept a read"
            " transaction open for a long time.",
            "Close the program that keeps the file open (such as a database browser), or restart the server.",
        )
    file_room = shrinking.measure_sqlite_file_space()
    if file_room.has_much_free_space:
        yield warning_check(
            "file",
            f"{sizes.format_byte_count(file_room.free)} of the database's file are free, beside"
            f" {sizes.format_byte_count(file_room.used)} in use. New data is written there first.",
            "To give them back to the disk: signalbox manage shrink",
        )
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA quick_check(5)")
        problems = [row[0] for row in cursor.fetchall()]
        cursor.execute("PRAGMA foreign_key_check")
        loose = len(cursor.fetchmany(1000))
    if problems != ["ok"]:
        yield failed_check(
            "integrity", f"The file is damaged: {problems[0]}", "Stop the server and restore a backup."
        )
    elif loose:
        yield warning_check(
            "integrity",
            f"{loose} rows refer to rows that no longer exist.",
            "Another program wrote them. They do no harm.",
        )
    else:
        yield passed_check("integrity", "quick_check finds nothing wrong")


def iterate_postgres_settings_checks() -> Iterator[CheckResult]:
    wrong = []
    for name, expected_value in (("server_encoding", "UTF8"), ("fsync", "on"), ("full_page_writes", "on")):
        scalar = health.select_scalar(f"SHOW {name}")
        if scalar != expected_value:
            wrong.append(f"{name} is {scalar}, not {expected_value}")
    if wrong:
        yield warning_check(
            "integrity",
            f"{'; '.join(wrong)}.",
            "Data can be lost in a power cut, or in unusual characters. Correct this setting.",
        )
    else:
        yield passed_check(
            "integrity", f"fsync on, UTF-8, data checksums {health.select_scalar('SHOW data_checksums')}"
        )


def iterate_pooler_checks() -> Iterator[CheckResult]:
    """Say whether a pooler is used as it can be; nothing where there is none."""
    try:
        startup.require_compatible_pooler()
    except CommandError as problem:
        yield failed_check("pooler", str(problem), "")
    else:
        if settings.POOL:
            yield passed_check(
                "pooler", f"{startup.describe_database(settings.POOL)}; the feed connects past it"
            )


def check_applied_migrations() -> CheckResult:
    known_migrations, applied = startup.migrations_on_disk(), startup.applied_migrations()
    try:
        startup.refuse_newer_database(known_migrations, applied)
    except CommandError as problem:
        return failed_check("migrations", str(problem), "")
    if pending := known_migrations - applied:
        return failed_check("migrations", f"{len(pending)} are missing.", "signalbox manage migrate")
    if newer := startup.find_newer_migrations(known_migrations, applied):
        return warning_check("migrations", f"A newer Signalbox has added {newer[-1]}.", "Update this server.")
    return passed_check("migrations", "all applied")


def check_feed_triggers() -> CheckResult:
    if startup.find_newer_migrations(startup.migrations_on_disk(), startup.applied_migrations()):
        return passed_check("triggers", "are those of a newer version")
    expected_triggers, current_triggers = (
        triggers.build_expected_triggers(connection),
        triggers.load_current_trigger_fingerprints(connection),
    )
    missing = expected_triggers.keys() - current_triggers.keys()
    altered = {
        name
        for name in expected_triggers.keys() & current_triggers.keys()
        if current_triggers[name][1] != expected_triggers[name].trigger_fingerprint
    }
    stray = current_triggers.keys() - expected_triggers.keys()
    if missing or altered or stray:
        problems = [
            f"{len(names)} {problem_label} ({sorted(names)[0]})"
            for names, problem_label in ((missing, "missing"), (altered, "altered"), (stray, "unknown"))
            if names
        ]
        return failed_check(
            "triggers",
            f"Open pages miss some changes: {', '.join(problems)}.",
            "Run: signalbox manage migrate",
        )
    if not health.has_trigger("audit_log_cleanup"):
        return warning_check(
            "triggers",
            f"The audit log is not cleaned up after {AUDIT_RETENTION.days} days: its trigger is gone.",
            "Restore it.",
        )
    return passed_check("triggers", f"{len(expected_triggers) + 1} are in place")


def check_database_clock(now: datetime) -> CheckResult:
    """Compare the database's time with this machine's, or with what was written last where they are one."""
    if server_time := health.database_server_time():
        apart = abs((server_time - timezone.now()).total_seconds())
        if apart > 2:
            return (failed_check if apart > 30 else warning_check)(
                "clock",
                f"The database's clock and this machine's are {apart:.0f} s apart.",
                "Synchronise both with NTP.",
            )
        return passed_check("clock", f"{apart * 1000:.0f} ms from the database's")
    newest = health.select_scalar("SELECT max(at) FROM changes")
    ahead = float(newest or 0) / 1000 - now.timestamp()
    if ahead > 5:
        return failed_check(
            "clock",
            f"The last change is {ahead:.0f} s in the future: the clock was set back.",
            "Synchronise it with NTP.",
        )
    return passed_check("clock", "no change has a time in the future")


def check_feed_delay_by_writing() -> CheckResult:
    """Write a row that changes nothing else and measure how long a tailer takes to notice it."""
    noticed = threading.Event()

    def notice_audit_change(batch: Sequence[FeedChange]) -> None:
        if any(change.topic == "audit" for change in batch):
            noticed.set()

    feed = ChangeFeed()
    feed.listeners.append(notice_audit_change)
    feed.add_watcher()
    try:
        feed.start_feed()
        started_at = time.monotonic()
        audit.record_audit_entry("DOCTOR_RAN", actor=system_actor("doctor"), target=None, result="success")
        noticed.wait(GIVE_UP)
        took = time.monotonic() - started_at
    except (DatabaseError, TimeoutError) as problem:
        return failed_check(
            "feed",
            f"Nothing can be written: {problem}",
            "Find the program that holds the lock, and check the disk.",
        )
    finally:
        feed.stop_feed()
    if not noticed.is_set():
        return failed_check(
            "feed", f"A change was not noticed within {GIVE_UP:g} s.", "signalbox manage migrate"
        )
    if took > NOTICED_WITHIN:
        return warning_check(
            "feed", f"A change was noticed after {took:.1f} s.", "The machine or its disk is overloaded."
        )
    return passed_check("feed", f"a change is noticed after {took * 1000:.0f} ms")
