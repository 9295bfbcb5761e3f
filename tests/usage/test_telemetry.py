"""Telemetry counts each request once, whatever its emitter calls things; what is not understood is answered."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from coordinator.actions.sessions.events import record_events
from coordinator.dialects.otlp_common import OmittedRecordCounts
from coordinator.dialects.otlp_logs import convert_otlp_logs_to_reports
from coordinator.dialects.otlp_traces import convert_otlp_traces_to_reports
from coordinator.edge.ingest.otlp import (
    JSON,
    PROTOBUF,
    create_sessions_and_assign_events,
    encode_partial_success,
)
from coordinator.identity.keys import LOCAL_PROGRAM
from coordinator.models import Event, ModelRequestUsage, Session, UsageDay
from coordinator.sessions.omissions import OmissionKind
from coordinator.usage.reading import load_usage_by_session, sum_usage_rows
from tests.claude_code.test_telemetry import pairs
from tests.transcripts.test_telemetry import span, traces

pytestmark = pytest.mark.django_db

DATA = Path(__file__).parents[1] / "data" / "usage"
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
CHAT = {
    "gen_ai__operation__name": "chat",
    "gen_ai__usage__input_tokens": 10,
    "gen_ai__usage__output_tokens": 5,
    "gen_ai__response__model": "gpt-4o",
}
TALK = {"gen_ai__conversation__id": "talk-1"}


def take(request: Any, kind: str = "traces") -> OmittedRecordCounts:
    """Take an export as the endpoint does; return what was left out of it."""
    notes = OmittedRecordCounts()
    reader = convert_otlp_traces_to_reports if kind == "traces" else convert_otlp_logs_to_reports
    record_events(create_sessions_and_assign_events(reader(request, NOW, notes), LOCAL_PROGRAM, NOW), NOW)
    return notes


def figures(session: str | None = None) -> tuple[int, int, int, int, int]:
    rows = ModelRequestUsage.objects.all()
    if session is not None:
        rows = rows.filter(session_id=Session.objects.get(executor_session_id=session).pk)
    usage = sum_usage_rows(rows)
    return usage.requests, usage.input, usage.output, usage.cache_read, usage.cache_write


def test_cached_tokens_are_read_under_all_their_names() -> None:
    take(json.loads((DATA / "otlp_cached_token_names.json").read_text()))
    rows = ModelRequestUsage.objects.values_list(
        "input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "output_tokens"
    )
    assert list(rows) == [(5, 128_955, 1_253, 400)] * 3


def test_an_emitter_that_counts_caches_beside_the_input_keeps_its_input() -> None:
    cached = {"gen_ai__usage__cache_read_input_tokens": 900}
    take(traces(span(1, NOW, **CHAT, **TALK, **cached)))
    assert figures() == (1, 10, 5, 900, 0)


@pytest.mark.parametrize("batches", ["together", "inner first", "outer first"])
def test_a_model_span_below_another_counts_once(batches: str) -> None:
    outer, inner = span(1, NOW, **CHAT, **TALK), span(2, NOW, parent=1, **CHAT)
    if batches == "together":
        take(traces(outer, inner))
    else:
        for one in (inner, outer) if batches == "inner first" else (outer, inner):
            take(traces(one))
    assert figures() == (1, 10, 5, 0, 0)


def test_three_requests_of_a_framework_over_a_client_are_three() -> None:
    spans = [span(1, NOW, gen_ai__operation__name="invoke_agent", **TALK)]
    for number in (2, 4, 6):
        http = span(number + 100, NOW, parent=number)
        spans += [
            span(number, NOW, parent=1, **CHAT),
            http,
            span(number + 1, NOW, parent=number + 100, **CHAT),
        ]
    take(traces(*spans))
    assert figures("talk-1") == (3, 30, 15, 0, 0)


def test_the_same_span_sent_twice_is_one_and_equal_ones_are_two() -> None:
    for _ in range(2):
        take(traces(span(1, NOW, **CHAT, **TALK), span(2, NOW, **CHAT, **TALK)))
    assert figures() == (2, 20, 10, 0, 0)


def test_one_odd_attribute_is_left_out_and_named_and_the_batch_kept() -> None:
    notes = take(json.loads((DATA / "otlp_int_that_is_none.json").read_text()))
    assert figures("otlp-38") == (1, 10, 5, 0, 0)
    assert Session.objects.filter(executor_session_id="otlp-39").exists()
    assert notes.message == "1 attributes could not be read and left out: my.superscript."
    answer = json.loads(encode_partial_success("traces", JSON, 0, notes.message))
    assert answer["partialSuccess"] == {"rejectedSpans": "0", "errorMessage": notes.message}
    assert notes.message.encode() in encode_partial_success("traces", PROTOBUF, 0, notes.message)


def test_vercel_openinference_and_traceloop_make_sessions_with_words_tools_and_tokens() -> None:
    notes = take(json.loads((DATA / "otlp_other_dialects.json").read_text()))
    assert not notes.message
    assert figures("trace:5b8efff798038103d269b633813fc60c") == (1, 30, 9, 0, 0)
    assert figures("oi-32") == (1, 40, 8, 0, 0)
    assert figures("tl-32") == (1, 14, 173, 0, 0)
    assert set(ModelRequestUsage.objects.values_list("model", flat=True)) == {"gpt-4o"}
    said = Event.objects.filter(event_type="message").order_by("id")
    assert [(one.role, one.content[0]["text"]) for one in said] == [
        ("user", "hi"), ("assistant", "hello"), ("user", "hello"), ("user", "What is it?"),
    ]  # fmt: skip
    called = Event.objects.filter(event_type="pre_tool").values_list("tool_name", "tool_input")
    assert [(tool, dict(given)) for tool, given in called] == [("weather", {"city": "Bonn"})] * 3


def test_spans_of_agents_that_are_not_understood_are_named_and_others_are_not() -> None:
    unknown = span(1, NOW, gen_ai__operation__name="a_new_operation", **TALK)
    notes = take(traces(unknown | {"name": "new thing"}, span(2, NOW, http__method="GET")))
    assert notes.message == "1 spans were not understood and left out: new thing."
    assert notes.total_omissions_of_kind(OmissionKind.SPAN) == 1


def claude_request(**attributes: Any) -> dict[str, Any]:
    resource = {"attributes": pairs(service__name="claude-code")}
    shared = {"event__name": "api_request", "session__id": "c-1", "model": "claude-sonnet-4-5"}
    record = {"attributes": pairs(**shared, **attributes), "timeUnixNano": str(1_795_000_000 * 10**9)}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}


def test_claude_code_s_telemetry_tells_by_its_cost_which_cache_writes_are_for_an_hour() -> None:
    tokens = {"input_tokens": 1000, "output_tokens": 1000, "cache_creation_tokens": 100_000}
    take(claude_request(request_id="r1", cost_usd=0.618, **tokens), "logs")  # 0.003 + 0.015 + 0.6
    take(claude_request(request_id="r2", cost_usd=0.393, **tokens), "logs")  # … + 0.375
    take(claude_request(request_id="r3", cost_usd=99.0, **tokens), "logs")  # by prices of its own
    rows = ModelRequestUsage.objects.order_by("id").values_list("cache_write_1h_tokens", "cost")
    assert [(hour, round(cost, 6)) for hour, cost in rows] == [(100_000, 0.618), (0, 0.393), (0, 0.393)]


def test_a_request_that_is_reported_again_with_more_tokens_has_the_last_ones() -> None:
    take(claude_request(request_id="r1", input_tokens=10, output_tokens=1), "logs")
    more = claude_request(request_id="r1", input_tokens=10, output_tokens=40)
    for _ in range(2):
        take(more, "logs")
    take(claude_request(request_id="r1", input_tokens=10, output_tokens=7), "logs")
    assert figures() == (1, 10, 40, 0, 0)
    (day,) = UsageDay.objects.exclude(model="")
    assert (day.input_tokens, day.output_tokens) == (10, 40)
    assert day.cost == pytest.approx((10 * 3 + 40 * 15) / 1e6)
    (usage,) = load_usage_by_session([day.session_id]).values()
    assert usage.cost == pytest.approx(day.cost)
