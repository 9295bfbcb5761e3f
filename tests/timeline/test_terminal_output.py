"""Output is drawn as a terminal shows it, whatever is in it."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from django.template.loader import render_to_string

from dashboard.looks.parts import build_output_parts, disable_shortening_in_block
from dashboard.looks.shell import build_shell_outputs
from dashboard.text.terminal import (
    MAX_CHARACTERS,
    MAX_COLUMNS,
    has_terminal_codes,
    list_terminal_spans,
    render_text_to_terminal_screen,
)


def shown(text: str) -> str:
    return "".join(span.text for span in list_terminal_spans(render_text_to_terminal_screen(text).lines))


def looks(text: str) -> list[tuple[str, str]]:
    return [
        (span.text, span.classes) for span in list_terminal_spans(render_text_to_terminal_screen(text).lines)
    ]


def drawn(value: Any) -> str:
    return "".join(
        render_to_string("components/_part.html", {"part": part}) for part in build_shell_outputs(value)
    )


@pytest.mark.parametrize(
    ("text", "screen"),
    [
        ("10 %\r50 %\r100 %\ndone", "100 %\ndone"),
        ("a long line\rshort", "shortg line"),
        ("a long line\r\x1b[Kshort", "short"),
        ("\x1b[2K\rone\x1b[1G\x1b[0Ktwo", "two"),
        ("abc\b\bX", "aXc"),
        ("one\ntwo\nthree\x1b[2A\r\x1b[2KONE\x1b[2B\r", "ONE\ntwo\nthree"),
        ("gone\ngone\x1b[2J\x1b[Hhere", "here"),
        ("a\tb", "a       b"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("\x1b]0;title\x07text\x1b[?25l\x1b(B\x1b=\x00\x7f", "text"),
        ("\x1bPhostile\x1b\\text", "text"),
        ("\x1b[3Cx", "   x"),
        ("cut off \x1b[3", "cut off 3"),
        ("\x9b31mred", "red"),
    ],
)
def test_the_screen_is_what_is_left(text: str, screen: str) -> None:
    assert shown(text) == screen


@pytest.mark.parametrize(
    ("codes", "classes"),
    [
        ("31", "term-red"),
        ("1;32", "term-bold term-green"),
        ("91;44", "term-on-blue"),
        ("38;5;196", "term-bright-red"),
        ("38;5;10", "term-bright-green"),
        ("48;2;0;0;130", "term-on-blue"),
        ("38;5;244", "term-white"),
        ("4;31;0;3", "term-italic"),
        ("1;22;31;39", ""),
        ("38", "term-white"),
        ("999", ""),
        ("", ""),
    ],
)
def test_colours_and_styles_are_classes(codes: str, classes: str) -> None:
    assert looks(f"\x1b[{codes}mx") == [("x", classes)]


def test_links_lead_to_the_web_alone() -> None:
    spans = list_terminal_spans(
        render_text_to_terminal_screen(
            "\x1b]8;;https://example.org/a\x1b\\yes\x1b]8;;\x07\x1b]8;;javascript:alert(1)\x07no"
        ).lines
    )
    assert [(span.text, span.link) for span in spans] == [("yes", "https://example.org/a"), ("no", "")]
    page = drawn('\x1b]8;;https://example.org/"onmouseover=x\x1b\\yes\x1b]8;;\x07')
    assert 'href="https://example.org/&quot;onmouseover=x"' in page
    assert 'rel="noopener noreferrer nofollow"' in page


def test_everything_is_escaped_and_only_known_classes_are_drawn() -> None:
    page = drawn({"stdout": "\x1b[31m<script>alert(1)</script>\x1b[0m & \r\n", "stderr": "\x1b[1mbad\x1b[m"})
    assert '<span class="term-red">&lt;script&gt;alert(1)&lt;/script&gt;</span> &amp; ' in page
    assert '<span class="term-bold">bad</span>' in page
    assert "\x1b" not in page


def test_a_text_without_codes_is_drawn_as_before() -> None:
    assert not has_terminal_codes("one\r\ntwo\n\ttabs")
    (part,) = build_output_parts("one\r\ntwo")
    assert (part.kind, part.value, part.terminal) == ("text", "one\r\ntwo", ())


def test_of_a_long_progress_line_the_last_frame_is_drawn_and_of_many_lines_the_first() -> None:
    (part,) = build_output_parts("".join(f"\r{number} %" for number in range(20_000)))
    assert (part.value, part.cut) == ("19999 %", False)
    many = "".join(f"\x1b[32mline {number}\x1b[0m\n" for number in range(100))
    (part,) = build_output_parts(many)
    assert part.cut
    assert part.value.endswith("line 39")
    with disable_shortening_in_block():
        (part,) = build_output_parts(many)
    assert not part.cut
    assert part.value.endswith("line 99\n")


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2000Cx\n" * 50_000,
        "\x1b]" * 200_000,
        "\x1b[" + "9" * 400_000,
        "\x1b]8;;" + "a" * 400_000,
        "\x1b[99999A\x1b[99999B" * 20_000,
        "x" * 400_000,
        "\n" * 400_000,
        "\x1b[31m" * 80_000,
        "a\x1b[1000Cb\b\x1b[1K" * 20_000,
        "\x1bP" + "\x1b" * 400_000,
    ],
)
def test_hostile_texts_are_drawn_in_bounds(text: str) -> None:
    began = time.process_time()
    screen = render_text_to_terminal_screen(text)
    spans = list_terminal_spans(screen.lines)
    assert max(map(len, screen.lines)) <= MAX_COLUMNS
    assert sum(len(span.text) for span in spans) <= MAX_CHARACTERS + 400_000
    assert time.process_time() - began < 5


def test_any_bytes_are_drawn() -> None:
    source = random.Random(7)
    alphabet = "ab\x1b\x1b\x1b[[]0;18mKJABCDGHP\\\x07\x9b\r\n\b\t\u202e\x00"
    for _ in range(2_000):
        text = "".join(source.choice(alphabet) for _ in range(source.randrange(80)))
        assert not {"\x1b", "\r", "\x9b", "\x00"} & set(shown(text))
