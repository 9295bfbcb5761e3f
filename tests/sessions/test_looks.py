"""How tool calls look: what they were for, what came of them, nothing cut without saying so."""

from __future__ import annotations

import pytest

from coordinator.timeline import Stored
from dashboard import markdown
from dashboard.looks import look_of
from dashboard.looks.files import diff


def look(tool, given, came=None, error=None):
    return look_of(tool, Stored(given, 0), None if came is None else Stored(came, 0), error)


@pytest.mark.parametrize(
    ("tool", "given", "came", "title", "note"),
    [
        ("Bash", {"command": "make", "description": "Build"}, {"stdout": "one line"}, "Build", "one line"),
        ("Bash", {"command": "make"}, {"stdout": "a\nb", "stderr": "c"}, "make", "3 lines"),
        ("bash", {"command": "make"}, {"stdout": "", "interrupted": True}, "make", "interrupted"),
        ("Read", {"file_path": "/a.py", "offset": 5, "limit": 10}, "x", "/a.py", "lines 5 to 14"),
        ("read_file", {"path": "/a.py"}, "x\ny", "/a.py", "2 lines"),
        ("Grep", {"pattern": "x", "path": "src"}, {"filenames": ["a", "b"]}, "x in src", "2 files"),
        ("Grep", {"pattern": "x"}, {"mode": "content", "filenames": [], "content": "a:1:x\nb:2:x"}, "x", "2 lines"),
        ("WebFetch", {"url": "https://x.example/"}, {"code": 200, "codeText": "OK", "result": "r"},
         "https://x.example/", "200 OK"),
        ("Task", {"prompt": "p", "description": "d"}, {"totalToolUseCount": 3, "content": []}, "d", "3 calls"),
        ("TodoWrite", {"todos": [{"content": "a", "status": "in_progress"}]}, None, "a", "0 of 1 done"),
        ("mcp__github__create_issue", {"title": "Broken"}, [{"type": "text", "text": "#1"}], "Broken", "#1"),
        ("SomethingNew", {"count": 3, "name": "n"}, None, "n", ""),
    ],
)  # fmt: skip
def test_a_call_at_a_glance(tool, given, came, title, note):
    seen = look(tool, given, came)
    assert (seen.title, seen.note) == (title, note)


def test_an_error_comes_first():
    seen = look("Bash", {"command": "x"}, {"stdout": "out"}, error="It broke\nbadly")
    assert seen.note == "It broke"
    assert [part.kind for part in seen.outputs] == ["error", "text"]


def test_hits_in_files_are_shown_without_what_asked_for_them():
    seen = look("Grep", {"pattern": "x", "output_mode": "content"}, {"mode": "content", "content": "a:1:x"})
    assert (seen.inputs, [part.value for part in seen.outputs]) == ([], ["a:1:x"])


def test_a_picture_that_was_read_is_a_picture():
    came = {"type": "image", "file": {"base64": "iVBORw0KGgo" * 100, "type": "image/png"}}
    assert [part.kind for part in look("Read", {"file_path": "/a.png"}, came).outputs] == ["image"]
    assert "iVBORw0KGgo" not in repr(look("Odd", {}, {"file": {"base64": "iVBORw0KGgo" * 100}}).outputs)


def test_an_edit_is_a_diff():
    seen = look("Edit", {"file_path": "/a", "old_string": "a\nb\nc", "new_string": "a\nB\nc"})
    assert (seen.added, seen.removed) == (1, 1)
    assert seen.inputs[0].value == [(" ", "a"), ("-", "b"), ("+", "B"), (" ", "c")]


def test_distant_changes_are_told_apart():
    old = [str(n) for n in range(40)]
    new = ["first", *old[1:-1], "last"]
    assert ("@", "…") in list(diff("\n".join(old), "\n".join(new)))


def test_a_long_command_says_that_it_is_cut():
    (part,) = look("Bash", {"command": "echo x\n" * 200}).inputs
    assert part.cut
    assert not look("Bash", {"command": "echo x"}).inputs[0].cut


def test_an_mcp_tool_names_its_server():
    seen = look("mcp__plugin_a_b__do_it", {})
    assert (seen.server, seen.name) == ("plugin_a_b", "do_it")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain words", "<p>plain words</p>"),
        ("two\n\nparts & more", "<p>two</p>\n<p>parts &amp; more</p>"),
        ("one <b> tag", "<p>one &lt;b&gt; tag</p>"),
        (
            "```python\nx = 1\n```",
            '<pre tabindex="0"><code class="language-python"><span class="hl-n">x</span>',
        ),
        ("[a](https://x.example)", 'rel="noopener noreferrer nofollow"'),
        ("|a|b|\n|--|-:|\n|1|2|", '<td align="right">2</td>'),
    ],
)
def test_markdown(text, html):
    assert html in markdown.render(text)


@pytest.mark.parametrize(
    "text", ["[x](javascript:x)", "<img src=x>", "![x](https://x.example/y.png)", "<script>", "<p style=x>"]
)
def test_markdown_makes_nothing_that_acts(text):
    html = str(markdown.render(text))
    for bad in ("<img", "<script", 'javascript:x"', "<p style"):
        assert bad not in html


def test_unknown_languages_and_huge_code_are_shown_plain():
    assert markdown.colour("<x>", language="klingon") == "&lt;x&gt;"
    assert "<span" not in markdown.colour("x = 1\n" * 9000, language="python")


def test_only_short_texts_are_kept_in_memory() -> None:
    def kept() -> int:
        return markdown._render.cache_info().currsize + markdown._coloured.cache_info().currsize

    before = kept()
    markdown.colour("kept not, no lexer", language="klingon")
    markdown.colour("y = 1\n" * 9000, language="python")
    markdown.render("**long** " * 9000)
    assert kept() == before
    markdown.render("**short, and new**")
    assert kept() == before + 1
