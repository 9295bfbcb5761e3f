"""Transcripts count each request once, with the last figures of each, whatever is repeated in them."""

from __future__ import annotations

import base64
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from coordinator.importing import transcripts
from coordinator.models import Event, ModelRequestUsage, Session, UsageDay
from coordinator.usage.reading import (
    TokenUsage,
    load_session_usage_by_model,
    load_usage_by_subagent,
    sum_usage_rows,
)

pytestmark = pytest.mark.django_db

DATA = Path(__file__).parents[1] / "data" / "usage"
PARENT, CHILD, FORK = (f"01970000-0000-7000-8000-0000000000{end}" for end in ("01", "c1", "f1"))


def bring(program: str, place: Path) -> str:
    out = StringIO()
    call_command("import_transcripts", program, str(place), "--host", "laptop", stdout=out)
    return out.getvalue()


def total() -> TokenUsage:
    return sum_usage_rows(ModelRequestUsage.objects.all())


def figures(usage: TokenUsage) -> tuple[int, int, int]:
    return usage.input, usage.output, usage.cache_read


def days() -> tuple[int, float]:
    rows = UsageDay.objects.exclude(model="")
    tokens = sum(
        row.input_tokens + row.output_tokens + row.cache_read_tokens + row.cache_write_tokens for row in rows
    )
    return tokens, round(sum(row.cost or 0 for row in rows), 6)


def test_a_codex_fork_and_a_subagent_that_repeat_their_parent_count_what_is_their_own() -> None:
    bring("codex", DATA / "codex_replay")
    assert figures(total()) == (3200, 310, 1000)
    parent, fork = (Session.objects.get(executor_session_id=name) for name in (PARENT, FORK))
    by_model = {one.pk: load_session_usage_by_model(one.pk)["gpt-5.2-codex"] for one in (parent, fork)}
    assert figures(by_model[parent.pk]) == (2600, 250, 1000)  # the sub-agent's are its session's
    assert figures(by_model[fork.pk]) == (600, 60, 0)
    assert figures(load_usage_by_subagent(parent.pk)[CHILD]) == (500, 50, 0)
    prompts = Event.objects.filter(event_type="message", role="user")
    assert [one.session_id for one in prompts] == [parent.pk]
    assert Session.objects.count() == 2


def test_importing_again_changes_nothing() -> None:
    bring("codex", DATA / "codex_replay")
    before = (list(ModelRequestUsage.objects.order_by("pk").values()), days())
    assert "imported  0 events" in bring("codex", DATA / "codex_replay")
    assert (list(ModelRequestUsage.objects.order_by("pk").values()), days()) == before


