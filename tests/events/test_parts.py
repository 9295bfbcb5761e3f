"""The events table in parts on PostgreSQL: made ahead, filled again from the default, found by plans, dropped whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from coordinator.actions import search
from coordinator.actions.sessions.events import adopt_events, record_events
from coordinator.actions.upkeep import partitions as parts_of_events
from coordinator.actions.upkeep import pruning
from coordinator.engine import event_spans, partition_changes, partitions, pooling
from coordinator.engine.commits import open_commit_watcher
from coordinator.engine.partitions import EventPartition
from coordinator.lib.instants import to_milliseconds
from coordinator.mcp.servers import calls
from coordinator.models import AuditLog, Change, Event, EventContext, Run, Session
from coordinator.operations.doctor import CheckLevel, CheckResult, upkeep
from coordinator.search import index as search_index
from coordinator.sessions import spans
from coordinator.sessions.events import NewEvent
from coordinator.sessions.results import SessionResult, load_session_result
from coordinator.sessions.timeline import counts, reading, wide
from coordinator.sessions.timeline.reading import SessionTimeline
from coordinator.usage import reading as usage
from tests.people import signed_in

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite keeps its events in one table"),
]

PART = parts_of_events.LEAST  # ids of each of a new database's first parts
NOW = datetime.now(UTC).replace(microsecond=0)
OLD = NOW - timedelta(days=40)


def run(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def settle() -> None:
    """Have the feed's triggers tell now, as at a commit: a table that waits for them cannot be altered."""
    run("SET CONSTRAINTS ALL IMMEDIATE")
    run("SET CONSTRAINTS ALL DEFERRED")


def go_on_at(number: int) -> None:
    """Give the next event this id."""
    run("SELECT setval(pg_get_serial_sequence('events', 'id'), %s, false)", number)


def made(name: str, *, at: datetime = NOW, status: str = "finished") -> str:
    Session.objects.create(session_id=name, status=status, created_at=at)
    return name


def told(name: str, number: int = 1, *, at: datetime = NOW, text: str = "a long story") -> list[int]:
    """Record so many messages of a session, and return their ids."""
    item = NewEvent(
        event_type="message",
        session_id=name,
        timestamp=at.isoformat(),
        role="user",
        content=[{"type": "text", "text": text}],
    )
    outcomes = record_events([item] * number, at)
    settle()
    return [outcome.event_id for outcome in outcomes]  # type: ignore[union-attr]


def in_own_connection(work: Callable[..., Any], *given: Any) -> Any:
    try:
        return work(*given)
    finally:
        connection.close()


def part_of(event_id: int, table: str = "events") -> str:
    key = partitions.TABLES[table]
    return str(run(f"SELECT tableoid::regclass::text FROM {table} WHERE {key} = %s", event_id)[0][0])


def read_by(rows: QuerySet[Any, Any]) -> set[str]:
    """Return the parts that a query's plan reads."""
    sql, parameters = rows.query.sql_with_params()
    return read_by_sql(sql, *parameters)


def read_by_sql(sql: str, *parameters: Any) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", parameters)
        (plan,) = cursor.fetchone()
    return relations(plan if isinstance(plan, list) else json.loads(plan))


def relations(plan: Any) -> set[str]:
    if isinstance(plan, list):
        return {name for one in plan for name in relations(one)}
    if not isinstance(plan, dict):
        return set()
    own = {plan["Relation Name"]} if "Relation Name" in plan else set()
    return own | {name for value in plan.values() for name in relations(value)}


def test_a_new_database_has_parts_and_room_ahead() -> None:
    assert partitions.has_partitioned_events()
    assert [part[1:] for part in partitions.list_partitions()][:3] == [
        (partitions.FIRST, PART),
        (PART, 2 * PART),
        (2 * PART, 3 * PART),
    ]
    assert partitions.count_default_events() == 0


