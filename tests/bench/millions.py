"""`python -m tests.bench.millions`: many millions of events on PostgreSQL, a million a month, in parts.

Works inside, on the database that DATABASE_URL names, which must be migrated, empty and of no other use. The program's
own paths write a seed (COPY, the search index, what calls touched); PostgreSQL then writes it again and again, each
time with other ids, sessions, instants and rare words, as the program would have written it. Parts are filled before
they get their indexes. `python -m tests.bench.months --measure` measures what this has filled in.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

import django

DAYS = 600
PART, PARTS = 1_000_000, 20  # ids of a part, and how many there are
SEED = 100_000
SESSIONS = 1_000  # of the seed
RARE = 5  # of so many events one has a word of its own, such as a commit's
OLD = 160  # copies of the seed, those until then, may say "yesteryear"
SEEDS = ("sessions", "events", "event_context", "sbx_search", "sbx_file_touches", "sbx_session_tools")


def main() -> None:
    """Fill, as the command line asks."""
    options = arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    from django.utils import timezone

    if options.seed and not options.retention:
        seed(timezone.now())
    if options.retention:
        retention()
    elif options.parts:
        multiply(options.parts, options.processes)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.millions", description=__doc__)
    parser.add_argument(
        "--parts", type=int, default=PARTS, help="how many to fill, the newest; 0: seed alone"
    )
    parser.add_argument("--no-seed", dest="seed", action="store_false", help="the seed is there already")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--retention", action="store_true", help="fill nothing: drop the oldest part, beside a writer"
    )
    return parser.parse_args()


def seed(now: datetime) -> None:
    """Write the seed by the program's own paths, say how fast that is, and put it aside."""
    corpus, months = (import_module(f"tests.bench.{name}") for name in ("corpus", "months"))
    corpus.DAYS = 1
    corpus._events = _marked(corpus._events)
    months.CONTEXT = (*months.CONTEXT, "tool_use_id", "duration_ms")
    months._rows = _with_calls(months._rows)
    months.DAYS, months.MONTHS = corpus.DAYS, 1
    months.lay_out(SEED, whole=False)
    months.say("seed by COPY, events/s", months.load(SEED, SESSIONS, now))
    months.say("seed's search index, events/s", months.index(SEED))
    months.analyze()
    months.disk(SEED)
    for table in SEEDS:
        months.sql(f"CREATE TABLE seed_{table} AS SELECT * FROM {table}")
        months.sql(f"ALTER TABLE seed_{table} SET (autovacuum_enabled = off)")
    months.sql("CREATE INDEX ON seed_events (id)")
    months.sql("CREATE INDEX ON seed_event_context (event_id)")
    months.sql("CREATE INDEX ON seed_sbx_search (event_id)")
    months.sql("ANALYZE")


def _marked(events: Any) -> Any:
    """Give every RAREth event a word of its own, and every second one "yesteryear"."""

    def marked(*of: Any) -> Iterator[Any]:
        for number, event in enumerate(events(*of)):
            word = " yesteryear" if number % 2 == 0 else ""
            if (number + 1) % RARE == 0:
                word += f" {rare_word(number + 1)}"
            for value in (event.tool_input, event.tool_output, *(event.content or ())):
                for key, text in (value or {}).items():
                    if key in ("command", "new_string", "stdout", "text"):
                        value[key] = text.replace(" yesteryear", "") + word
            yield event

    return marked


def rare_word(event_id: int) -> str:
    """Return the word that only this event has, as PostgreSQL makes it, too."""
    return "c" + hashlib.md5(str(event_id).encode(), usedforsecurity=False).hexdigest()[:8]