def test_a_codex_subagent_without_a_copy_keeps_its_own_first_turn(tmp_path: Path) -> None:
    lines = [
        {"type": "session_meta", "timestamp": "2026-05-01T10:02:00.000Z", "payload": {"id": CHILD, "source": {
            "subagent": {"thread_spawn": {"parent_thread_id": PARENT}}}}},
        {"type": "turn_context", "timestamp": "2026-05-01T10:02:00.010Z",
            "payload": {"turn_id": "t9", "model": "gpt-5"}},
        {"type": "response_item", "timestamp": "2026-05-01T10:02:00.011Z", "payload": {
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": "Count the files"}]}},
        {"type": "event_msg", "timestamp": "2026-05-01T10:02:04.000Z", "payload": {"type": "token_count", "info": {
            "total_token_usage": {"input_tokens": 70, "output_tokens": 5, "total_tokens": 75}}}},
    ]  # fmt: skip
    path = tmp_path / f"rollout-2026-05-01T10-02-00-{CHILD}.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    bring("codex", tmp_path)
    assert figures(total()) == (70, 5, 0)
    assert Event.objects.get(role="user").content[0]["text"] == "Count the files"
    assert Session.objects.get().executor_session_id == PARENT


def test_codex_rollouts_from_before_the_envelope_are_read() -> None:
    said = bring("codex", DATA / "codex_before_the_envelope")
    assert "left out" not in said
    kinds = Event.objects.exclude(event_type="transcript").order_by("id").values_list("event_type", "role")
    assert list(kinds) == [
        ("message", "user"), ("message", "assistant"), ("pre_tool", None), ("post_tool", None),
        ("message", "assistant"),
    ]  # fmt: skip


def test_the_last_figures_of_each_answer_count_though_answers_alternate() -> None:
    bring("claude-code", DATA / "claude_growing_answers")
    assert figures(total()) == (8, 490, 15178)
    assert ModelRequestUsage.objects.count() == 2
    assert total().cache_write_1h == 15178


def test_caches_of_an_hour_and_searches_have_their_prices_and_unknown_ones_are_listed() -> None:
    bring("claude-code", DATA / "claude_long_cache")
    costs = {row.model: row.cost for row in ModelRequestUsage.objects.all()}
    assert costs["claude-sonnet-4-5-20250929"] == pytest.approx(7.018)
    fast = ModelRequestUsage.objects.get(model="claude-opus-4-6")
    assert (fast.is_fast, fast.cost) == (True, None)  # the list has no price of it for fast requests
    assert total().unpriced_tokens == 200_000
    assert days() == (1_202_000, 7.018)


def claude_line(number: int, message_id: str, output: int, **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": output, "cache_read_input_tokens": 0}
    message = {"id": message_id, "role": "assistant", "model": "claude-haiku-4-5", "usage": usage}
    message |= {"content": [], "stop_reason": None} | more.pop("message", {})
    return {
        "type": "assistant", "uuid": f"u{number}", "sessionId": "c-1", "requestId": f"req_{message_id}",
        "timestamp": f"2026-09-01T10:00:{number:02}.000Z", "message": message,
    } | more  # fmt: skip


def write_lines(place: Path, *lines: dict[str, Any]) -> Path:
    path = place / "projects" / "-srv" / "c-1.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def test_two_subagents_of_an_older_version_whose_lines_alternate_count_in_full(tmp_path: Path) -> None:
    lines = [claude_line(n, f"m{n % 2}", 10 * (n + 1), isSidechain=True) for n in range(6)]
    write_lines(tmp_path, *lines)
    bring("claude-code", tmp_path)
    assert figures(total()) == (20, 50 + 60, 0)


def test_a_file_that_was_just_copied_keeps_its_last_request(tmp_path: Path) -> None:
    write_lines(tmp_path, claude_line(1, "m1", 7))  # its answer was never marked as finished
    bring("claude-code", tmp_path)
    assert total().output == 7


def test_an_answer_that_has_grown_since_the_last_import_has_its_last_figures(tmp_path: Path) -> None:
    write_lines(tmp_path, claude_line(1, "m1", 7))
    bring("claude-code", tmp_path)
    write_lines(
        tmp_path, claude_line(1, "m1", 7), claude_line(2, "m1", 90, message={"stop_reason": "end_turn"})
    )
    bring("claude-code", tmp_path)
    assert (ModelRequestUsage.objects.count(), figures(total())) == (1, (10, 90, 0))
    assert days() == (100, round(total().cost, 6))
    assert Event.objects.get(event_type="model_request").context.output_tokens == 90


def test_a_resumed_session_that_repeats_the_one_before_counts_what_is_new(tmp_path: Path) -> None:
    first, second = claude_line(1, "m1", 7), claude_line(2, "m2", 9)
    write_lines(tmp_path, first)
    (tmp_path / "projects" / "-srv" / "c-2.jsonl").write_text(
        "".join(json.dumps(one | {"sessionId": "c-2"}) + "\n" for one in (first, second))
    )
    bring("claude-code", tmp_path)
    assert figures(total()) == (20, 16, 0)


def test_subagents_in_progress_lines_are_counted(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "Task", "input": {"subagent_type": "Explore"}}
    inner = claude_line(
        2,
        "m2",
        30,
        message={
            "content": [
                {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {"file_path": "a.py"}}
            ],
            "stop_reason": "tool_use",
        },
    )
    result = {
        "type": "user",
        "uuid": "r2",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_2", "content": "text"}],
        },
    }
    progress = [
        {"type": "progress", "sessionId": "c-1", "uuid": f"p{n}", "timestamp": "2026-09-01T10:00:03.000Z",
         "parentToolUseID": "toolu_1", "data": {"type": "agent_progress", "agentId": "a1", "message": message}}
        for n, message in enumerate((inner, result))
    ]  # fmt: skip
    write_lines(
        tmp_path, claude_line(1, "m1", 7, message={"content": [call], "stop_reason": "tool_use"}), *progress
    )
    # The same once more in the sub-agent's own file.
    own = tmp_path / "projects" / "-srv" / "c-1" / "subagents" / "agent-a1.jsonl"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps(inner | {"agentId": "a1", "isSidechain": True}) + "\n")
    bring("claude-code", tmp_path)
    assert figures(total()) == (20, 37, 0)
    (session,) = Session.objects.all()
    assert figures(load_usage_by_subagent(session.pk)["Explore a1"]) == (10, 30, 0)
    calls = Event.objects.filter(event_type="pre_tool").order_by("id").values_list("tool_name", flat=True)
    assert list(calls) == ["Task", "Read"]
    assert Event.objects.filter(event_type="post_tool").count() == 1


def test_snapshots_of_one_gemini_session_lose_nothing(tmp_path: Path) -> None:
    def answer(calls: int, output: int) -> dict[str, Any]:
        return {"id": "m1", "type": "gemini", "timestamp": "2026-01-01T10:00:01.000Z", "content": "", "model":
            "gemini-2.5-pro", "tokens": {"input": 100, "output": output, "cached": 40, "thoughts": 3, "tool": 5,
            "total": 108 + output}, "toolCalls": [{"id": f"c{n}", "name": "read_file", "args": {}, "status": "success",
            "timestamp": "2026-01-01T10:00:02.000Z"} for n in range(calls)]}  # fmt: skip

    place = tmp_path / ".gemini" / "tmp" / "shop" / "chats"
    place.mkdir(parents=True)
    for number, message in enumerate((answer(2, 4), answer(5, 6), answer(9, 8))):
        head = {"sessionId": "0badcafe-0000-4000-8000-000000000022", "projectHash": "cd" * 32}
        (place / f"session-2026-01-01T10-0{number}-0badcafe.json").write_text(
            json.dumps(head | {"messages": [message]})
        )
    bring("gemini", tmp_path)
    assert Event.objects.filter(event_type="pre_tool").count() == 9
    assert figures(total()) == (65, 11, 40)  # what tools put in is beside the input
    row = ModelRequestUsage.objects.get()
    assert (row.reasoning_tokens, row.tool_tokens, row.provider) == (3, 5, "google")


def test_a_picture_of_24_mb_is_left_out_and_named_and_the_session_kept(tmp_path: Path) -> None:
    picture = base64.b64encode(bytes(18_000_000)).decode()
    source = {"type": "base64", "media_type": "image/png", "data": picture}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "image", "source": source}],
    }
    lines = [
        {"type": "user", "uuid": f"u{number}", "sessionId": "c-1", "timestamp": "2026-09-01T10:00:00.000Z",
         "message": {"role": "user", "content": content}}
        for number, content in enumerate(("before", [result], "after"))
    ]  # fmt: skip
    write_lines(tmp_path, *lines)
    assert "left out" not in bring("claude-code", tmp_path)
    assert Event.objects.filter(event_type="message", role="user").count() == 2
    kept = json.dumps(Event.objects.get(event_type="post_tool").tool_output)
    assert "(left out: 24,000,000 bytes)" in kept

    chats = tmp_path / ".gemini" / "tmp" / "shop" / "chats"
    chats.mkdir(parents=True)
    head = {"sessionId": "0badcafe-0000-4000-8000-000000000022", "projectHash": "cd" * 32}
    messages = [
        {"id": "m1", "timestamp": "2026-01-01T10:00:00.000Z", "type": "user", "content": [{"text": "hello"}]},
        {"id": "m2", "timestamp": "2026-01-01T10:00:01.000Z", "type": "gemini", "content": picture},
    ]
    (chats / "session-2026-01-01T10-00-0badcafe.json").write_text(json.dumps(head | {"messages": messages}))
    bring("gemini", tmp_path)
    session = Session.objects.get(executor_session_id=head["sessionId"])
    said = [one.content[0]["text"] for one in Event.objects.filter(session=session, event_type="message")]
    assert said == ["hello", " (left out: 24,000,000 bytes)"]


