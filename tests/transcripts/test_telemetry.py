"""The telemetry of Codex, Gemini CLI and others joins their sessions, and says when one is over."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.utils import timezone

from coordinator.dialects.otlp_logs import convert_otlp_logs_to_reports
from coordinator.edge.http import grpc_refusal
from coordinator.models import Event, EventContext, Run, Session
from coordinator.usage import reading as usage
from tests.claude_code.test_telemetry import pairs
from tests.served import Served
from tests.transcripts.recorded import (
    brought,
    copied,
    sent,
    story,
    the_session,
    told_by_hooks,
    told_by_hooks_one_by_one,
    told_by_telemetry,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def kinds() -> list[str]:
    return list(Event.objects.order_by("context__instant_us", "id").values_list("event_type", flat=True))


def output_tokens() -> int | None:
    return usage.load_usage_by_session([the_session().pk])[the_session().pk].output


@pytest.mark.django_db
def test_codex_is_told_by_its_telemetry_alone_up_to_its_end() -> None:
    told_by_telemetry("codex")
    found = the_session()
    assert (found.status, found.agent_name, found.executor_profile) == ("finished", "codex", "codex")
    assert [one for one in story(found) if one[0] == "user"] == [
        ("user", "please look around and write hello"),
        ("user", "and once more"),
    ]
    assert [one for one in story(found) if one[1] == "Bash"].count(("gives", "Bash")) == 4
    assert output_tokens() == 220
    before = kinds()
    told_by_telemetry("codex")
    assert (kinds(), the_session().status) == (before, "finished")


@pytest.mark.django_db
def test_gemini_is_told_by_its_telemetry_alone() -> None:
    told_by_telemetry("gemini")
    assert (the_session().status, the_session().executor_profile) == ("running", "gemini")
    assert story(the_session()) == [
        ("user", "please look around and write hi"), ("gives", "run_shell_command"), ("gives", "write_file"),
        ("fails", "read_file"),
    ]  # fmt: skip
    assert set(kinds()) == {"message", "model_request", "post_tool"}
    assert not EventContext.objects.filter(extra__contains="session_context").exists()


@pytest.mark.django_db
def test_hooks_telemetry_and_transcript_of_one_session_tell_it_once(tmp_path: Path) -> None:
    told_by_hooks("codex")
    told_by_telemetry("codex")
    brought("codex", copied("codex", tmp_path))
    assert Session.objects.count() == 1
    told = story(the_session())
    assert [
        told.count(("user", text)) for text in ("please look around and write hello", "and once more")
    ] == [1, 1]
    assert told.count(("calls", "Bash")) == 4
    assert told.count(("assistant", "All done.")) == 2
    assert output_tokens() == 220


@pytest.mark.django_db
@pytest.mark.parametrize("first", ["hooks", "transcript"])
def test_all_three_of_gemini_tell_it_once(first: str, tmp_path: Path) -> None:
    told_by_hooks("gemini") if first == "hooks" else brought("gemini", copied("gemini", tmp_path))
    told_by_telemetry("gemini")
    told_by_hooks("gemini") if first != "hooks" else brought("gemini", copied("gemini", tmp_path))
    told = story(the_session())
    assert told.count(("user", "please look around and write hi")) == 1
    assert [one for one in told if one[0] in {"gives", "fails"}] == [
        ("gives", "run_shell_command"), ("gives", "write_file"), ("fails", "read_file"),
    ]  # fmt: skip
    # A request of its own that the chat does not tell has the very figures of another one here.
    assert output_tokens() == (131 if first == "hooks" else 106)


def told_in_turns(hooks_before: int | None) -> None:
    """Record Codex's session by its hooks, and all its telemetry after so many of them."""
    hooks = list(told_by_hooks_one_by_one("codex"))
    before = len(hooks) if hooks_before is None else hooks_before % len(hooks)
    for tell in hooks[:before]:
        tell()
    told_by_telemetry("codex")
    for tell in hooks[before:]:
        tell()


