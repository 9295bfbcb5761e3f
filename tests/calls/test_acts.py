"""A call's headline: a verb, the one thing that it is about, and where."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.calls.call_headlines import LONGEST_SUBJECT, build_call_headline_parts

PATCH = (
    "*** Begin Patch\n*** Update File: a.py\n@@\n*** Add File: b.py\n+x\n*** Delete File: c.py\n*** End Patch"
)


@pytest.mark.parametrize(
    ("tool", "tool_input", "headline"),
    [
        ("Bash", {"command": "git push origin main"}, "Run git push origin main in shop"),
        ("Bash", {"command": "cd a\nmake\nmake test"}, "Run cd a and 2 more lines in shop"),
        ("Bash", {"command": "ls", "cwd": "/srv/other"}, "Run ls in other"),
        ("exec_command", {"cmd": ["ls", "a b"]}, "Run ls 'a b' in shop"),
        (
            "Edit",
            {"file_path": "/srv/shop/a.py", "old_string": "a", "new_string": "b"},
            "Edit /srv/shop/a.py",
        ),
        ("Write", {"file_path": "a.py", "content": "x"}, "Write a.py"),
        ("apply_patch", {"input": PATCH}, "Edit 3 files"),
        ("Delete", {"path": "/srv/shop/a.py"}, "Delete /srv/shop/a.py"),
        ("Read", {"file_path": "a.py"}, "Read a.py"),
        ("Grep", {"pattern": "storm", "path": "src"}, "Search for storm"),
        ("Glob", {"pattern": "**/*.py"}, "Find files named **/*.py"),
        ("LS", {}, "List ."),
        ("WebFetch", {"url": "https://example.org/a?b", "prompt": "What?"}, "Fetch example.org"),
        ("WebFetch", {"url": "no address"}, "Fetch no address"),
        ("WebSearch", {"query": "django orm"}, "Search the web for django orm"),
        ("mcp__github__add_comment", {"repo": "a"}, "Call add_comment of github"),
        ("Deploy", {"to": "here"}, "Use Deploy"),
        ("Deploy", {"command": "make"}, "Run make in shop with Deploy"),
    ],
)
def test_a_headline_says_what_the_call_does(tool: str, tool_input: Any, headline: str) -> None:
    assert build_call_headline_parts(tool, tool_input, "/srv/shop").text == headline


@pytest.mark.parametrize(
    "tool", ["Bash", "Edit", "WebFetch", "Glob", "AskUserQuestion", "mcp__", "", "Other"]
)
@pytest.mark.parametrize("tool_input", [None, 5, "text", [1], {}, {"command": 5}, {"url": [{}]}, {"": ""}])
def test_a_headline_is_made_of_whatever_a_row_holds(tool: str, tool_input: Any) -> None:
    assert build_call_headline_parts(tool, tool_input).text


def test_a_subject_counts_as_the_whole_value_only_to_the_letter() -> None:
    assert build_call_headline_parts("Bash", {"command": "ls -l"}).whole_field == "command"
    for command in (
        "ls\nrm x",
        "ls  -l",
        " ls",
        "ls\t-l",
        "ls\u2028rm x",
        "ls\n",
        "x" * (LONGEST_SUBJECT + 1),
    ):
        assert build_call_headline_parts("Bash", {"command": command}).whole_field == "", repr(command)
    assert build_call_headline_parts("Write", {"file_path": "a", "content": "b"}).whole_field == "file_path"
    assert build_call_headline_parts("Write", {"file_path": "a\nb", "content": "b"}).whole_field == ""
    assert build_call_headline_parts("Grep", {"pattern": "a  b"}).whole_field == ""
    assert build_call_headline_parts("Bash", {"command": ["ls", "-l"]}).whole_field == ""


def test_a_long_subject_is_cut_and_says_so() -> None:
    subject = build_call_headline_parts("Bash", {"command": "echo " + "x" * 1000}).subject
    assert len(subject) == LONGEST_SUBJECT
    assert subject.endswith("…")