def test_an_event_and_what_hangs_on_it_lie_in_the_same_part() -> None:
    go_on_at(PART - 1)
    first, second = told(made("ses_a"), 2, text="touched")
    search.index_new_events()
    for table in ("events", "event_context", "sbx_search"):
        assert part_of(first, table) == f"{table}_p0"
        assert part_of(second, table) == f"{table}_p1"
    Session.objects.get(pk="ses_a").delete()
    assert not EventContext.objects.exists()


def test_an_id_is_given_once_whatever_part_it_lies_in() -> None:
    go_on_at(PART + 5)
    (event_id,) = told(made("ses_a"))
    with pytest.raises(IntegrityError), transaction.atomic():
        Event.objects.create(id=event_id, session_id="ses_a", event_type="message", timestamp="t")


def test_the_feed_tells_of_an_event_once_whatever_part_it_lies_in() -> None:
    go_on_at(PART - 1)
    ids = told(made("ses_a"), 2)
    Event.objects.filter(pk=ids[1]).update(reason="changed")
    settle()
    heard = Change.objects.filter(topic="events").order_by("id").values_list("key", "op")
    assert list(heard) == [(str(ids[0]), "insert"), (str(ids[1]), "insert"), (str(ids[1]), "update")]


@pytest.mark.parametrize("pace", [0, 3_000_000, 12_000_000])
def test_there_is_room_for_two_months_at_the_pace_of_late(pace: int) -> None:
    go_on_at(pace + 1)
    run("DELETE FROM sbx_event_marks")
    run("INSERT INTO sbx_event_marks VALUES (%s, 0)", int((NOW - timedelta(days=30)).timestamp() * 1000) + 1)
    for _ in range(3):
        parts_of_events.maintain_event_parts(NOW)
    free = [part for part in partitions.list_partitions() if part.first > pace]
    assert len(free) >= 2
    assert partitions.list_partitions()[-1].before >= pace + 2 * pace
    numbers = [part.number for part in partitions.list_partitions()]
    assert numbers == list(range(len(numbers)))
    assert max(part.before - part.first for part in free) <= max(pace, PART)


