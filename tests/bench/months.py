"""`python -m tests.bench.months`: what a year of very many events costs on PostgreSQL.

Works inside, on the database that DATABASE_URL names, which must be migrated, empty and of no other use. It fills the
events of a year, then prints what loading, the disk, the pages people open most, new events and the retention of one
month cost.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Any

import django

DAYS = 360
MONTHS = 12
BATCH = 5_000
TABLES = ("events", "event_context", "sbx_search", "sbx_file_touches")


def main() -> None:
    """Fill and measure, as the command line asks."""
    options = arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    from django.db import connection
    from django.utils import timezone

    if connection.vendor != "postgresql":
        raise SystemExit("This measures PostgreSQL: set DATABASE_URL=postgres://…")
    now = timezone.now()
    if not options.measure:
        if sql("SELECT 1 FROM events LIMIT 1"):
            raise SystemExit("This database has events. Give it one of its own, or --measure what is there.")
        say("loading, events/s", load(options.events, options.sessions or options.events // 100, now))
        if options.search:
            say("search index, events/s", index(options.events))
        say("ANALYZE, s", seconds(analyze))
    disk(options.events)
    newcomers(now)
    pages(options.times)
    if options.retention:
        retention(now)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.months", description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--sessions", type=int, help="how many sessions (a hundredth of the events)")
    parser.add_argument("--measure", action="store_true", help="measure what an earlier run has filled in")
    parser.add_argument(
        "--no-search", dest="search", action="store_false", help="leave the search index empty"
    )
    parser.add_argument("--no-retention", dest="retention", action="store_false", help="keep the first month")
    parser.add_argument("--times", type=int, default=11, help="how often each page is asked for")
    return parser.parse_args()


def say(what: str, figure: object) -> None:
    """Print one row of the table."""
    shown = f"{figure:,.1f}" if isinstance(figure, float) else str(figure)
    print(f"| {what} | {shown} |", flush=True)


def seconds(work: Callable[[], object]) -> float:
    """Return how long a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def sql(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Run a statement and return its rows."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def load(events: int, sessions: int, now: datetime) -> float:
    """Write sessions and events that end at `now`, as ingest does but in larger groups; return events a second."""
    from django.db import transaction

    from coordinator.engine import bulk
    from coordinator.models import Change, Session
    from tests.bench import corpus

    size = corpus.Size(sessions, events)
    corpus.DAYS = DAYS
    dice = Random(7)
    for rows in corpus._batches(corpus._sessions(size, now)):
        Session.objects.bulk_create(rows)
    took, written = 0.0, 0
    rows = _rows(corpus._events(size, now, dice, corpus._sentences(dice)))
    while batch := list(islice(rows, BATCH)):
        began = time.perf_counter()
        with transaction.atomic():
            bulk.insert_rows_into_two_tables(
                "events", EVENT, batch, second_table="event_context", key="event_id", second_columns=CONTEXT
            )
        took += time.perf_counter() - began
        written += len(batch)
        if written % (BATCH * 40) == 0:
            print(f"{written:,} events", flush=True)
            Change.objects.all()._raw_delete(Change.objects.db)
    return events / took


EVENT = (
    "session_id",
    "event_type",
    "timestamp",
    "tool_name",
    "tool_input",
    "tool_output",
    "error",
    "role",
    "content",
)
CONTEXT = ("session_id", "instant_us", "received_at", "model", "input_tokens", "output_tokens")


def _rows(events: Iterator[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    from coordinator.lib import instants

    for number, event in enumerate(events):
        values = [
            json.dumps(value) if isinstance(value, dict | list) else value
            for value in (getattr(event, name) for name in EVENT)
        ]
        at = instants.parse_instant_or_none(event.timestamp)
        assert at is not None
        at_us = instants.instant_to_microseconds(at)
        spent = ["claude-sonnet-4", 900, 100] if number % 10 == 0 else [None, None, None]
        yield values, [event.session_id, at_us, at_us // 1000, *spent]


def index(events: int) -> float:
    """Fill the search index; return events a second."""
    from coordinator.actions import search

    return events / seconds(search.rebuild_search_index)


def analyze() -> None:
    """Gather statistics, as autovacuum would by and by."""
    sql("ANALYZE")


def disk(events: int) -> None:
    """Print how much room an event takes, and how much of that are indexes."""
    whole = {table: _sizes(table) for table in TABLES}
    total, indexes = (sum(one[place] for one in whole.values()) for place in (0, 1))
    say("bytes an event", total / events)
    say("of them indexes, %", 100 * indexes / total)
    for table, (bytes_, of_indexes) in whole.items():
        say(f"bytes an event: {table} (indexes)", f"{bytes_ / events:,.0f} ({of_indexes / events:,.0f})")


def _sizes(table: str) -> tuple[int, int]:
    leaves = "SELECT relid FROM pg_partition_tree(%s::regclass) UNION SELECT %s::regclass"
    found = sql(
        f"SELECT sum(pg_total_relation_size(relid))::bigint, sum(pg_indexes_size(relid))::bigint FROM ({leaves}) t",
        table,
        table,
    )
    return found[0][0], found[0][1]


def newcomers(now: datetime) -> None:
    """Print how many new events a second one process writes, in small groups and in large ones."""
    from coordinator.actions.sessions.events import record_events
    from coordinator.models import Event, Session
    from coordinator.sessions.events import NewEvent

    names = [f"ses_b{number:011x}" for number in range(20)]
    Session.objects.bulk_create(Session(session_id=name, status="running", created_at=now) for name in names)
    for group, groups in ((20, 100), (500, 10)):
        items = [
            NewEvent(
                event_type="message",
                session_id=names[number % len(names)],
                timestamp=now.isoformat(),
                role="assistant",
                content=[{"type": "text", "text": "a few words that somebody said " * 8}],
            )
            for number in range(group)
        ]
        took = seconds(lambda items=items, groups=groups: [record_events(items, now) for _ in range(groups)])  # type: ignore[misc]
        say(f"new events/s, {group} together", group * groups / took)
    Event.objects.filter(session_id__in=names).delete()
    Session.objects.filter(pk__in=names).delete()


def pages(times: int) -> None:
    """Print how long the pages take that people open most."""
    from django.conf import settings
    from django.contrib.auth.models import Group, User
    from django.test import Client

    from coordinator.models import Session
    from coordinator.operations.startup import collect_static_files_if_changed
    from tests.bench import corpus
    from tests.bench.finding import PERSON, report

    settings.ALLOWED_HOSTS = ["testserver"]
    collect_static_files_if_changed(say=lambda _: None)
    user, _ = User.objects.get_or_create(username=PERSON)
    user.groups.add(Group.objects.get(name="admin"))
    client = Client()
    client.force_login(user)
    names = list(Session.objects.exclude(pk=corpus.LONG).order_by("created_at").values_list("pk", flat=True))
    oldest, middle, newest = (names[len(names) * part // 100] for part in (1, 50, 99))
    asked = {
        "overview": "/ui/",
        "sessions": "/ui/sessions/",
        "sessions, page 100": "/ui/sessions/?page=100",
        "a session of this month": f"/ui/sessions/{newest}/",
        "a session of half a year ago": f"/ui/sessions/{middle}/",
        "a session of a year ago": f"/ui/sessions/{oldest}/",
        "a session of the whole year": f"/ui/sessions/{corpus.LONG}/",
        "its end": f"/ui/sessions/{corpus.LONG}/?from=end",
        "search, a word of every event": "/ui/search/?q=everywhere",
        "search, a rare word": "/ui/search/?q=needle",
        "search, a word of old events": "/ui/search/?q=yesteryear",
        "files, a path that many calls touch": f"/ui/files/?path={corpus.HOT}",
    }
    print("| page | processor ms | p50 ms | p95 ms | max ms | rows |\n|---|---:|---:|---:|---:|---:|")
    for name, path in asked.items():
        report(name, times, lambda path=path: client.get(path))  # type: ignore[misc]
    user.delete()


def retention(now: datetime) -> None:
    """Print how long it takes to forget the first month. The session of the whole year is of the last month alone."""
    from coordinator.actions.upkeep import pruning
    from coordinator.models import Event, EventContext
    from tests.bench import corpus

    before = now - timedelta(days=DAYS - DAYS // MONTHS - 1)
    _leave_to_the_last_month(corpus.LONG, before)
    pruning.REST_PER_WORK = 0
    rule = next(
        one
        for one in pruning.build_retention_rules(sessions=(now - before) / timedelta(days=1))
        if one.name == "sessions"
    )
    events, contexts = Event.objects.count(), EventContext.objects.count()
    took = seconds(lambda: pruning.apply_retention_rule(rule, now, write=True))
    gone = events - Event.objects.count()
    assert contexts - EventContext.objects.count() == gone
    say("retention of a month, events", gone)
    say("retention of a month, s", took)


def _leave_to_the_last_month(session_id: str, before: datetime) -> None:
    """Take the old events of the session that goes on all year: it would keep every part."""
    from coordinator.lib import instants

    sql(
        "DELETE FROM events WHERE id IN (SELECT event_id FROM event_context WHERE session_id = %s AND instant_us < %s)",
        session_id,
        instants.instant_to_microseconds(before) + 86_400_000_000,
    )


if __name__ == "__main__":
    main()