def _with_calls(rows: Any) -> Any:
    """Give both halves of a call one id, as agents do, and the end a duration."""

    def with_calls(events: Any) -> Iterator[tuple[list[Any], list[Any]]]:
        for number, (values, context) in enumerate(rows(events)):
            call = {1: number, 2: number - 10, 3: number}.get(number // 10 % 4)
            name = None if call is None else f"toolu_{rare_word(-call)}{call:012x}"
            yield values, [*context, name, 20 + number % 3000 if number // 10 % 4 == 2 else None]

    return with_calls


def multiply(parts: int, processes: int) -> None:
    """Write the seed again and again: the newest parts of the PARTS there are, the newest first."""
    from django.db import connection

    from coordinator.actions.upkeep import partitions as parts_of_events
    from coordinator.engine import partition_changes, partitions
    from coordinator.feed import triggers
    from tests.bench.months import say, sql

    began = time.monotonic()
    sql(
        "TRUNCATE sessions, sbx_search, sbx_file_touches, sbx_session_tools, sbx_session_spans, changes CASCADE"
    )
    partition_changes.merge_partitions()
    partition_changes.partition_empty_tables(PART)
    parts_of_events.create_parts_up_to((PARTS + 2) * PART, PART)
    triggers.restore_triggers(connection)
    filled = [part for part in partitions.list_partitions() if PARTS - parts <= part.number < PARTS]
    for part in filled:
        for table in reversed(partitions.TABLES):
            sql(f"DROP TABLE {part.table_name(table)}")
            sql(f"CREATE TABLE {part.table_name(table)} (LIKE {table} INCLUDING DEFAULTS)")
    sql("SELECT setval(pg_get_serial_sequence('events', 'id'), %s)", PARTS * PART)
    connection.close()
    with ProcessPoolExecutor(processes) as pool:
        for number, took in pool.map(_fill, reversed(filled)):
            print(f"part {number}: {took:.0f} s", flush=True)
    say("written by PostgreSQL, events/s", parts * PART / (time.monotonic() - began))


NAMED = (
    "CASE WHEN {0} IN ('ses_ffffffffffff') THEN {0} ELSE"
    " 'ses_' || lpad(to_hex(('x' || substr({0}, 5))::bit(48)::bigint + {1}), 12, '0') END"
)
FORM = '\'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"\''
LONGER = 3  # times as long as the seed's day is the time that it is spread over


@dataclass(frozen=True)
class Copy:
    """One copy of the seed: by how much its ids and sessions are higher; its instants, given the seed's last one."""

    number: int
    before: int  # the id before the seed's first
    end: int  # µs

    @property
    def add(self) -> int:
        return self.number * SEED - self.before

    @property
    def is_old(self) -> bool:
        return self.number < OLD

    def name(self, column: str) -> str:
        return NAMED.format(column, self.number * SESSIONS)

    def us(self, column: str) -> str:
        """Return an instant of the seed as one of this copy, both in µs."""
        then = (PARTS * PART // SEED - 1 - self.number) * timedelta(days=DAYS * SEED / 20_000_000)
        return f"({self.end} - ({self.end} - {column}) * {LONGER} - {then // timedelta(microseconds=1)})"

    def stamp(self, column: str) -> str:
        us = self.us(f"(extract(epoch FROM {column}::timestamptz) * 1000000)::bigint")
        return f"to_char({at(us)}, {FORM})"


def at(us: str) -> str:
    return f"(timestamp '1970-01-01' + {us} * interval '1 microsecond')"


def _sessions(copy: Copy) -> Iterator[str]:
    columns = "status, project_dir, agent_name, hostname"
    name, parent = copy.name("session_id"), copy.name("parent_session_id")
    yield (
        f"INSERT INTO sessions (session_id, created_at, parent_session_id, {columns})"
        f" SELECT {name}, {copy.stamp('created_at')}, {parent}, {columns} FROM seed_sessions ON CONFLICT DO NOTHING"
    )
    yield (
        f"INSERT INTO sbx_session_tools (tool, session_id) SELECT tool, {name} FROM seed_sbx_session_tools"
        " ON CONFLICT DO NOTHING"
    )


def _fill(part: Any) -> tuple[int, float]:
    """Fill one part: the tables first, then their keys and indexes."""
    django.setup()
    from django.db import connection, transaction

    from coordinator.engine import event_spans, partitions
    from tests.bench.months import sql

    began = time.monotonic()

    def say(what: str) -> None:
        print(f"part {part.number}: {what}, {time.monotonic() - began:.0f} s", flush=True)

    ((before, end),) = sql("SELECT min(event_id) - 1, max(instant_us) FROM seed_event_context")
    copies = [Copy(number, before, end) for number in range(max(part.first, 0) // SEED, part.before // SEED)]
    sql("SET session_replication_role = replica")
    sql("SET lock_timeout = 0")
    for copy in copies:
        for statement in _sessions(copy):
            sql(statement)
    with transaction.atomic(), connection.cursor() as cursor:
        for table in partitions.TABLES:
            cursor.execute(
                f"TRUNCATE {part.of(table)}"
            )  # so that nothing is written twice, to the log as well
        for copy in copies:
            for statement in _statements(part, copy):
                cursor.execute(statement)
            say(f"copy {copy.number}")
    for table in partitions.TABLES:
        with connection.cursor() as cursor:
            _attach(cursor, table, part)
            say(f"{table} attached")
            cursor.execute(f"ANALYZE {part.of(table)}")
    with connection.cursor() as cursor:
        partitions.add_event_foreign_keys(cursor, part.of)
    _finish(part)
    after: str | None = ""
    while after is not None:
        after = event_spans.record_session_spans(after, 500)
    say("done")
    return part.number, time.monotonic() - began


def _attach(cursor: Any, table: str, part: Any) -> None:
    """Make a part's indexes as its parent has them, then attach it: locks on the parents are held for moments."""
    from coordinator.engine import partition_changes, partitions

    for name, using in partition_changes.list_table_indexes(cursor, table):
        cursor.execute(f"CREATE INDEX {part.of(table)}_{name[:30]} ON {part.of(table)} {using}")
    keys = [
        definition
        for name, definition in partition_changes.list_table_keys(cursor, table)
        if "PRIMARY" in definition
    ]
    cursor.execute(f"ALTER TABLE {part.of(table)} ADD CONSTRAINT {part.of(table)}_pkey {keys[0]}")
    key = partitions.TABLES[table]
    low = "" if part.first == partitions.FIRST else f"{key} >= {part.first} AND "
    cursor.execute(f"ALTER TABLE {part.of(table)} ADD CONSTRAINT known CHECK ({low}{key} < {part.before})")
    bound = "MINVALUE" if part.first == partitions.FIRST else part.first
    cursor.execute(
        f"ALTER TABLE {table} ATTACH PARTITION {part.of(table)} FOR VALUES FROM ({bound}) TO ({part.before})"
    )
    cursor.execute(f"ALTER TABLE {part.of(table)} DROP CONSTRAINT known")


def _statements(part: Any, copy: Copy) -> Iterator[str]:
    """Yield what writes the events of one copy of the seed into a part. Its first has the last id of the part before:
    that one is left out, so that a part has one event less than it has ids."""

    def said(column: str) -> str:
        text = column if copy.is_old else f"replace({column}, ' yesteryear', '')"
        had, has = _rare(f"(id - {copy.before})"), _rare(f"(id + {copy.add})")
        return (
            f"CASE WHEN (id - {copy.before}) % {RARE} = 0 THEN replace({text}, {had}, {has}) ELSE {text} END"
        )

    yield (
        f"INSERT INTO {part.of('events')} (id, session_id, event_type, timestamp, tool_name, tool_input,"
        " tool_output, error, exit_code, reason, role, content)"
        f" SELECT id + {copy.add}, {copy.name('session_id')}, event_type, {copy.stamp('timestamp')}, tool_name,"
        f" {said('tool_input')}, {said('tool_output')}, error, exit_code, reason, role, {said('content')}"
        f" FROM seed_events WHERE id + {copy.add} < {part.before} ORDER BY id"
    )
    yield (
        f"INSERT INTO {part.of('event_context')} (event_id, session_id, instant_us, received_at, model,"
        " input_tokens, output_tokens, tool_use_id, duration_ms)"
        f" SELECT event_id + {copy.add}, {copy.name('session_id')}, {copy.us('instant_us')},"
        f" {copy.us('instant_us')} / 1000, model, input_tokens, output_tokens,"
        f" tool_use_id || '{copy.number:04x}', duration_ms"
        f" FROM seed_event_context WHERE event_id + {copy.add} < {part.before} ORDER BY event_id"
    )
    yield (
        f"INSERT INTO {part.of('sbx_file_touches')} (file_id, event_id, session_id)"
        f" SELECT file_id, event_id + {copy.add}, {copy.name('session_id')} FROM seed_sbx_file_touches"
        f" WHERE event_id + {copy.add} < {part.before} ORDER BY event_id"
    )
    yield (
        f"INSERT INTO {part.of('sbx_search')} (event_id, words)"
        f" SELECT i.event_id + {copy.add}, ts_delete(i.words, ARRAY[{', '.join(_facts(None))}])"
        f" || to_tsvector('simple', concat_ws(' ', {', '.join(_facts(copy))}))"
        f" FROM seed_sbx_search i JOIN seed_event_context c ON c.event_id = i.event_id,"
        f" (SELECT {copy.before} AS before) b"
        f" WHERE i.event_id + {copy.add} < {part.before} ORDER BY i.event_id"
    )


def _rare(number: str) -> str:
    return f"('c' || left(md5({number}::text), 8))"


def _facts(copy: Copy | None) -> list[str]:
    """Return the words that stand for an event's facts, as `search.text.Facts` has them: the seed's, or a copy's."""
    name = copy.name("c.session_id") if copy else "c.session_id"
    instant = at(copy.us("c.instant_us")) if copy else at("c.instant_us")
    number = f"(i.event_id + {copy.add})" if copy else "(i.event_id - b.before)"
    block = f"(i.event_id + {copy.add})" if copy else "i.event_id"
    words = [
        f"'sbxsession' || left(encode(sha256(({name})::bytea), 'hex'), 16)",
        f"'sbxblock' || ({block} / 16384)",
        *(f"'sbxtime' || to_char({instant}, '{form}')" for form in ("YYYY", "YYYYMM", "YYYYMMDD")),
    ]
    if copy is None:
        words.append("'yesteryear'")
    elif copy.is_old:
        words.append("CASE WHEN i.words @@ 'yesteryear' THEN 'yesteryear' END")
    rare = f"CASE WHEN (i.event_id - b.before) % {RARE} = 0 THEN {_rare(number)} END"
    words.append(rare if copy else f"coalesce({rare}, 'yesteryear')")
    return words


def _finish(part: Any) -> None:
    """Write what else a part's events leave: rare words, how far the ids had come when, how far the index has come."""
    from coordinator.actions.search.progress import save_index_progress
    from coordinator.feed import reader as feed
    from tests.bench.months import sql

    sql(
        f"INSERT INTO sbx_search_terms (word, cut) SELECT 'c' || left(md5(id::text), 8), true"
        f" FROM generate_series({max(part.first, 0)}, {part.before - 1}, {RARE}) id"
        " ORDER BY 1 ON CONFLICT DO NOTHING"  # two parts that have a word in common wait for each other in one order
    )
    sql(
        f"INSERT INTO sbx_event_marks (at, last_id) SELECT max(received_at), max(event_id)"
        f" FROM {part.of('event_context')} GROUP BY event_id / 100000 ON CONFLICT DO NOTHING"
    )
    save_index_progress(
        followed=feed.find_newest_change_id(), swept=None, untidy=False, cut_upto=None, filed=None
    )


def retention() -> None:
    """Drop the oldest part by the rule for sessions, and say how long that takes and how long a writer waits for it."""
    from django.db import connection
    from django.utils import timezone

    from coordinator.actions.upkeep import partitions as parts_of_events
    from coordinator.actions.upkeep import pruning
    from coordinator.lib import instants
    from coordinator.models import Session
    from tests.bench import corpus
    from tests.bench.months import say, seconds, sql

    part = next(
        one for one in parts_of_events.list_filled_parts() if parts_of_events.count_events_with_context(one)
    )
    ((newest,),) = sql(f"SELECT max(instant_us) FROM {part.table_name('event_context')}")
    before, now = instants.from_microseconds(newest + 86_400_000_000), timezone.now()
    sql(
        f"DELETE FROM {part.table_name('events')} WHERE session_id = %s", corpus.LONG
    )  # it would keep the part
    Session.objects.filter(pk__in=sql_names(part), status="running").update(status="finished")
    connection.close()  # no other process may go on with it
    with ProcessPoolExecutor(1) as pool:
        writer = pool.submit(_write_beside, 40.0)
        time.sleep(10)
        took = seconds(lambda: say("dropped, events", pruning.drop_part_if_old(part, before, now).rows))
        say("dropped in, s", took)
        for name, wait in writer.result().items():
            say(f"20 events beside it, {name}, ms", wait)
    rule = next(
        one
        for one in pruning.load_retention_rules(sessions=(now - before) / timedelta(days=1))
        if one.name == "sessions"
    )
    pruning.REST_PER_WORK = 0
    began = time.monotonic()
    gone = pruning.apply_retention_rule(rule, now, write=True, until=began + 30)
    say("then sessions a second, without a rest", gone.rows / (time.monotonic() - began))


def sql_names(part: Any) -> list[str]:
    """Return the sessions that have events in a part."""
    from tests.bench.months import sql

    return [name for (name,) in sql(f"SELECT DISTINCT session_id FROM {part.of('event_context')}")]


def _write_beside(lasts: float) -> dict[str, float]:
    """Write 20 events at a time for so many seconds; return how long each group waited, in ms."""
    django.setup()
    from django.utils import timezone

    from coordinator.actions.sessions.events import record_events
    from coordinator.models import Session
    from coordinator.sessions.events import NewEvent

    now = timezone.now()
    Session.objects.get_or_create(session_id="ses_beside", defaults={"status": "running", "created_at": now})
    text = [{"type": "text", "text": "a few words that somebody said " * 8}]
    items = [
        NewEvent(
            event_type="message",
            session_id="ses_beside",
            timestamp=now.isoformat(),
            role="user",
            content=text,
        )
    ] * 20
    took, ends = [], time.monotonic() + lasts
    while time.monotonic() < ends:
        began = time.perf_counter()
        record_events(items, now)
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(0.02)
    took.sort()
    return {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "longest": took[-1]}


if __name__ == "__main__":
    main()