@pytest.mark.parametrize(("last", "times"), [(0, 0), (parts_of_events.WORTH_PLANNING, 1)])
def test_statistics_are_gathered_once_there_are_more_than_a_few_events(
    last: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[bool] = []
    monkeypatch.setattr(partitions, "analyze_event_tables", lambda: gathered.append(True))
    go_on_at(last + 1)
    run("DELETE FROM sbx_event_marks")
    parts_of_events.maintain_event_parts(NOW)
    assert len(gathered) == times


def test_a_foreign_key_is_checked_by_its_index_also_where_sixty_events_are_known() -> None:
    """The statement is PostgreSQL's own for such a check, which keeps its plan while the table grows."""
    first, *_ = told(made("s"), 60)
    settle()
    partitions.analyze_event_tables()
    part = next(one for one in partitions.list_partitions() if one.first <= first < one.before)
    plan = run(
        f"EXPLAIN SELECT 1 FROM ONLY {part.table_name('events')} x WHERE id = %s FOR KEY SHARE OF x", first
    )
    assert "Index Scan" in str(plan)


def test_the_feed_reads_changes_by_their_index_also_where_few_are_known() -> None:
    told(made("s"), 60)
    settle()
    run("ANALYZE changes")
    feed = pooling.open_direct_connection()
    try:
        open_commit_watcher(feed)
        with feed.cursor() as cursor:
            cursor.execute("EXPLAIN SELECT id FROM changes WHERE id > 1 ORDER BY id LIMIT 2000")
            assert "Index" in str(cursor.fetchall())
    finally:
        feed.close()


def test_what_comes_beyond_the_parts_is_kept_and_put_where_it_belongs() -> None:
    beyond = partitions.list_partitions()[-1].before
    go_on_at(beyond - 1)
    ids = told(made("ses_a"), 3, text="a lost story")
    search.index_new_events()
    settle()
    assert [part_of(pk) for pk in ids[1:]] == ["events_default"] * 2
    assert partitions.count_default_events() == 2
    before = [event.id for event in SessionTimeline("ses_a").read_first_events(10).events]
    parts_of_events.maintain_event_parts(NOW)
    assert partitions.count_default_events() == 0
    number = partitions.list_partitions()[-1].number
    assert {part_of(ids[1], table) for table in ("events", "event_context", "sbx_search")} <= {
        f"{table}_p{place}" for table in partitions.TABLES for place in range(number + 1)
    }
    assert [event.id for event in SessionTimeline("ses_a").read_first_events(10).events] == before == ids
    Session.objects.get(pk="ses_a").delete()
    assert not Event.objects.exists()
    assert not EventContext.objects.exists()


def test_many_events_in_the_default_are_left_to_the_command() -> None:
    beyond = partitions.list_partitions()[-1].before
    go_on_at(beyond)
    told(made("ses_a"), 3)
    assert parts_of_events.create_parts_ahead(beyond + 2, PART, most_moved=2) == []
    assert partitions.count_default_events() == 3
    assert parts_of_events.create_parts_ahead(beyond + 2, PART, most_moved=3)
    assert partitions.count_default_events() == 0


def test_a_stray_id_far_away_stays_in_the_default() -> None:
    made("ses_a")
    Event.objects.create(id=5 * 10**12, session_id="ses_a", event_type="message", timestamp="t")
    settle()
    parts_of_events.maintain_event_parts(NOW)
    assert partitions.count_default_events() == 1
    assert partitions.list_partitions()[-1].before < 10**9


def timeline_pages(name: str) -> dict[str, QuerySet[Any, Any]]:
    timeline = SessionTimeline(name)
    return {
        "ordered": timeline.ordered_filtered_events()[:50],
        "total": timeline.session_events(),
        "contexts": timeline.session_event_contexts(),
        "usage": spans.bound_rows_to_sessions(
            EventContext.objects.filter(session_id=name), [name], "event_id"
        ),
    }


@pytest.mark.parametrize("page", ["ordered", "total", "contexts", "usage"])
def test_a_sessions_timeline_reads_only_the_parts_of_its_time(page: str) -> None:
    go_on_at(100)
    told(made("ses_old"), 2)
    go_on_at(PART + 100)
    told(made("ses_middle"), 2)
    go_on_at(2 * PART + 100)
    told(made("ses_new"), 2)
    for place, name in enumerate(("ses_old", "ses_middle", "ses_new")):
        read = read_by(timeline_pages(name)[page])
        assert read
        assert read <= {f"events_p{place}", f"event_context_p{place}"}


def test_a_session_that_goes_on_for_long_is_read_from_all_its_parts() -> None:
    go_on_at(PART - 1)
    ids = told(made("ses_a"), 2)
    go_on_at(2 * PART + 100)
    ids += told("ses_a", 2)
    assert [event.id for event in SessionTimeline("ses_a").read_first_events(10).events] == ids
    assert read_by(SessionTimeline("ses_a").session_event_contexts()) == {
        f"event_context_p{number}" for number in (0, 1, 2)
    }


@pytest.fixture
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "LATE", 0)
    monkeypatch.setattr(counts, "_older", wide.SessionCache())
    monkeypatch.setattr(reading, "_complete", wide.SessionCache())


def tell_a_long_session() -> list[int]:
    go_on_at(100)
    ids = told(made("ses_a"), 3)
    go_on_at(2 * PART + 100)
    return ids + told("ses_a", 2)


def read_of(session_id: str, look: Callable[[], object]) -> set[str]:
    """Return the parts that a look at a session's events reads, of those in which they are counted."""
    with CaptureQueriesContext(connection) as queries:
        look()
    counted = [query["sql"] for query in queries if "COUNT(*)" in query["sql"] and session_id in query["sql"]]
    assert counted
    return {name for sql in counted for name in read_by_sql(sql.replace("%", "%%"))}


@pytest.mark.usefixtures("_nothing_remembered")
def test_the_old_events_of_a_long_session_are_counted_once() -> None:
    tell_a_long_session()
    assert counts.count_session_events("ses_a").total == 5
    told("ses_a")
    assert read_of("ses_a", lambda: counts.count_session_events("ses_a")) == {"events_p2"}
    found = counts.count_session_events("ses_a")
    assert (found.total, found.categories["messages"], found.errors) == (6, 6, 0)


