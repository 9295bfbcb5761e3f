"""What each library sends of one conversation becomes the same session.

Recorded on 2026-11-27 from the libraries named in .docs/telemetry.md, each run against a scripted model: a question
whose tool answers, and one whose tool fails. Kept as they were sent, but for tools' definitions, the machine's own
attributes and the middle of stack traces.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from coordinator.models import Event, EventContext, ModelRequestUsage, Session
from coordinator.usage.reading import sum_usage_rows
from tests.usage.test_telemetry import take

pytestmark = pytest.mark.django_db

DATA = Path(__file__).parents[1] / "data" / "otlp"
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
FIRST, SECOND = "What is the weather in Paris?", "And on the moon?"
ANSWERS = ["It is 18 degrees and clear in Paris.", "There is no station on the moon."]
AGENT = "weather_agent"


@dataclass(frozen=True)
class Expected:
    """What of a recording is not as of the others, and why it cannot be."""

    agent: str = AGENT
    requests: int = 4
    cached: bool = True  # the cached tokens of each request are sent
    first: int = 1  # the number that the scripted model gave to the first request: its tokens follow from it
    fails: bool = True  # the failure of the tool is sent
    ends: bool = True
    # Spans that go on their own join the session: not where a client's span comes in an export before the framework's,
    # which alone has the name of the conversation or the id of the call.
    in_parts: bool = True


# A library whose tool raises ends the run: its last request is not made.
RAISES = Expected(requests=3)
EMITTERS = {
    "crewai_openinference": Expected(agent="crewai_oi-service", in_parts=False),
    "google_adk_spans": RAISES,
    "langgraph_langsmith": RAISES,
    "langgraph_openinference": RAISES,
    "openai_agents_openinference": Expected(),
    "openai_agents_openllmetry": Expected(first=5),
    "openai_openinference": Expected(agent="openinference_openai-service", fails=False, ends=False),
    "openai_openllmetry": Expected(agent="openllmetry_openai-service", first=5, fails=False, ends=False),
    "openai_opentelemetry": Expected(agent="openai_v2-service", cached=False, fails=False, ends=False),
    "pydantic_ai_anthropic": replace(RAISES, in_parts=False),
    "pydantic_ai_openai": RAISES,
    "strands_default": Expected(),
    "strands_latest": Expected(),
    "vercel_ai_5": Expected(),
    "vercel_ai_6": Expected(),
}


def recorded_requests(emitter: str) -> list[tuple[str, Any]]:
    lines = (DATA / f"{emitter}.jsonl").read_text().splitlines()
    return [(line["kind"], line["request"]) for line in map(json.loads, lines)]


def split_request(kind: str, request: Any) -> Iterator[Any]:
    """Yield a request for each span, and for the log records of each, in the order in which they were sent."""
    outer, middle, inner = (
        ("resourceSpans", "scopeSpans", "spans")
        if kind == "traces"
        else ("resourceLogs", "scopeLogs", "logRecords")
    )
    for group in request[outer]:
        for scope in group[middle]:
            for _, records in groupby(scope[inner], key=lambda record: record["spanId"]):
                yield {outer: [{**group, middle: [{**scope, inner: list(records)}]}]}


def said() -> list[tuple[str, str]]:
    messages = Event.objects.filter(event_type="message").order_by("context__instant_us", "id")
    return [(message.role, message.content[0]["text"]) for message in messages]


def calls(event_type: str) -> list[Event]:
    return list(Event.objects.filter(event_type=event_type).order_by("context__instant_us", "id"))


@pytest.mark.parametrize("emitter", EMITTERS)
def test_a_recorded_conversation_becomes_one_session(emitter: str) -> None:
    expected = EMITTERS[emitter]
    notes = [take(copy.deepcopy(request), kind) for kind, request in recorded_requests(emitter)]
    assert [note.message for note in notes if note.message] == []
    session = Session.objects.get()
    assert session.executor_session_id.startswith("conv-")
    assert session.agent_name == expected.agent
    assert session.status == ("finished" if expected.ends else "running")

    answered = ANSWERS if expected.requests == 4 else ANSWERS[:1]
    people = [text for role, text in said() if role == "user"]
    assert len(people) == 2
    assert FIRST in people[0]
    assert SECOND in people[1]
    assert [text for role, text in said() if role == "assistant"] == answered

    asked = calls("pre_tool")
    assert [(call.tool_name, call.tool_input) for call in asked] == [
        ("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Moon"}),
    ]  # fmt: skip
    given = calls("post_tool")
    assert len(given) == 2
    assert given[0].tool_output in ("18 degrees, clear", {"result": "18 degrees, clear"})
    assert given[0].error is None
    assert bool(given[1].error) == expected.fails
    pairs = EventContext.objects.filter(event__event_type__in=("pre_tool", "post_tool"))
    assert len(set(pairs.values_list("tool_use_id", flat=True))) == 2

    numbers = [expected.first + number for number in range(expected.requests)]
    usage = sum_usage_rows(ModelRequestUsage.objects.all())
    assert usage.requests == expected.requests
    assert usage.output == sum(5 * number for number in numbers)
    assert usage.input + usage.cache_read == sum(100 * number for number in numbers)
    if emitter == "vercel_ai_5":  # its generateText does not say what was cached
        numbers = numbers[2:]
    assert usage.cache_read == (sum(10 * number for number in numbers) if expected.cached else 0)
    assert set(ModelRequestUsage.objects.values_list("provider", flat=True)) != {""}


@pytest.mark.parametrize("emitter", EMITTERS)
def test_a_conversation_that_is_sent_twice_and_in_parts_says_the_same(emitter: str) -> None:
    for kind, request in recorded_requests(emitter):
        take(copy.deepcopy(request), kind)
    before = said(), len(calls("pre_tool")), len(calls("post_tool")), ModelRequestUsage.objects.count()
    for kind, request in recorded_requests(emitter):
        for part in split_request(kind, copy.deepcopy(request)):
            take(part, kind)
    assert (
        said(),
        len(calls("pre_tool")),
        len(calls("post_tool")),
        ModelRequestUsage.objects.count(),
    ) == before
    assert Session.objects.count() == 1


@pytest.mark.parametrize("emitter", [name for name, expected in EMITTERS.items() if expected.in_parts])
def test_a_conversation_that_comes_in_parts_is_one_session_with_the_same_messages(emitter: str) -> None:
    expected = EMITTERS[emitter]
    for kind, request in recorded_requests(emitter):
        for part in split_request(kind, request):
            take(part, kind)
    assert Session.objects.count() == 1
    answered = ANSWERS if expected.requests == 4 else ANSWERS[:1]
    assert len([role for role, _ in said() if role == "user"]) == 2
    assert [text for role, text in said() if role == "assistant"] == answered
    assert (len(calls("pre_tool")), len(calls("post_tool"))) == (2, 2)
    assert sum_usage_rows(ModelRequestUsage.objects.all()).requests == expected.requests


@pytest.mark.parametrize("first", ["traces", "logs"])
def test_claude_codes_telemetry_alone_says_what_was_called_and_how_it_ended(first: str) -> None:
    """Two sessions without hooks. Its logs have no results, and what comes first of log and span stays."""
    for kind, request in sorted(recorded_requests("claude_code"), key=lambda sent: sent[0] != first):
        take(request, kind)
    assert set(Session.objects.values_list("agent_name", flat=True)) == {"claude-code"}
    messages = Event.objects.filter(event_type="message").order_by("context__instant_us", "id")
    assert [message.content[0]["text"] for message in messages] == [FIRST, "Done.", SECOND, "Done."]
    answered, failed = calls("post_tool")
    assert (answered.tool_name, answered.tool_input) == ("Bash", {"command": "echo 18 degrees"})
    assert answered.tool_output == ("18 degrees" if first == "traces" else None)
    assert answered.error is None
    assert failed.tool_input == {"command": "echo no station >&2; exit 3"}
    assert failed.error == "Shell command failed"
    usage = sum_usage_rows(ModelRequestUsage.objects.all())
    assert (usage.requests, usage.input, usage.output) == (4, 28, 28)


def test_messages_that_come_as_log_records_join_the_session_of_their_spans() -> None:
    for kind, request in recorded_requests("google_adk_events"):
        take(request, kind)
    assert Session.objects.get().executor_session_id == "conv-adk"
    assert said() == [("user", FIRST), ("assistant", ANSWERS[0]), ("user", SECOND)]
    assert len(calls("pre_tool")) == 2


def test_what_an_agent_does_that_another_calls_is_marked_and_has_an_end() -> None:
    for kind, request in recorded_requests("pydantic_ai_nested"):
        take(request, kind)
    assert Session.objects.get().agent_name == "lead"
    contexts = EventContext.objects.exclude(subagent=None).order_by("instant_us", "event_id")
    assert {context.subagent for context in contexts} == {"researcher"}
    assert [context.event.event_type for context in contexts][-1] == "turn_end"
    tools = {event.tool_name: event.context.subagent for event in calls("pre_tool")}
    assert tools == {"get_report": None, "get_weather": "researcher"}


def test_a_conversation_that_a_later_export_names_takes_up_the_parts_before() -> None:
    (kind, request), *_ = recorded_requests("pydantic_ai_openai")
    *inner, outer = split_request(kind, request)
    for part in inner:
        forget_conversation(part)
        take(part, kind)
    assert Session.objects.filter(executor_session_id__startswith="trace:").exists()
    take(outer, kind)
    take(outer, kind)
    named = Session.objects.get(executor_session_id="conv-pydantic_openai")
    assert Event.objects.filter(session=named, event_type="message").exists()


def test_a_part_without_a_name_joins_the_session_that_an_earlier_export_named() -> None:
    (kind, request), *_ = recorded_requests("pydantic_ai_openai")
    first, *others = split_request(kind, request)
    take(first, kind)
    for part in others:
        forget_conversation(part)
        take(part, kind)
    traces = {span_of(part)["traceId"] for part in (first, *others)}
    assert len(traces) == 2
    first_trace = Session.objects.get(executor_session_id="conv-pydantic_openai")
    assert Event.objects.filter(session=first_trace, event_type="pre_tool").count() == 1
    assert Session.objects.count() == 2  # the second question's trace names nothing at all


def span_of(part: Any) -> dict[str, Any]:
    (span,) = part["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return span


def forget_conversation(part: Any) -> None:
    span = span_of(part)
    span["attributes"] = [pair for pair in span["attributes"] if pair["key"] != "gen_ai.conversation.id"]