@pytest.mark.django_db
@pytest.mark.parametrize("hooks_before", [None, 1, 4, -1])
def test_telemetry_before_or_after_the_hooks_of_codex_tells_no_call_or_prompt_again(
    hooks_before: int | None,
) -> None:
    told_in_turns(hooks_before)
    told = story(the_session())
    assert [one for one in told if one[0] == "user"] == [
        ("user", "please look around and write hello"),
        ("user", "and once more"),
    ]
    assert [one for one in told if one[0] == "gives"] == [("gives", "Bash")] * 4
    assert the_session().status == "finished"


@pytest.mark.django_db
@pytest.mark.parametrize("hooks_before", [None, -1])
def test_a_session_of_codex_ends_once_each_time_whoever_tells_it_first(hooks_before: int | None) -> None:
    told_in_turns(hooks_before)
    assert (kinds().count("session_stop"), the_session().status) == (2, "finished")


@pytest.mark.django_db
def test_telemetry_before_the_transcript_is_counted_once_too(tmp_path: Path) -> None:
    told_by_telemetry("codex")
    brought("codex", copied("codex", tmp_path))
    assert output_tokens() == 220
    assert [who for who, _ in story(the_session())].count("user") == 2
    assert [who for who, _ in story(the_session()) if who in {"gives", "fails"}] != []
    assert len([one for one in story(the_session()) if one[0] in {"gives", "fails"}]) == 8


# --- ends -----------------------------------------------------------------------------------------------------


def span(number: int, at: datetime, *, parent: int = 0, trace: int = 1, **attributes: Any) -> dict[str, Any]:
    begins = int(at.timestamp()) * 10**9
    return {
        "traceId": f"{trace:032x}",
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": attributes.get("gen_ai__operation__name", "work"),
        "startTimeUnixNano": str(begins),
        "endTimeUnixNano": str(begins + 10**9),
        "attributes": pairs(**attributes),
    }


def traces(*spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": pairs(service__name="helpdesk-bot")}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": list(spans)}]}]}


CHAT = {"gen_ai__operation__name": "chat", "gen_ai__usage__output_tokens": 5}
TALK = {"gen_ai__conversation__id": "talk-1"}
AGENT = {"gen_ai__operation__name": "invoke_agent", **TALK}


@pytest.mark.django_db
def test_the_end_of_a_root_span_ends_the_session_and_the_next_turn_takes_it_up() -> None:
    sent("traces", traces(span(2, NOW, parent=1, **CHAT, **TALK)), NOW)
    assert the_session().status == "running"
    sent("traces", traces(span(1, NOW + timedelta(seconds=1), **AGENT)), NOW)
    assert (the_session().status, kinds()) == ("finished", ["model_request", "session_stop"])
    late = NOW - timedelta(minutes=1)
    sent("traces", traces(span(3, late, parent=1, **CHAT, **TALK)), NOW)
    assert the_session().status == "finished"  # told late, of the time before
    again = NOW + timedelta(minutes=1)
    sent("traces", traces(span(4, again, parent=5, trace=2, **CHAT, **TALK)), again)
    assert the_session().status == "running"


@pytest.mark.django_db
def test_an_end_that_comes_late_does_not_end_what_goes_on() -> None:
    sent("traces", traces(span(2, NOW + timedelta(minutes=2), parent=9, trace=2, **CHAT, **TALK)), NOW)
    sent("traces", traces(span(1, NOW, **AGENT)), NOW)
    assert (the_session().status, kinds()) == ("running", ["turn_end", "model_request"])


@pytest.mark.django_db
def test_a_run_that_is_at_work_is_not_ended_by_its_telemetry() -> None:
    sent("traces", traces(span(2, NOW, parent=1, **CHAT, **TALK)), NOW)
    Run.objects.create(
        run_id="run_1",
        session=the_session(),
        type="start_session",
        prompt="x",
        status="running",
        created_at=NOW,
    )
    sent("traces", traces(span(1, NOW + timedelta(seconds=1), **AGENT)), NOW)
    assert the_session().status == "running"


@pytest.mark.django_db
def test_a_trace_without_a_conversation_is_over_with_its_root_and_makes_nothing_by_itself() -> None:
    sent("traces", traces(span(1, NOW, trace=7, http__method="GET")), NOW)
    assert Session.objects.count() == 0
    sent("traces", traces(span(2, NOW, parent=1, **CHAT), span(1, NOW, http__method="GET")), NOW)
    assert the_session().status == "finished"


