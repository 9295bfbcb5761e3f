"""How tool calls look: what they were for, what came of them, nothing cut without saying so."""

from __future__ import annotations

import pytest

from coordinator.sessions.timeline import StoredValue
from dashboard.looks import build_call_display
from dashboard.looks.files import iterate_text_diff_lines
from dashboard.looks.inputs import build_exact_input_parts_for_approver
from dashboard.rendering import rendering_cache
from dashboard.text import markdown


def look(tool, given, came=None, error=None):
    return build_call_display(
        tool, StoredValue(given, 0), None if came is None else StoredValue(came, 0), error
    )


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
    assert ("@", "…") in list(iterate_text_diff_lines("\n".join(old), "\n".join(new)))


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
    assert html in markdown.render_markdown(text)


@pytest.mark.parametrize(
    "text", ["[x](javascript:x)", "<img src=x>", "![x](https://x.example/y.png)", "<script>", "<p style=x>"]
)
def test_markdown_makes_nothing_that_acts(text):
    html = str(markdown.render_markdown(text))
    for bad in ("<img", "<script", 'javascript:x"', "<p style"):
        assert bad not in html


def test_unknown_languages_and_huge_code_are_shown_plain():
    assert markdown.highlight_code("<x>", language="klingon") == "&lt;x&gt;"
    assert "<span" not in markdown.highlight_code("x = 1\n" * 9000, language="python")


def test_a_text_is_drawn_once_however_often_it_is_shown(monkeypatch) -> None:
    made = []
    submit = rendering_cache._sandbox.submit_sandbox_job
    monkeypatch.setattr(
        rendering_cache._sandbox, "submit_sandbox_job", lambda *a, **k: (made.append(a), submit(*a, **k))[1]
    )
    for _ in range(3):
        markdown.render_markdown("**short, and new**")
        markdown.highlight_code("kept not, no lexer", language="klingon")
    assert len(made) <= 2


def test_only_so_much_is_kept_in_memory(monkeypatch) -> None:
    monkeypatch.setattr(rendering_cache, "MAX_CACHED_BYTES", 10_000)
    for number in range(50):
        markdown.render_markdown(f"**text {number}** " + "x" * 900)
    assert rendering_cache._answers._bytes <= 10_000
    assert len(rendering_cache._answers._cached_answers) < 12


@pytest.mark.parametrize(
    ("tool", "given", "label"),
    [
        ("Bash", {"command": "make", "timeout": 5}, "Command"),
        ("shell", {"cmd": "make", "cwd": "/src"}, "Command"),
        ("Edit", {"file_path": "/a", "old_string": "x", "new_string": "y", "replace_all": True}, "Change"),
        ("str_replace", {"path": "/a", "old_str": "x", "new_str": "y"}, "Change"),
        ("MultiEdit", {"file_path": "/a", "edits": [{"old_string": "x", "new_string": "y"}]}, "Change"),
        ("Write", {"file_path": "/a", "content": "text"}, "Content"),
    ],
)
def test_a_row_and_a_card_draw_the_same_of_an_input(tool, given, label):
    row, card = look(tool, given).inputs, build_exact_input_parts_for_approver(given)
    assert (row[0].label, card[0].label) == (label, label)
    assert (row[0].value, row[0].exact) == (card[0].value, False)
    assert all(part.exact for part in card)


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Edit", {"file_path": "/a", "old_string": "x", "new_string": "y", "why": "a rename"}),
        ("NotebookEdit", {"notebook_path": "/a", "new_source": "1", "cell_id": "a rename"}),
        ("Bash", {"command": "ls", "script": "a rename"}),
        ("ExitPlanMode", {"plan": "Do it", "file": "a rename"}),
        ("apply_patch", {"patch": "+a", "why": "a rename"}),
    ],
)
def test_no_field_of_a_known_tool_is_left_out(tool, given):
    assert any("a rename" in part.drawn_texts for part in look(tool, given).inputs)
