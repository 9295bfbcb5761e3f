"""Results are cut to their limit whatever their shape, and what was cut off can be put together again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from coordinator.mcp.gateway.call_limits import CallLimits
from coordinator.mcp.gateway.limited_results import (
    MAX_STORED_CHARACTERS,
    build_limited_result,
    build_stored_result_page,
    parse_result_uri_or_none,
)

LIMIT = 4_096
LONG = "".join(f'"{number}"\n\x01ü' for number in range(3_000))


def cut(result: dict[str, Any], **limits: Any) -> tuple[dict[str, Any], str | None, int]:
    raw = msgspec.json.encode({"jsonrpc": "2.0", "id": 7, "result": result})
    limited = build_limited_result(raw, CallLimits(result_bytes=LIMIT, **limits), "abc")
    return msgspec.json.decode(limited.response)["result"], limited.rest, len(limited.response)


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": LONG}]},
        {
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "data": "A" * 9_000, "mimeType": "image/png"},
            ]
        },
        {"content": [{"type": "resource", "resource": {"uri": "x://y", "text": LONG}}]},
        {"content": [{"type": "text", "text": "x" * 700} for _ in range(40)]},
        {"content": ["x" * 9_000]},
        {"content": [{"type": "text", "text": LONG}], "structuredContent": {"result": LONG}},
        {"content": [{"type": "text", "text": "a"}], "structuredContent": {"rows": list(range(5_000))}},
        {"content": [{"type": "text", "text": "a"}], "structuredContent": {"deep": {"text": LONG}}},
        {"contents": [{"uri": "x://y", "text": LONG}]},
        {"contents": [{"uri": "x://y", "blob": "A" * 9_000}]},
        {"messages": [{"role": "user", "content": {"type": "text", "text": LONG}}]},
        {"taskId": "t", "status": "completed", "result": {"content": [{"type": "text", "text": LONG}]}},
        {"content": [{"type": "text", "text": LONG}], "_meta": {"x": "y" * 9_000}},
    ],
)
def test_every_long_result_is_cut_to_its_limit(result: dict[str, Any]) -> None:
    shown, rest, size = cut(result)
    assert size <= LIMIT
    assert rest
    assert "signalbox://results/abc/0" in str(shown)


def test_a_text_and_its_rest_are_the_whole() -> None:
    shown, rest, _ = cut({"content": [{"type": "text", "text": LONG}], "structuredContent": {"result": LONG}})
    assert shown["content"][0]["text"] + (rest or "") == LONG
    assert LONG.startswith(shown["structuredContent"]["result"])
    assert "isError" not in shown


def test_structured_content_that_cannot_be_shortened_is_left_out_and_says_that_the_tool_ran() -> None:
    rows = list(range(5_000))
    shown, rest, _ = cut({"content": [{"type": "text", "text": "a"}], "structuredContent": {"rows": rows}})
    assert "structuredContent" not in shown
    assert shown["isError"] is True
    assert "The tool ran" in str(shown)
    assert msgspec.json.decode(rest or "")["rows"] == rows


def test_short_results_and_errors_pass_as_the_bytes_that_came() -> None:
    for raw in (
        b'{"jsonrpc":"2.0",  "id":1,"result":{"content":[]}}',
        b'{"jsonrpc":"2.0", "id":1,"error":{"code":1,"message":"no"}}',
        b"[1]" + b" " * 9_000,
        b"{" + b"x" * 9_000,
    ):
        limited = build_limited_result(raw, CallLimits(result_bytes=LIMIT, masks_secrets=True), "abc")
        assert limited.response is raw
        assert limited.rest is None


def test_no_more_of_a_rest_is_kept_than_its_limit() -> None:
    shown, rest, _ = cut({"content": [{"type": "text", "text": "x" * (MAX_STORED_CHARACTERS + 50_000)}]})
    assert len(rest or "") == MAX_STORED_CHARACTERS
    assert "were left out" in str(shown)


def test_parts_lead_to_one_another_and_keep_the_limit() -> None:
    text, offset = "", 0
    while True:
        contents = build_stored_result_page("abc", LONG, offset, LIMIT)["contents"]
        assert len(msgspec.json.encode(contents)) <= LIMIT
        text += contents[0]["text"]
        if len(contents) == 1:
            break
        place = parse_result_uri_or_none(contents[1]["uri"])
        assert place is not None
        offset = place[1]
    assert text == LONG


@pytest.mark.parametrize(
    "uri",
    [None, 1, "", "file:///x", "signalbox://results/", "signalbox://results/a", "signalbox://results/a/-1",
     "signalbox://results/a b/0", "signalbox://results/a/٣", "signalbox://results/a/0/1"],
)  # fmt: skip
def test_other_addresses_name_no_stored_result(uri: Any) -> None:
    assert parse_result_uri_or_none(uri) is None