@pytest.mark.usefixtures("_nothing_remembered")
def test_old_events_of_a_long_session_are_looked_at_once_for_their_contexts() -> None:
    ids = tell_a_long_session()
    assert SessionTimeline("ses_a").complete
    assert read_of("ses_a", lambda: SessionTimeline("ses_a").complete) == {"events_p2", "event_context_p2"}
    row = Event.objects.create(session_id="ses_a", event_type="message", timestamp=NOW.isoformat())
    assert not SessionTimeline("ses_a").complete
    assert [event.id for event in SessionTimeline("ses_a").read_first_events(10).events] == [*ids, row.pk]


@pytest.mark.usefixtures("_nothing_remembered")
def test_an_event_without_a_context_shows_however_old_it_is() -> None:
    ids = tell_a_long_session()
    EventContext.objects.filter(pk=ids[1]).delete()
    assert not SessionTimeline("ses_a").complete
    assert not SessionTimeline("ses_a").complete


def test_what_another_program_writes_shows_before_it_has_a_context() -> None:
    go_on_at(PART - 2)
    ids = told(made("ses_a"))
    for _ in range(3):  # across the end of a part
        row = Event.objects.create(session_id="ses_a", event_type="message", timestamp=NOW.isoformat())
        ids.append(row.pk)
    assert [event.id for event in SessionTimeline("ses_a").read_first_events(10).events] == ids


def test_a_session_whose_rows_were_there_before_its_span_is_spanned_whole() -> None:
    go_on_at(10)
    told(made("ses_a"))
    run("DELETE FROM sbx_session_spans")
    go_on_at(2 * PART + 10)
    told("ses_a")
    first, before = spans.session_event_span("ses_a") or (0, 0)
    assert first == 10
    assert before > 2 * PART + 10
    run("DELETE FROM sbx_session_spans")
    parts_of_events.backfill_session_spans(lambda _: None)
    assert spans.session_event_span("ses_a") == (first, before)


@pytest.mark.parametrize("looked_for", ["first", "spans"])
def test_a_new_sessions_first_event_is_not_looked_for_among_all(looked_for: str) -> None:
    told(
        made("ses_a"), 2_000
    )  # so many of one session that PostgreSQL would try its luck with the primary key
    run("ANALYZE event_context")
    if looked_for == "first":
        asked = event_spans.FIRST_OF.format(session_id="'ses_a'")
    else:
        run("DELETE FROM sbx_session_spans")
        with CaptureQueriesContext(connection) as queries:
            event_spans.record_session_spans("", 500)
        (asked,) = (query["sql"] for query in queries if "LATERAL" in query["sql"])
    plan = "\n".join(line for (line,) in run(f"EXPLAIN {asked.replace('%', '%%')}"))
    assert "event_context" in plan
    assert not re.search(r"event_context_(p\d+|default)_pkey", plan)


def test_a_known_sessions_span_keeps_its_beginning() -> None:
    go_on_at(10)
    told(made("ses_a"))
    go_on_at(2 * PART + 10)
    told("ses_a")
    first, before = spans.session_event_span("ses_a") or (0, 0)
    assert (first, before > 2 * PART + 10) == (10, True)


def test_what_was_used_since_yesterday_is_read_from_the_parts_since_then() -> None:
    go_on_at(2 * PART + 1)
    run("DELETE FROM sbx_event_marks")
    at = int((NOW - timedelta(days=2)).timestamp() * 1000)
    run("INSERT INTO sbx_event_marks VALUES (%s, %s)", at, 2 * PART)
    told(made("ses_a"))
    with CaptureQueriesContext(
        connection,
    ) as queries:
        usage.load_usage_since(NOW - timedelta(days=1))
    (counted,) = (query["sql"] for query in queries if "received_at" in query["sql"])
    read = {name for name in read_by_sql(counted.replace("%", "%%")) if name.startswith("event_context")}
    assert read <= {f"event_context_{name}" for name in ("p2", "p3", "p4", "default")}
    assert read
    recent = spans.bound_rows_since(EventContext.objects.all(), NOW - timedelta(days=1), "event_id")
    assert recent.count() == 1


