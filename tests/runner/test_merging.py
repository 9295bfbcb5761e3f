"""What becomes one while it waits says what the two said; whatever else stays two."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.runner.merging import LONGEST_TEXT, merge_two_updates_or_none

pytestmark = pytest.mark.one_engine


def chunk(text: str, kind: str = "agent_message_chunk", **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **more}


def call(**more: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress", **more}


def test_pieces_of_one_message_become_one() -> None:
    assert merge_two_updates_or_none(chunk("a", messageId="m"), chunk("b", messageId="m")) == chunk(
        "ab", messageId="m"
    )
    longer = call(title="t", content=[1, 2])
    assert merge_two_updates_or_none(call(content=[1]), longer) == longer


@pytest.mark.parametrize(
    ("last", "update"),
    [
        (chunk("a", messageId="m"), chunk("b", messageId="n")),
        (chunk("a"), chunk("b", "agent_thought_chunk")),
        (chunk("a"), chunk("b" * LONGEST_TEXT)),
        (chunk("a"), {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x"}}),
        (call(content=[1], title="t"), call(content=[2])),
        (call(content=[1]), call(content=[2], status="completed")),
        (call(_meta={"terminal_output_delta": "a"}), call(_meta={"terminal_output_delta": "b"})),
        (call(content=[1]), {**call(content=[2]), "toolCallId": "d"}),
        (
            {"sessionUpdate": "tool_call", "toolCallId": "c"},
            {"sessionUpdate": "tool_call", "toolCallId": "c"},
        ),
    ],
)
def test_what_says_something_else_stays_two(last: dict[str, Any], update: dict[str, Any]) -> None:
    assert merge_two_updates_or_none(last, update) is None
