"""Texts that are made to be slow to draw: they are shown plain, and no thread that answers pages works on them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.utils.html import strip_tags

from coordinator.sessions.timeline import StoredValue
from dashboard.looks import build_call_display
from dashboard.looks.inputs import build_exact_input_parts_for_approver
from dashboard.looks.parts import disable_shortening_in_block
from dashboard.rendering import rendering_cache
from dashboard.rendering.allowance import RenderingAllowance
from dashboard.text import diffs, json_text, markdown

OLD, NEW = "a\n" * 1500, "a\nb\n" * 750
FENCES = {
    "autoit": "x = 1" + "\n" * 6_000 + "y\n",
    "diff": "Index: " * 2_000,
    "c": "a " * 3_000 + "\n" + "a(" * 3_000,
    "csharp": "a." * 6_000,
    "java": "a<" * 6_000,
}


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering_cache, "_answers", rendering_cache.RenderingCache())


def own_seconds(work: Callable[[], Any]) -> float:
    """Return the processor time of this thread: the child's is bounded by its limits."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def test_a_diff_bomb_is_shown_as_before_and_after() -> None:
    parts: list[Any] = []
    bomb = {"file_path": "/x/a.txt", "old_string": OLD, "new_string": NEW}
    assert own_seconds(lambda: parts.extend(build_exact_input_parts_for_approver(bomb))) < 1
    texts = [part.value for part in parts if part.kind == "text"]
    assert texts == [OLD, NEW]


def test_a_diff_that_takes_too_long_is_given_up() -> None:
    before, after = ["a"] * 990, ["a", "b"] * 495
    assert own_seconds(lambda: diffs.line_diff_opcodes_or_none(before, after)) < 1
    with pytest.raises(rendering_cache.RenderingTooExpensive):
        rendering_cache.render_in_sandbox("diff", json.dumps([["a"] * 1500, ["a", "b"] * 750]).encode())


def test_a_diff_bomb_in_a_timeline_shows_all_lines() -> None:
    stored = StoredValue({"file_path": "/a", "old_string": OLD, "new_string": NEW}, 0)
    look = build_call_display("Edit", stored, None, None)
    assert (look.added, look.removed) == (1500, 1500)


@pytest.mark.parametrize("language", FENCES)
def test_code_that_is_slow_to_colour_holds_no_thread(language: str) -> None:
    drawn: list[markdown.RenderedHtml] = []
    code = FENCES[language]
    assert own_seconds(lambda: drawn.append(markdown.highlight_code(code, language=language))) < 1
    assert drawn[0].note != "" or "<span" in drawn[0]
    assert unescape(strip_tags(drawn[0])).split() == code.split()


def test_code_that_takes_too_long_to_colour_is_plain_and_says_so() -> None:
    drawn = markdown.highlight_code(FENCES["autoit"], language="autoit")
    assert "<span" not in drawn
    assert drawn.note == markdown.TOO_SLOW


@pytest.mark.parametrize("language", ["cobol", "fortran", "lasso", "php", "openedge", "haskell"])
def test_code_of_any_language_is_coloured_though_no_file_can_be_opened(language: str) -> None:
    assert "<span" in markdown.highlight_code('if (x == 1) { print "y" }\n', language=language)


def test_one_slow_fence_leaves_the_rest_of_a_message_formatted() -> None:
    drawn = markdown.render_markdown(f"**before**\n\n```autoit\n{FENCES['autoit']}```\n\n*after*")
    assert "<strong>before</strong>" in drawn
    assert "<em>after</em>" in drawn
    assert "Shown as plain text: this code takes too long to colour." in drawn


def test_what_took_too_long_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    markdown.highlight_code(FENCES["autoit"], language="autoit")
    monkeypatch.setattr(
        rendering_cache._sandbox, "submit_sandbox_job", lambda *_, **__: pytest.fail("asked again")
    )
    assert markdown.highlight_code(FENCES["autoit"], language="autoit").note == markdown.TOO_SLOW


def test_a_page_waits_no_longer_than_its_allowance_and_shows_the_rest_plain() -> None:
    markdown.render_markdown("**warm**")
    with RenderingAllowance(0).share_allowance_in_block():
        drawn = [markdown.render_markdown(f"**text {number}**") for number in range(3)]
    assert [str(one) for one in drawn] == [f"<p>**text {number}**</p>" for number in range(3)]
    assert drawn[0].note == markdown.NOT_YET


def test_what_was_late_for_one_page_is_there_for_the_next() -> None:
    with RenderingAllowance(0).share_allowance_in_block():
        assert markdown.render_markdown("**late**").note
    assert markdown.render_markdown("**late**") == "<p><strong>late</strong></p>\n"


def test_texts_are_plain_while_the_sandbox_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering_cache._sandbox, "module", "dashboard.rendering.missing")
    rendering_cache._sandbox.close()
    try:
        assert markdown.render_markdown("**x** <b>") == "<p>**x** &lt;b&gt;</p>"
    finally:
        monkeypatch.undo()
        rendering_cache._sandbox._resting_until = 0.0


LARGE: dict[str, Any] = {
    "many small values": [[]] * 600_000,
    "many fields": {str(number): number for number in range(200_000)},
    "long texts": ["x" * 100_000] * 20,
}


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
def test_only_the_beginning_of_a_large_value_is_written(value: Any) -> None:
    for name in ("mcp__a__b", "TodoWrite", "AskUserQuestion", "unknown"):
        look = []
        stored = StoredValue({"todos": value, "questions": value}, 0)
        assert (
            own_seconds(
                lambda name=name, stored=stored, look=look: look.append(
                    build_call_display(name, stored, stored, None)
                )
            )
            < 0.5
        )
        assert sum(len(str(part.value)) for part in look[0].inputs) < 20_000
        assert any(part.cut for part in look[0].inputs)


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
def test_a_whole_large_value_is_written_in_bounded_time(value: Any) -> None:
    with disable_shortening_in_block():
        assert (
            own_seconds(lambda: build_call_display("unknown", StoredValue({"a": value}, 0), None, None)) < 3
        )
    assert own_seconds(lambda: build_exact_input_parts_for_approver({"a": value})) < 3
    assert json.loads(json_text.format_json(value)) == value


def test_a_value_nested_too_deep_to_indent_is_written_all_the_same() -> None:
    value: Any = "innermost"
    for _ in range(300):
        value = [value]
    assert "innermost" in json_text.format_json(value)
    assert json_text.TOO_DEEP in json_text.format_json_beginning_and_completeness(value)[0]


def test_a_card_of_very_many_fields_or_edits_shows_them_as_one_text() -> None:
    edits = [{"old_string": OLD, "new_string": NEW}] * 101
    for given in ({"edits": edits}, {str(number): number for number in range(5_000)}):
        parts = build_exact_input_parts_for_approver(given)
        assert len(parts) == 1
        assert json.loads(parts[0].value) in (edits, given)