def test_agents_are_looked_up_for_sums_of_usage_and_not_for_each_event() -> None:
    told(made("ses_a"))
    with CaptureQueriesContext(connection) as queries:
        usage.load_usage_since(NOW - timedelta(days=1))
    (asked,) = (query["sql"] for query in queries if "agent_name" in query["sql"])
    plan = "\n".join(line for (line,) in run(f"EXPLAIN {asked.replace('%', '%%')}"))
    assert "SubPlan" not in plan
    assert "Aggregate" in plan[plan.index("Join") :]


def test_calls_of_mcp_servers_since_a_month_are_read_from_the_parts_since_then() -> None:
    go_on_at(2 * PART + 1)
    run("DELETE FROM sbx_event_marks")
    at = int((NOW - timedelta(days=40)).timestamp() * 1000)
    run("INSERT INTO sbx_event_marks VALUES (%s, %s)", at, 2 * PART)
    call = NewEvent(
        event_type="pre_tool",
        session_id=made("ses_a"),
        timestamp=NOW.isoformat(),
        tool_name="mcp__tickets__search",
    )
    record_events([call], NOW)
    settle()
    with CaptureQueriesContext(connection) as queries:
        (found,) = calls.count_calls_since(NOW - timedelta(days=30), ["tickets"])
    assert (found.tool_name, found.count) == ("search", 1)
    (counted,) = (query["sql"] for query in queries if "mcp_" in query["sql"])
    read = {name for name in read_by_sql(counted.replace("%", "%%")) if name.startswith("event")}
    assert read
    assert not {name for name in read if name.endswith(("_p0", "_p1"))}


def test_a_sessions_last_answer_is_read_from_the_parts_of_its_time() -> None:
    go_on_at(100)
    told(made("ses_old"))
    go_on_at(2 * PART + 100)
    answer = NewEvent(
        event_type="message",
        session_id=made("ses_new"),
        timestamp=NOW.isoformat(),
        role="assistant",
        content=[{"type": "text", "text": "the answer"}],
    )
    record_events([answer], NOW)
    settle()
    with CaptureQueriesContext(connection) as queries:
        assert load_session_result("ses_new") == SessionResult("the answer")
    (asked,) = (query["sql"] for query in queries if "tool_output" in query["sql"])
    assert read_by_sql(asked.replace("%", "%%")) <= {"events_p2", "event_context_p2"}


def test_a_search_reads_one_stretch_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "WALK_SECONDS", 60)  # there are no ids between the few
    for place in range(3):
        go_on_at(place * PART + 100)
        told(made(f"ses_{place}"), text=f"haystack word{place}")
    search.index_new_events()
    client = signed_in("viewer")
    for place in range(3):
        page = client.get(f"/ui/search/?q=word{place}").content.decode()
        assert f"ses_{place}" in page
    with CaptureQueriesContext(connection) as queries:
        client.get("/ui/search/?q=word2")
    asked = [query["sql"] for query in queries if "to_tsquery" in query["sql"]]
    assert asked
    newest = read_by_sql(asked[0].replace("%", "%%"))
    assert newest <= {f"{table}_p{n}" for table in ("sbx_search", "events") for n in (1, 2)} | {"sessions"}


def keep_days(days: float) -> pruning.RetentionRule:
    return next(rule for rule in pruning.load_retention_rules(sessions=days) if rule.name == "sessions")


def fill_two_parts() -> None:
    go_on_at(100)
    told(made("ses_old", at=OLD), 3, at=OLD)
    told(made("ses_older", at=OLD), 3, at=OLD)
    go_on_at(PART + 100)
    told(made("ses_new"), 3)
    search.index_new_events()
    settle()