@pytest.mark.django_db
def test_requests_that_stand_by_themselves_end_no_conversation() -> None:
    sent("traces", traces(span(1, NOW, **CHAT, **TALK), span(2, NOW, trace=2, **CHAT, **TALK)), NOW)
    assert the_session().status == "running"


@pytest.mark.django_db
def test_a_session_began_with_the_first_thing_that_is_told_of_it() -> None:
    sent("traces", traces(span(2, NOW - timedelta(minutes=10), parent=1, **CHAT, **TALK)), NOW)
    ended = NOW - timedelta(minutes=10) + timedelta(seconds=1)
    assert the_session().created_at == ended
    sent("traces", traces(span(4, NOW - timedelta(days=400), parent=1, trace=3, **CHAT)), NOW)
    assert Session.objects.get(executor_session_id__startswith="trace:").created_at == NOW  # an odd clock


# --- gRPC -----------------------------------------------------------------------------------------------------

HEADERS = (
    (5).to_bytes(3) + b"\x01\x04" + (1).to_bytes(4) + b"\x83\x86\x84\x41\x00"
)  # of a request, on stream 1
SETTINGS = bytes(3) + b"\x04\x00" + bytes(4)


def test_a_client_of_http2_is_refused_in_its_own_terms() -> None:
    assert grpc_refusal.grpc_refusal_if_headers_arrived(SETTINGS) is None
    assert grpc_refusal.grpc_refusal_if_headers_arrived(SETTINGS + HEADERS[:8]) is None
    answer = grpc_refusal.grpc_refusal_if_headers_arrived(SETTINGS + HEADERS)
    assert answer is not None
    size = int.from_bytes(answer[:3])
    assert (answer[3], answer[4], answer[5:9]) == (1, 5, (1).to_bytes(4))
    assert b"grpc-status\x0212" in answer[9 : 9 + size]
    assert b"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in answer[9 : 9 + size]
    assert answer[9 + size + 3] == 7  # and the connection ends
    assert grpc_refusal.grpc_refusal_if_headers_arrived(SETTINGS * 10_000) is not None
    assert grpc_refusal.grpc_refusal_if_headers_arrived(b"\xff" * 100) is not None


@pytest.mark.served
@pytest.mark.parametrize("pieces", [1, 3])
def test_whoever_points_grpc_here_is_told_the_setting(served: Served, pieces: int) -> None:
    said = grpc_refusal.PREFACE + SETTINGS + HEADERS
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as connection:
        connection.sendall(said[: len(grpc_refusal.PREFACE)])
        rest = said[len(grpc_refusal.PREFACE) :]
        for number in range(pieces):
            connection.sendall(rest[len(rest) * number // pieces : len(rest) * (number + 1) // pieces])
        heard = b""
        while piece := connection.recv(4096):
            heard += piece
    assert heard.startswith(SETTINGS)
    assert b"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in heard
    assert timezone.now()  # the server goes on
    assert httpx.get(f"{served.url}/health").status_code == 200  # and goes on


def log_record(sequence: int, second: int) -> dict[str, Any]:
    """Return a record of a conversation that has no id of its own but a number of its exporter's."""
    values = {"event.name": "codex.custom", "conversation.id": "conv-1", "event.sequence": str(sequence)}
    attributes = [{"key": name, "value": {"stringValue": value}} for name, value in values.items()]
    return {"timeUnixNano": str((1_790_000_000 + second) * 10**9), "attributes": attributes}


def origins_of(*records: dict[str, Any]) -> list[str | None]:
    """Return by what these records' events are known when they come again."""
    request = {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": list(records)}]}]}
    return [event.origin for report in convert_otlp_logs_to_reports(request, NOW) for event in report.events]


def test_records_of_a_program_that_counts_from_the_beginning_again_are_new_and_resent_ones_are_not() -> None:
    first, again, resent = origins_of(log_record(1, 0), log_record(1, 60), log_record(1, 0))
    assert first == resent
    assert first != again
