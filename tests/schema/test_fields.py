"""The fields: what rows of other programs read as, what is written, and how both compare."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import FieldError
from django.db import connection
from django.db.models import F, Sum

from coordinator.models import Agent, AuditLog, Change, Event, McpServer, PluginData, Session, UnreadableText
from coordinator.models.fields import MsField, SecondsField, SqlDateTimeField, dump_compact_json

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 2, 23, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
# One instant in the forms that programs write it in, and one second to either side of it.
NOONS = {"z": "2026-02-23T12:00:00Z", "east": "2026-02-24T01:00:00+13:00", "blank": "2026-02-23 12:00:00"}
BEFORE = {"before": "2026-02-23T11:59:59Z", "before-west": "2026-02-22T23:59:59.000-1200"}
AFTER = {"after": "2026-02-23 12:00:01", "after-east": "2026-02-24T02:00:01.5+14:00"}
ODD = {"odd": "yesterday", "empty": "", "impossible": "2026-02-30T12:00:00Z"}


def run(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def sessions() -> None:
    for key, text in (NOONS | BEFORE | AFTER | ODD).items():
        run("INSERT INTO sessions (session_id, status, created_at) VALUES (%s, 'x', %s)", key, text)


def found(**lookup: Any) -> set[str]:
    return set(Session.objects.filter(**lookup).values_list("pk", flat=True))


@pytest.mark.usefixtures("sessions")
class TestIsoText:
    @pytest.mark.parametrize("key", NOONS)
    def test_every_form_reads_as_the_same_instant(self, key: str) -> None:
        assert Session.objects.get(pk=key).created_at == NOON

    @pytest.mark.parametrize("key", ODD)
    def test_what_cannot_be_read_stands_as_it_is(self, key: str) -> None:
        value: Any = Session.objects.get(pk=key).created_at
        assert isinstance(value, UnreadableText)
        assert value == ODD[key]

    def test_saving_keeps_odd_text(self) -> None:
        Session.objects.get(pk="odd").save()
        assert run("SELECT created_at FROM sessions WHERE session_id = 'odd'") == [("yesterday",)]

    def test_comparisons_are_of_instants_whatever_the_form(self) -> None:
        assert found(created_at=NOON) == set(NOONS)
        assert found(created_at__lt=NOON) == set(BEFORE)
        assert found(created_at__lte=NOON) == set(BEFORE | NOONS)
        assert found(created_at__gt=NOON) == set(AFTER)
        assert found(created_at__gte=NOON) == set(AFTER | NOONS)

    def test_lists_and_ranges(self) -> None:
        assert found(created_at__in=[NOON, NOON - SECOND]) == set(NOONS | BEFORE)
        assert found(created_at__range=(NOON, NOON + 2 * SECOND)) == set(NOONS | AFTER)
        assert found(created_at__in=[]) == set()

    def test_odd_text_is_found_as_it_stands(self) -> None:
        assert found(created_at=UnreadableText("yesterday")) == {"odd"}

    def test_null_is_found_and_excluded(self) -> None:
        assert len(found(last_resumed_at=None)) == Session.objects.count()
        assert Session.objects.exclude(last_resumed_at__lt=NOON).count() == Session.objects.count()

    def test_two_columns_compare_as_instants(self) -> None:
        run("UPDATE sessions SET last_resumed_at = '2026-02-23T13:00:00+01:00'")
        assert found(created_at=F("last_resumed_at")) == set(NOONS)
        assert found(created_at__lt=F("last_resumed_at")) == set(BEFORE)

    def test_order_by_instant_is_time_order(self) -> None:
        ordered = Session.objects.exclude(pk__in=ODD).order_by("created_at__instant")
        times = [session.created_at for session in ordered]
        assert times == sorted(times)

    @pytest.mark.parametrize("part", ["date", "year", "hour"])
    def test_parts_of_the_calendar_are_refused(self, part: str) -> None:
        with pytest.raises(FieldError, match="Unsupported lookup"):
            found(**{f"created_at__{part}": 2026})

    def test_the_text_itself_can_be_read_and_compared(self) -> None:
        text = Session.objects.annotate(text=F("created_at__text")).get(pk="blank").text
        assert text == NOONS["blank"]
        assert found(created_at__text__lt="2026-02-23T") >= {"blank"}


def test_iso_text_is_written_in_one_form() -> None:
    Session.objects.create(session_id="s", status="x", created_at=NOON.astimezone())
    assert run("SELECT created_at FROM sessions") == [("2026-02-23T12:00:00.000000+00:00",)]


def test_a_readable_text_is_written_in_the_one_form() -> None:
    Session(session_id="s", status="x", created_at="2026-02-23T13:00:00+01:00").save()
    assert run("SELECT created_at FROM sessions") == [("2026-02-23T12:00:00.000000+00:00",)]


@pytest.mark.parametrize("value", ["yesterday", datetime(2026, 2, 23, 12), 5, True])
def test_what_is_no_instant_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match=r"instant|datetime"):
        Session(session_id="s", status="x", created_at=value).save()


def test_a_comparison_uses_the_index() -> None:
    plan = AuditLog.objects.filter(timestamp__lt=NOON).order_by().explain()
    if connection.vendor == "sqlite":  # PostgreSQL reads an empty table through no index
        assert "USING INDEX idx_audit_logs_timestamp (timestamp<?)" in plan


class TestIntegers:
    def test_milliseconds_and_seconds_are_cut(self) -> None:
        instant = NOON + timedelta(microseconds=1_500_900)
        assert MsField().get_prep_value(instant) == 1771848001500
        assert SecondsField().get_prep_value(instant) == 1771848001

    def test_they_come_back_as_instants(self) -> None:
        McpServer.objects.create(name="s", command="c", created_at=NOON)
        assert run("SELECT created_at FROM mcp_servers") == [(1771848000,)]
        assert McpServer.objects.get().created_at == NOON

    def test_a_number_beyond_the_calendar_stands_as_it_is(self) -> None:
        run("UPDATE agents SET last_seen = 9223372036854775807")
        assert Agent.objects.get().last_seen == UnreadableText("9223372036854775807")
        Agent.objects.get().save()
        assert run("SELECT last_seen FROM agents") == [(9223372036854775807,)]

    def test_comparisons_round_to_the_right_side(self) -> None:
        Change.objects.create(at=NOON, topic="t", key="k", op="insert")
        just_after = NOON + timedelta(microseconds=1)
        assert not Change.objects.filter(at__gte=just_after).exists()
        assert Change.objects.filter(at__lt=just_after).exists()
        assert Change.objects.filter(at__lte=just_after, at__gte=NOON).exists()
        assert not Change.objects.filter(at__gt=NOON).exists()

    @pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite takes text in an INTEGER column")
    def test_text_in_a_number_column_stands_as_it_is(self) -> None:
        run("UPDATE agents SET last_seen = 'never'")
        assert Agent.objects.get().last_seen == UnreadableText("never")


class TestSqlDateTime:
    def test_the_database_fills_it_in(self) -> None:
        run("INSERT INTO plugin_data (plugin_id, key) VALUES ('p', 'raw')")
        ours = PluginData.objects.create(plugin_id="p", key="ours")
        raw = PluginData.objects.get(pk=("p", "raw"))
        assert raw.updated_at is not None
        assert ours.updated_at is not None
        assert abs(ours.updated_at - raw.updated_at) < timedelta(seconds=10)

    def test_it_compares(self) -> None:
        PluginData.objects.create(plugin_id="p", key="k", updated_at=NOON)
        assert PluginData.objects.filter(updated_at=NOON).exists()
        assert PluginData.objects.filter(updated_at__lt=NOON + SECOND, updated_at__gt=NOON - SECOND).exists()
        assert PluginData.objects.get().updated_at == NOON

    @pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL has a type for it")
    def test_it_is_written_as_sqlite_writes_it(self) -> None:
        PluginData.objects.create(plugin_id="p", key="k", updated_at=NOON)
        assert run("SELECT CAST(updated_at AS TEXT) FROM plugin_data") == [("2026-02-23 12:00:00",)]

    @pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL has a type for it")
    @pytest.mark.parametrize("text", ["long ago", "2026-02-30 12:00:00"])
    def test_what_is_no_time_stands_as_it_is(self, text: str) -> None:
        run("INSERT INTO plugin_data (plugin_id, key, updated_at) VALUES ('p', 'k', %s)", text)
        assert PluginData.objects.get().updated_at == UnreadableText(text)
        assert list(PluginData.objects.values_list("updated_at", flat=True)) == [UnreadableText(text)]


class TestJson:
    @pytest.mark.parametrize(
        "value", [{}, [], {"a": [1, None, "ü"]}, "text", 0, False, "\\ud800", "\x00", 10**30]
    )
    def test_values_go_there_and_back(self, value: Any) -> None:
        Agent.objects.update(metadata=value)
        assert Agent.objects.get().metadata == value

    def test_a_lone_surrogate_is_kept_and_read_as_its_escape(self) -> None:
        Agent.objects.update(metadata={"\ud800": ["a\udfff", "\ud83d\ude00"]})
        assert Agent.objects.get().metadata == {r"\ud800": [r"a\udfff", "\U0001f600"]}
        (stored,) = run("SELECT metadata FROM agents")[0]
        assert json.loads(stored) == {"\ud800": ["a\udfff", "\U0001f600"]}

    @pytest.mark.parametrize(
        "text", ["{", "", "{'a': 1}", "[" * 100_000, "1" * 5000, "[NaN]", "[-Infinity]", "1e999"]
    )
    def test_broken_json_stands_as_it_is_and_is_kept(self, text: str) -> None:
        run("UPDATE agents SET metadata = %s", text)
        agent = Agent.objects.get()
        assert isinstance(agent.metadata, UnreadableText)
        agent.save()
        assert run("SELECT metadata FROM agents") == [(text,)]

    def test_null_is_null(self) -> None:
        Agent.objects.update(metadata=None)
        assert Agent.objects.get().metadata is None
        assert Agent.objects.filter(metadata=None).exists()

    def test_it_is_written_compact_and_legible(self) -> None:
        assert dump_compact_json({"b": [1, 2], "a": "ü"}) == '{"b":[1,2],"a":"ü"}'

    def test_what_json_has_no_word_for_is_refused(self) -> None:
        with pytest.raises(ValueError, match="not JSON compliant"):
            dump_compact_json(float("nan"))

    def test_search_is_of_the_text(self) -> None:
        Agent.objects.update(metadata={"team": "blue"})
        assert Agent.objects.filter(metadata__contains='"team":"blue"').exists()
        assert Agent.objects.filter(metadata={"team": "blue"}).exists()
        text = Agent.objects.values_list("metadata__text", flat=True).get()
        assert json.loads(text) == {"team": "blue"}


def test_defaults_agree_between_the_orm_and_raw_sql() -> None:
    Agent.objects.create(id="orm", name="n", default_engine_id="e")
    run("INSERT INTO agents (id, name, default_engine_id) VALUES ('raw', 'n', 'e')")
    ours, raw = (Agent.objects.filter(pk=pk).values().get() for pk in ("orm", "raw"))
    assert ours | {"id": "x"} == raw | {"id": "x"}


def test_columns_of_our_own_tables_have_the_right_type() -> None:
    assert SqlDateTimeField().db_type(connection) in {"timestamptz", "DATETIME"}
    assert MsField().db_type(connection) == "bigint"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite takes any value in any column")
class TestAnyValue:
    """What SQLite holds beside what the column is for (coordinator.engine.sqlite)."""

    @pytest.fixture(autouse=True)
    def _one_event(self) -> None:
        run("INSERT INTO sessions (session_id, status, created_at) VALUES ('s', 'x', 't')")
        run("INSERT INTO events (session_id, event_type, timestamp) VALUES ('s', 'message', 't')")

    @pytest.mark.parametrize(
        ("stored", "read"),
        [
            ("x'61ff'", r"a\xff"),
            ("CAST(x'eda080' AS TEXT)", r"\xed\xa0\x80"),
            ("x'616263'", "abc"),
            ("'a' || char(0) || 'b'", "a\x00b"),
            ("1.5", "1.5"),
            ("9e999", "Inf"),
            ("''", ""),
        ],
    )
    def test_in_a_text_column_everything_is_text(self, stored: str, read: str) -> None:
        run(f"UPDATE events SET error = {stored}")
        assert Event.objects.get().error == read
        assert list(Event.objects.values_list("error", flat=True)) == [read]

    @pytest.mark.parametrize("stored", ["x'616263'", "CAST(x'ff' AS TEXT)"])
    def test_what_no_text_equals_is_marked(self, stored: str) -> None:
        run(f"UPDATE events SET error = {stored}")
        read = Event.objects.get().error
        assert isinstance(read, UnreadableText)
        assert not Event.objects.filter(error=read).exists()

    @pytest.mark.parametrize(
        ("stored", "read"),
        [("1.5", "1.5"), ("9e999", "inf"), ("'word'", "word"), ("x'ff'", r"\xff"), ("3.0", 3), ("-7", -7)],
    )
    def test_an_integer_column_gives_whole_numbers_or_texts(self, stored: str, read: Any) -> None:
        run(f"UPDATE events SET exit_code = {stored}")
        found: Any = Event.objects.get().exit_code
        assert found == read
        assert isinstance(found, int | UnreadableText)

    @pytest.mark.parametrize(
        ("stored", "total"), [("9e999", 2**63 - 1), ("-9e999", -(2**63) + 1), ("2.4", 2)]
    )
    def test_a_sum_is_a_number(self, stored: str, total: int) -> None:
        run(f"UPDATE events SET exit_code = {stored}")
        assert Event.objects.aggregate(total=Sum("exit_code"))["total"] == total

    @pytest.mark.parametrize(
        ("stored", "read"), [("2", True), ("0.0", False), ("'yes'", False), ("'5 of'", True), ("x'31'", True)]
    )
    def test_a_boolean_is_what_a_condition_takes_it_for(self, stored: str, read: bool) -> None:
        run(f"UPDATE agents SET enabled = {stored}")
        assert Agent.objects.get().enabled is read
        assert Agent.objects.filter(enabled=True).exists() is read

    def test_a_number_of_milliseconds_may_have_a_fraction(self) -> None:
        run("UPDATE agents SET last_seen = 1771848000000.5")
        assert Agent.objects.get().last_seen == NOON + timedelta(milliseconds=1)
