"""Claude Code's transcripts come in once, as the story that a reviewer reads; what was recorded live stays single."""

from __future__ import annotations

import json
import os
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from coordinator.actions.sessions import reported_sessions
from coordinator.actions.sessions.events import record_events
from coordinator.dialects import claude_code as hooks
from coordinator.dialects.otlp_logs import convert_otlp_logs_to_reports
from coordinator.importing import transcripts
from coordinator.models import AuditLog, Event, EventContext, Session, SessionTitle
from coordinator.sessions import titles
from coordinator.sessions.events import NewEvent
from coordinator.sessions.reports import SessionLocation
from coordinator.sessions.timeline import CallRow
from coordinator.sessions.timeline.walking import walk_session_rows
from coordinator.usage import reading as usage
from tests.claude_code.test_telemetry import logs, pairs
from tests.people import signed_in

pytestmark = pytest.mark.django_db

CORPUS = Path(__file__).parents[1] / "data" / "claude_code" / "transcripts"
FIXED, RESUMED, OLDER = (f"3f1c8e52-7a90-4d1b-9c55-0a6de1f4000{number}" for number in (1, 2, 3))
PROMPT = "The totals of some orders are off by a cent. Find out why and fix it."


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A copy of the recorded folder whose files changed one after the other."""
    place = tmp_path / "projects"
    shutil.copytree(CORPUS, place)
    for number, path in enumerate(sorted(place.rglob("*.jsonl"))):
        os.utime(path, (1_795_000_000 + number, 1_795_000_000 + number))
    return place


def brought(place: Path, *more: str) -> str:
    out = StringIO()
    call_command("import_claude_code", str(place), "--host", "laptop", *more, stdout=out)
    return out.getvalue()


def session(claude_id: str) -> Session:
    return Session.objects.get(executor_session_id=claude_id)


def said(claude_id: str, role: str) -> list[str]:
    found = Event.objects.filter(session=session(claude_id), event_type="message", role=role)
    contents = found.order_by("context__instant_us", "id").values_list("content", flat=True)
    return [block.get("text", block.get("type")) for content in contents for block in content]


def calls(claude_id: str) -> dict[str, CallRow]:
    return {
        row.event_with_tool_name_and_input.tool_use_id: row
        for row in walk_session_rows(session(claude_id))
        if isinstance(row, CallRow)
    }


def test_a_session_reads_as_it_went(corpus: Path) -> None:
    brought(corpus)
    found = session(FIXED)
    assert (found.status, found.project_dir, found.hostname, found.agent_name) == (
        "finished", "/home/dev/shop", "laptop", "claude-code",
    )  # fmt: skip
    assert str(found.created_at) == "2026-11-17 09:00:02.037000+00:00"
    assert said(FIXED, "user") == [
        PROMPT, "No pushing. This is what the customer sees:", "image",
        "Also check the invoices, please.",
        "Look for other places that round money with floats. Report file and line.",
        "/compact keep the invoices", "Now mend those two as well.",
    ]  # fmt: skip
    assert said(FIXED, "assistant") == [
        "thinking", "I will look at how totals are summed.", "Two places: shop/invoices.py:31 and shop/refunds.py:12.",
        "Both are mended, and a test holds all three to whole cents.",
    ]  # fmt: skip
    picture = Event.objects.get(session=found, content__contains="This is what the customer sees")
    assert [block["type"] for block in picture.content] == ["text", "image"]
    assert any(text.startswith("This session is being continued") for text in said(FIXED, "system"))


def test_calls_have_their_results_errors_and_refusals(corpus: Path) -> None:
    brought(corpus)
    found = calls(FIXED)
    assert [row.call_state for row in found.values()] == [
        "done",
        "failed",
        "done",
        "failed",
        "done",
        "done",
        "done",
    ]
    assert found["toolu_01A1"].end.tool_output.value["stdout"].startswith("12:")
    assert found["toolu_01A2"].end.error == "String to replace not found in file."
    assert found["toolu_01A4"].end.error.startswith("Rejected in the terminal.")
    assert found["toolu_01A6"].duration_ms == 21_400


def test_sub_agents_are_nested_under_the_names_that_hooks_give_them(corpus: Path) -> None:
    brought(corpus)
    nested = EventContext.objects.filter(session_id=session(FIXED).pk, subagent="Explore a1b2c3d")
    assert nested.filter(event__event_type="pre_tool", tool_use_id="toolu_01G1").count() == 1
    inline = EventContext.objects.filter(session_id=session(OLDER).pk, subagent="sub-agent")
    assert inline.filter(event__tool_name="Read").count() == 2


def test_tokens_are_counted_once_a_request_and_on_their_own_day(corpus: Path) -> None:
    brought(corpus)
    spent = usage.load_session_usage_by_model(session(FIXED).pk)
    assert {model: (one.input, one.output) for model, one in spent.items()} == {
        "claude-opus-4-6": (28, 187 + 143 + 139 + 96 + 88 + 210 + 61),
        "claude-haiku-4-5-20251001": (8, 125),
    }
    day = {f"{one:%Y-%m-%d}" for one in EventContext.objects.values_list("received_at", flat=True)}
    assert day == {"2026-10-30", "2026-11-17", "2026-11-18"}


def test_a_resumed_session_does_not_repeat_what_it_copied(corpus: Path) -> None:
    brought(corpus)
    assert said(RESUMED, "user") == ["Is the fix on the release branch?"]
    assert list(calls(RESUMED)) == ["toolu_01B1"]
    assert usage.load_usage_by_session([session(RESUMED).pk])[session(RESUMED).pk].output == 98


def test_what_is_not_understood_is_counted_with_its_first_place(corpus: Path) -> None:
    told = brought(corpus)
    assert f"1 lines: type holo-note, first at {corpus}" in told
    assert f"1 lines: no JSON, first at {corpus / '-home-dev-shop' / FIXED}.jsonl:35" in told
    assert "1 lines: unfinished last line" in told
    assert Session.objects.count() == 3  # a file that holds nothing but a title makes none


def test_again_nothing_comes_in_and_a_grown_file_brings_what_is_new(corpus: Path) -> None:
    brought(corpus)
    before = (Event.objects.count(), Session.objects.count())
    assert "imported  0 events" in brought(corpus)
    assert (Event.objects.count(), Session.objects.count()) == before
    path = corpus / "-home-dev-shop" / f"{RESUMED}.jsonl"
    line = json.loads(path.read_text().splitlines()[-1])
    line |= {
        "uuid": "new",
        "requestId": "req_new",
        "message": line["message"] | {"id": "msg_new", "content": "It is released."},
    }
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert "imported  2 events (1 messages, 0 calls) in 0 new and 1 known sessions" in brought(corpus)
    assert AuditLog.objects.filter(event_type="TRANSCRIPTS_IMPORTED").count() == 3


def test_a_dry_run_tells_the_same_and_changes_nothing(corpus: Path) -> None:
    told = brought(corpus, "--dry-run")
    assert [model.objects.count() for model in (Event, Session, AuditLog)] == [0, 0, 0]
    line = next(line for line in told.splitlines() if line.startswith("imported"))
    assert line in brought(corpus)


def record_hooks(*told: dict[str, Any], at: str) -> Session:
    """Record hooks of the first session as the door does."""
    made = reported_sessions.find_or_create_reported_session(
        FIXED, SessionLocation("/home/dev/shop"), timezone.now()
    ).session_id
    for fields in told:
        hook = hooks.DIALECT.read_hook(json.dumps({"session_id": FIXED, **fields}).encode(), at)
        record_events([*hooks.DIALECT.build_hook_and_transcript_events(hook, made)], timezone.now())
    return Session.objects.get(pk=made)


BASH = {"tool_name": "Bash", "tool_input": {"command": "grep"}, "tool_use_id": "toolu_01A1"}


def test_a_session_that_hooks_recorded_is_completed_and_not_doubled(corpus: Path) -> None:
    live = record_hooks(
        {"hook_event_name": "UserPromptSubmit", "prompt": PROMPT},
        {"hook_event_name": "PreToolUse", **BASH},
        {"hook_event_name": "PostToolUse", **BASH, "tool_response": {"stdout": "told live"}},
        at="2026-11-17T09:00:02.500000+00:00",
    )
    record_hooks(
        {"hook_event_name": "Stop", "last_assistant_message": "I will look at how totals are  summed."},
        at="2026-11-17T09:00:06.000000+00:00",
    )
    told = brought(corpus)
    assert "in 2 new and 1 known sessions" in told
    assert (session(FIXED).pk, session(FIXED).status) == (live.pk, "running")
    assert said(FIXED, "user").count(PROMPT) == 1
    assert len([text for text in said(FIXED, "assistant") if text.startswith("I will look")]) == 1
    found = calls(FIXED)
    assert len(found) == 7
    assert found["toolu_01A1"].end.tool_output.value == {"stdout": "told live"}
    assert "imported  0 events" in brought(corpus)


def test_what_was_recorded_live_without_its_secrets_is_known_all_the_same(corpus: Path) -> None:
    secret = "Use ghp_" + "a1B2" * 9 + " to push."
    path = corpus / "-home-dev-shop" / f"{FIXED}.jsonl"
    path.write_text(path.read_text().replace(PROMPT, secret))
    record_hooks(
        {"hook_event_name": "UserPromptSubmit", "prompt": secret}, at="2026-11-17T09:00:02.500000+00:00"
    )
    brought(corpus)
    assert len([text for text in said(FIXED, "user") if text.endswith(" to push.")]) == 1
    assert not Event.objects.filter(content__contains="a1B2a1B2").exists()


def test_the_same_words_long_after_are_said_anew(corpus: Path) -> None:
    record_hooks(
        {"hook_event_name": "UserPromptSubmit", "prompt": PROMPT}, at="2026-11-17T11:00:00.000000+00:00"
    )
    brought(corpus)
    assert said(FIXED, "user").count(PROMPT) == 2


def test_telemetry_that_told_no_contents_is_filled_in_and_counted_once(corpus: Path) -> None:
    made = reported_sessions.find_or_create_reported_session(
        FIXED, SessionLocation(), timezone.now()
    ).session_id
    model = "claude-opus-4-6"
    shared = {"session__id": FIXED, "prompt__id": "7d0e0000-aaaa-4bbb-8ccc-000000000001"}
    records = [
        {"attributes": pairs(event__name=name, event__sequence=number, **shared, **more)}
        for number, (name, more) in enumerate([
            ("user_prompt", {"prompt": "<REDACTED>", "prompt_length": 70}),
            ("tool_result", {"tool_name": "Bash", "tool_use_id": "toolu_01A1", "success": "true"}),
            ("api_request", {"model": model, "request_id": "req_01A1", "input_tokens": 4, "output_tokens": 1}),
        ])
    ]  # fmt: skip
    for told in convert_otlp_logs_to_reports(logs(*records), timezone.now()):
        for event in told.events:
            event.session_id = made
        record_events(told.events, timezone.now())
    brought(corpus)
    assert PROMPT in said(FIXED, "user")
    assert calls(FIXED)["toolu_01A1"].end.tool_output.value["stdout"].startswith("12:")
    assert "imported  0 events" in brought(corpus, "--dry-run")
    assert (
        usage.load_session_usage_by_model(made)["claude-opus-4-6"].output == 924
    )  # telemetry reported 1 of 187


def test_calls_that_an_executor_reported_without_ids_are_known(corpus: Path) -> None:
    made = reported_sessions.find_or_create_reported_session(
        FIXED, SessionLocation(), timezone.now()
    ).session_id
    given = {"command": 'grep -rn "total" shop/pricing.py', "description": "Find where totals are summed"}
    call = NewEvent(
        event_type="pre_tool",
        session_id=made,
        timestamp="2026-11-17T09:00:05Z",
        tool_name="Bash",
        tool_input=given,
    )
    record_events([call], timezone.now())
    brought(corpus)
    bash = Event.objects.filter(session_id=made, event_type="pre_tool", tool_name="Bash")
    assert bash.filter(tool_input__contains="grep").count() == 1


def test_lines_of_any_shape_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "LONGEST_LINE", 500)
    odd = [
        b'{"type":"user"}', b'{"type":"user","message":7}', b'{"type":"user","message":{"content":{"a":1}}}', b"[]",
        b'{"type":"assistant","message":{"content":[null,3,{"type":"tool_use"}],"usage":[],"id":3}}', b"\xff\xfe", b"",
        b'{"type":["user"]}', b'{"type":"assistant","message":{"content":[{"type":{}}]}}',
        b'{"type":"user","timestamp":"then","message":{"content":"\\u0000 \\ud800 hello"}}',
        b'{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":4,"is_error":true}]}}',
        b'{"type":"user","message":{"content":"' + b"x" * 2_000 + b'"}}',
        b'{"type":"user","message":{"content":"last"}}',
    ]  # fmt: skip
    (tmp_path / "odd.jsonl").write_bytes(b"\n".join(odd))
    told = brought(tmp_path)
    assert "refused" not in told
    assert "1 lines: too long" in told
    assert said("odd", "user")[-2:] == ["␀ � hello", "last"]


def test_a_request_whose_answer_is_being_written_waits_for_its_tokens(corpus: Path) -> None:
    path = corpus / "-home-dev-shop" / f"{RESUMED}.jsonl"
    text = path.read_text()
    unfinished = text.replace('"stop_reason":"end_turn"', '"stop_reason":null')
    unfinished = unfinished.replace('"output_tokens":21', '"output_tokens":1')
    last = "2026-11-18T09:00:08.848Z"  # the line's own time says how old it is, not the file's
    path.write_text(unfinished.replace(last, timezone.now().strftime("%Y-%m-%dT%H:%M:%S.000Z")))
    brought(corpus)
    assert usage.load_usage_by_session([session(RESUMED).pk])[session(RESUMED).pk].output == 77
    path.write_text(unfinished)
    brought(corpus)
    assert usage.load_usage_by_session([session(RESUMED).pk])[session(RESUMED).pk].output == 78
    path.write_text(text)
    brought(corpus)
    assert usage.load_usage_by_session([session(RESUMED).pk])[session(RESUMED).pk].output == 98


def test_nothing_to_read_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no transcripts"):
        brought(tmp_path)
    with pytest.raises(CommandError, match="does not exist"):
        brought(tmp_path / "nowhere")


def test_the_session_page_says_where_its_history_comes_from(corpus: Path) -> None:
    brought(corpus)
    page = signed_in("viewer").get(f"/ui/sessions/{session(FIXED).pk}/").content.decode()
    assert "Read from a transcript · Claude Code 2.1.240 · fix/rounding" in page
    assert "Conversation compacted" in page
    # 4 and 18,200 from the cache and 512 into it.
    assert "Asked claude-opus-4-6 · 18,716 tokens in · 187 out" in page
    by_model = page.partition('id="by-model"')[2].partition("</table>")[0]
    assert "claude-haiku-4-5-20251001" in by_model
    assert '<pre class="code failure">Overloaded</pre>' in page


def written(place: Path, name: str, *lines: dict[str, Any]) -> Path:
    place.mkdir(exist_ok=True)
    path = place / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def asked_for(text: str, uuid: str = "u1", name: str = "one") -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": uuid,
        "sessionId": name,
        "timestamp": "2026-11-20T09:00:00Z",
        "message": {"role": "user", "content": text},
    }


def titled(kind: str, field: str, text: str, **more: str) -> dict[str, Any]:
    return {"type": kind, field: text, **more}


AI = titled("ai-title", "aiTitle", "Rounding of orders", sessionId="one")


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ([AI], "Rounding of orders"),
        ([AI, titled("ai-title", "aiTitle", "Rounding, mended", sessionId="one")], "Rounding, mended"),
        ([titled("custom-title", "customTitle", "Cents", sessionId="one"), AI], "Cents"),
        ([titled("summary", "summary", "Sums", leafUuid="u1")], "Sums"),
        ([titled("summary", "summary", "Of another", leafUuid="u9")], "Fix the totals"),
        ([titled("summary", "summary", "Sums", leafUuid="u1"), AI], "Rounding of orders"),
        ([titled("ai-title", "aiTitle", "   ")], "Fix the totals"),
        ([{"type": "ai-title", "aiTitle": ["odd"]}], "Fix the totals"),
    ],
)
def test_a_transcript_names_its_session(tmp_path: Path, lines: list[dict[str, Any]], title: str) -> None:
    for order in ([*lines, asked_for("Fix the totals")], [asked_for("Fix the totals"), *lines]):
        brought(written(tmp_path, "one", *order))
        assert titles.load_session_title(session("one").pk) == title
        SessionTitle.objects.all().delete()


def test_a_title_that_comes_later_is_brought_with_nothing_else(tmp_path: Path) -> None:
    place = written(tmp_path, "one", asked_for("Fix the totals"))
    brought(place)
    written(tmp_path, "one", asked_for("Fix the totals"), AI)
    brought(place, "--dry-run")
    assert not SessionTitle.objects.exists()
    brought(place)
    assert titles.load_session_title(session("one").pk) == "Rounding of orders"
    assert SessionTitle.objects.get().source == "agent"


def test_a_title_without_a_session_makes_none(tmp_path: Path) -> None:
    brought(written(tmp_path, "one", AI))
    assert not Session.objects.exists()


def test_what_the_editor_adds_to_a_prompt_is_not_the_persons(tmp_path: Path) -> None:
    """As Claude Code writes it in an editor: each addition is a block of its own before the prompt."""
    line = asked_for("")
    line["message"]["content"] = [
        {"type": "text", "text": "<ide_opened_file>The user opened /srv/a.py in the IDE.</ide_opened_file>"},
        {"type": "text", "text": "<system-reminder>\nUse the todo list.\n</system-reminder>\n"},
        {"type": "text", "text": "Explain <ide_x> to me"},
        {"type": "text", "text": "and be brief"},
    ]
    brought(written(tmp_path, "one", line))
    assert [text.split(">")[0] for text in said("one", "system")] == ["<ide_opened_file", "<system-reminder"]
    assert said("one", "user") == ["Explain <ide_x> to me", "and be brief"]