def test_a_part_that_is_all_old_goes_as_a_whole() -> None:
    fill_two_parts()
    with CaptureQueriesContext(connection) as queries:
        found = pruning.apply_retention_rule(keep_days(30), NOW, write=True)
    assert not any('DELETE FROM "events"' in query["sql"] for query in queries)
    assert found.rows == 6 + 2
    assert "events_p0" not in [part.table_name("events") for part in partitions.list_partitions()]
    assert list(Session.objects.values_list("pk", flat=True)) == ["ses_new"]
    assert Event.objects.count() == EventContext.objects.count() == 3
    assert run("SELECT count(*) FROM sbx_search") == [(3,)]
    row = AuditLog.objects.get(event_type="EVENTS_PART_DROPPED")
    assert row.target_id == f"events 0 to {PART - 1}"
    assert row.metadata["events"] == 6
    assert AuditLog.objects.filter(event_type="SESSION_DELETED").count() == 2


def keep_running() -> None:
    Session.objects.filter(pk="ses_old").update(status="running")


def keep_a_child() -> None:
    Session.objects.create(
        session_id="ses_child", status="running", created_at=NOW, parent_session_id="ses_old"
    )


def keep_by_a_run() -> None:
    Run.objects.create(
        run_id="run_a",
        session_id="ses_old",
        type="resume_session",
        prompt="",
        status="pending",
        created_at=NOW,
    )


def keep_by_what_came_later() -> None:
    told("ses_old", at=NOW)


def keep_by_what_was_told_now() -> None:
    last = partitions.last_assigned_event_id()
    go_on_at(500)
    record_events(
        [NewEvent(event_type="message", session_id="ses_old", timestamp=OLD.isoformat(), role="user")], NOW
    )
    settle()
    go_on_at(last + 1)


@pytest.mark.parametrize(
    "keep", [keep_running, keep_a_child, keep_by_a_run, keep_by_what_came_later, keep_by_what_was_told_now]
)
def test_a_part_with_something_to_keep_stays(keep: Callable[[], None]) -> None:
    fill_two_parts()
    keep()
    settle()
    pruning.drop_old_event_parts(NOW - timedelta(days=30), NOW)
    assert partitions.list_partitions()[0].table_name("events") == "events_p0"
    assert Event.objects.filter(session_id="ses_old").count() >= 3
    assert not AuditLog.objects.filter(event_type="EVENTS_PART_DROPPED").exists()


def test_an_event_that_nobody_has_looked_at_yet_keeps_its_part() -> None:
    fill_two_parts()
    Event.objects.create(id=600, session_id="ses_old", event_type="message", timestamp="t")
    settle()
    pruning.drop_old_event_parts(NOW - timedelta(days=30), NOW)
    assert Event.objects.filter(pk=600).exists()


def test_a_part_that_was_emptied_row_by_row_goes_without_a_word() -> None:
    fill_two_parts()
    Session.objects.filter(pk__in=["ses_old", "ses_older"]).delete()
    settle()
    pruning.drop_old_event_parts(NOW - timedelta(days=30), NOW)
    assert partitions.list_partitions()[0].number == 1
    assert not AuditLog.objects.filter(event_type="EVENTS_PART_DROPPED").exists()


@pytest.mark.django_db(transaction=True)
def test_a_part_that_another_process_drops_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fill_two_parts()
    known = partitions.list_partitions()
    assert partitions.drop_partition(known[0], to_milliseconds(NOW))
    try:
        monkeypatch.setattr(
            partitions, "list_partitions", lambda: known
        )  # read before the other process was done
        assert pruning.drop_old_event_parts(NOW - timedelta(days=30), NOW) == pruning.PrunableSize()
    finally:
        partitions.create_partition(known[0])


@pytest.mark.django_db(transaction=True)
def test_a_part_that_is_dropped_while_the_parts_are_looked_up_is_none_of_them() -> None:
    fill_two_parts()
    known = partitions.list_partitions()
    with ThreadPoolExecutor(1) as other, transaction.atomic():
        run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        run("SELECT 1")  # from here on the catalogue is read as it stands now
        assert other.submit(
            in_own_connection, partitions.drop_partition, known[0], to_milliseconds(NOW)
        ).result(60)
        found = partitions.list_partitions()
    partitions.create_partition(known[0])
    assert found == known[1:]