@pytest.mark.parametrize("size", range(1, 9))
def test_what_is_shortened_in_pieces_is_whole_json(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "LONGEST_TEXT", 12)
    plain = {"a\\": ['say "hi"', "x" * 40, "\\", '\\"'], "b": {"c": [1, 2.5, None]}}
    body = json.dumps(plain).encode()
    shortener = transcripts.TextShortener()
    for start in range(0, len(body), size):
        shortener.feed_json_chunk(body[start : start + size])
    found = json.loads(shortener.shortened_json_line() or b"")
    first, long, *others = found["a\\"]
    assert [first, *others] == ['say "hi"', "\\", '\\"']
    kept, left_out = re.fullmatch(r"(x*) \(left out: (\d+) bytes\)", long).groups()  # type: ignore[union-attr]
    assert len(kept) + int(left_out) == 40
    assert len(kept) <= 12
    assert found["b"] == plain["b"]


@pytest.mark.parametrize("size", [*range(1, 9), 1_000])
@pytest.mark.parametrize("longest", range(8, 20))
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_text_is_not_cut_within_a_character(
    size: int, longest: int, ascii_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs colour their output: before each colour there is an escape of six characters."""
    monkeypatch.setattr(transcripts, "LONGEST_TEXT", longest)
    plain = {
        "a": "\x1b[31mred\x1b[0m gr\u00fc\u00df \u20ac \\\\u001 " * 3,
        "b": "\\u",
        "c": ["\u00fc\u20ac" * 9],
    }
    body = json.dumps(plain, ensure_ascii=ascii_only).encode()
    shortener = transcripts.TextShortener()
    for start in range(0, len(body), size):
        shortener.feed_json_chunk(body[start : start + size])
    found = json.loads(shortener.shortened_json_line() or b"")
    assert found["b"] == plain["b"]
    kept, mark, _ = found["a"].partition(" (left out: ")
    assert mark
    assert str(plain["a"]).startswith(kept)
