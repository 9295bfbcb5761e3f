"""Lines of a pipe with a JSON-RPC message each, however they are cut, within a budget."""

from __future__ import annotations

import os

import pytest

from coordinator.client import message_lines
from coordinator.client.message_lines import LineBudgetExceeded, MessageLines, iterate_pipe_lines

pytestmark = pytest.mark.one_engine
MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_however_the_pipe_cuts_them(size: int) -> None:
    written = MARK + b'{"id":1}\n\n  \r\n{"id":"\xc3\xa4"}\r\n{"id":2}'
    lines = MessageLines()
    chunks = [written[at : at + size] for at in range(0, len(written), size)]
    assert [line for chunk in chunks for line in lines.feed_chunk_and_pop_lines(chunk)] == [
        b'{"id":1}',
        b'{"id":"\xc3\xa4"}\r',
    ]
    assert (lines.pop_unterminated_line(), lines.pop_unterminated_line()) == (b'{"id":2}', b"")


def test_a_mark_is_left_out_before_the_first_line_alone() -> None:
    lines = MessageLines()
    assert lines.feed_chunk_and_pop_lines(MARK + b"a\n" + MARK + b"b\n") == [b"a", MARK + b"b"]
    assert MessageLines().pop_unterminated_line() == b""
    marked = MessageLines()
    marked.feed_chunk_and_pop_lines(MARK + b"a")
    assert marked.pop_unterminated_line() == b"a"


@pytest.mark.parametrize(
    ("budget", "written", "words"),
    [
        ({}, b"x" * 101, "a line of more than 0 MB"),
        ({}, b"x" * 101 + b"\n", "a line of more than 0 MB"),
        ({"max_bytes": 20}, b"x\n" * 11, "more than 20 bytes"),
        ({"max_lines": 10}, b"\n" * 11, "more than 10 lines"),
    ],
)
def test_what_is_too_much_ends_the_reading(
    monkeypatch, budget: dict[str, int], written: bytes, words: str
) -> None:
    monkeypatch.setattr(message_lines, "MAX_LINE_BYTES", 100)
    lines = MessageLines(**budget)
    chunks = [written[at : at + 5] for at in range(0, len(written), 5)]
    with pytest.raises(LineBudgetExceeded, match=words):
        list(map(lines.feed_chunk_and_pop_lines, chunks))


def test_what_stays_below_its_budget_is_read(monkeypatch) -> None:
    monkeypatch.setattr(message_lines, "MAX_LINE_BYTES", 100)
    lines = MessageLines(max_bytes=202, max_lines=2)
    assert lines.feed_chunk_and_pop_lines((b"x" * 100 + b"\n") * 2) == [b"x" * 100] * 2


def test_a_pipe_is_read_line_by_line_as_it_is_written() -> None:
    output, own_end = os.pipe()
    with os.fdopen(output, "rb") as pipe:
        lines = iterate_pipe_lines(pipe)
        os.write(own_end, b"first\nsec")
        assert next(lines) == b"first"
        os.write(own_end, b"ond")
        os.close(own_end)
        assert list(lines) == [b"second"]