def test_a_dry_run_drops_nothing() -> None:
    fill_two_parts()
    found = pruning.apply_retention_rule(keep_days(30), NOW, write=False)
    assert found.rows == 6 + 2
    assert partitions.list_partitions()[0].number == 0
    assert Event.objects.count() == 9


def test_the_part_that_is_being_filled_is_never_dropped() -> None:
    go_on_at(100)
    told(made("ses_old", at=OLD), 3, at=OLD)
    pruning.apply_retention_rule(keep_days(30), NOW, write=True)
    assert partitions.list_partitions()[0].number == 0


def test_making_the_tables_whole_and_partitioning_them_again_keeps_every_row() -> None:
    fill_two_parts()
    rows = sorted(Event.objects.values_list("id", "session_id", "content"))
    partition_changes.merge_partitions()
    assert not partitions.has_partitioned_events()
    assert sorted(Event.objects.values_list("id", "session_id", "content")) == rows
    assert partitions.list_partitions() == []
    parts_of_events.convert_events_table(NOW, lambda _: None)
    assert sorted(Event.objects.values_list("id", "session_id", "content")) == rows
    first = partitions.list_partitions()[0]
    assert first == EventPartition(0, partitions.FIRST, first.before)
    assert first.before >= PART + 103
    (event_id,) = told("ses_new")
    assert event_id == PART + 103
    assert Change.objects.filter(topic="events", key=str(event_id)).exists()


def test_a_conversion_that_was_begun_goes_on_where_it_was() -> None:
    fill_two_parts()
    partition_changes.merge_partitions()
    partition_changes.set_id_limit(50 * PART)
    event_spans.record_event_mark(0)
    parts_of_events.maintain_event_parts(NOW)
    assert partition_changes.find_id_limit() == 50 * PART
    parts_of_events.convert_events_table(NOW, lambda _: None)
    assert partitions.list_partitions()[0].before == 50 * PART


def test_a_conversion_that_nobody_goes_on_with_is_forgotten() -> None:
    fill_two_parts()
    partition_changes.merge_partitions()
    run("DELETE FROM sbx_event_marks")
    partition_changes.set_id_limit(50 * PART)
    parts_of_events.maintain_event_parts(NOW)
    assert partition_changes.find_id_limit() is None


def test_a_limit_that_comes_near_is_forgotten() -> None:
    fill_two_parts()
    partition_changes.merge_partitions()
    partition_changes.set_id_limit(3 * PART)
    event_spans.record_event_mark(0)
    go_on_at(2 * PART + 1)
    told("ses_new")
    parts_of_events.maintain_event_parts(NOW)
    assert partition_changes.find_id_limit() is None


def doctor() -> CheckResult:
    return next(check for check in upkeep.check_upkeep(NOW, served=False) if check.name == "events")


def test_the_doctor_tells_of_parts_and_of_what_lies_outside() -> None:
    assert doctor().level is CheckLevel.OK
    go_on_at(partitions.list_partitions()[-1].before)
    told(made("ses_a"))
    assert doctor().level is CheckLevel.WARN
    assert "outside" in doctor().message
    parts_of_events.maintain_event_parts(NOW)
    assert doctor().level is CheckLevel.OK


def test_the_doctor_tells_of_a_large_whole_table_and_of_a_conversion_that_was_left() -> None:
    partition_changes.merge_partitions()
    assert doctor().level is CheckLevel.OK
    go_on_at(upkeep.MANY_EVENTS + 2)
    assert "partition_events" in doctor().remedy
    partition_changes.set_id_limit(50 * PART)
    assert "not finished" in doctor().message


def test_events_are_adopted_by_a_look_at_their_own_parts() -> None:
    fill_two_parts()
    Event.objects.filter(session_id="ses_new").update(reason="seen")
    with CaptureQueriesContext(connection) as queries:
        adopt_events(PART + 100, PART + 102, NOW)
    (asked,) = (query["sql"] for query in queries if "NOT EXISTS" in query["sql"])
    assert read_by_sql(asked.replace("%", "%%")) == {"events_p1", "event_context_p1"}
