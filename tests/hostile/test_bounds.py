"""Text that is made to be slow: what reads it takes time in proportion to its length, and only so much of it."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.dialects import claude_code
from coordinator.edge.http.bodies import decompress_gzip
from coordinator.errors import RequestTooLarge
from dashboard.text import markdown

LENGTH = 100_000
BOMBS = {
    "line breaks": "\n" * LENGTH,
    "blanks": "a\n" + " " * LENGTH + "b",
    "quotes in quotes": (">" * 200 + " a\n") * (LENGTH // 203),
    "open brackets": "[" * LENGTH,
    "open pictures": "![" * (LENGTH // 2),
    "open links": "[a](" * (LENGTH // 4),
    "stars": "*a " * (LENGTH // 3),
    "runs of backticks": "".join("`" * i + " " for i in range(440)),
    "a wide table": "|a" * 5_000 + "\n" + "|-" * 5_000 + "\n" + "|b\n" * 5_000,
    "references": "\n".join(f"[r{i}]: /x" for i in range(3_000)) + "\n" + "[r1]" * 10_000,
    "lists in lists": "".join("  " * i + "- a\n" for i in range(300)),
    "tags": "<a " * (LENGTH // 3),
    "code that never ends": "```python\n" + '"""' * (LENGTH // 3),
}


def took(work: Callable[[], Any]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_no_markdown_holds_a_worker_for_long(text: str) -> None:
    assert took(lambda: markdown.render_markdown(text)) < 2


def test_of_an_endless_message_only_the_beginning_is_drawn() -> None:
    assert took(lambda: markdown.render_markdown("*a* " * 5_000_000)) < 6


OPENED = {
    "opened": "<command-name>" * 20_000,
    "closed first": "</command-name>" + "<command-name>" * 20_000,
    "line breaks": "\n" * 300_000,
    "errors opened": "<tool_use_error>" * 20_000,
}


@pytest.mark.parametrize("text", OPENED.values(), ids=OPENED)
def test_tags_that_are_never_closed_are_read_once(text: str) -> None:
    for tag in ("command-name", "tool_use_error", "bash-input"):
        assert took(lambda tag=tag: claude_code.split_text_at_xml_tag(text, tag)) < 0.1


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(bytes(100_000_000), 9)
    began = time.thread_time()
    with pytest.raises(RequestTooLarge):
        decompress_gzip(bomb, 1_000_000)
    assert time.thread_time() - began < 0.1


def test_a_bomb_of_many_members_is_refused_as_well() -> None:
    with pytest.raises(Exception, match="something follows"):
        decompress_gzip(gzip.compress(b"{}") * 1_000, 1_000_000)
