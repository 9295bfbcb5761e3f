"""A path behind a symbolic link is judged by both names: restrictions hold for either, permissions need both."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.calls.paths import PathLinks, parse_reported_symlinks_or_none
from coordinator.dialects.claude_code import DIALECT
from coordinator.dialects.hooks import AgentHook
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, DecisionRule

CWD = "/home/dev/shop"
OUT = {"links": [[f"{CWD}/link", "/home/dev/.ssh"]], "complete": True}


def text_of(tool: str, tool_input: Any, links: Any = OUT) -> str:
    fields = {"cwd": CWD, "tool_name": tool, "tool_input": tool_input, "signalbox_links": links}
    return DIALECT.call_subject(AgentHook("PreToolUse", "s", fields, "2026-11-27T00:00:00+00:00"))


def matches(rule: DecisionRule, tool: str, tool_input: Any, links: Any = OUT) -> bool:
    return rule.matches_call_text(text_of(tool, tool_input, links), tool)


READ = ("Read", {"file_path": f"{CWD}/link/id_rsa"})
PLAIN = {"file_path": f"{CWD}/link/a.txt"}
CAT = ("Bash", {"command": "cat link/id_rsa"})
CD = ("Bash", {"command": "cd link && cat id_rsa"})


@pytest.mark.parametrize("call", [READ, CAT, CD], ids=["Read", "cat", "cd"])
def test_a_denial_of_the_real_path_holds(call: tuple[str, Any]) -> None:
    assert matches(DecisionRule(1, "*", DENY, touches="~/.ssh"), *call)
    assert matches(DecisionRule(1, "*", ASK, touches="outside"), *call)
    assert not matches(DecisionRule(1, "*", DENY, touches="~/.ssh"), *call, links=None)


@pytest.mark.parametrize("call", [READ, CAT], ids=["Read", "cat"])
def test_a_denial_of_the_path_as_it_is_written_holds_too(call: tuple[str, Any]) -> None:
    assert matches(DecisionRule(1, "*", DENY, touches="link"), *call)


def test_a_permission_needs_both_paths() -> None:
    inside = DecisionRule(1, "Read", ALLOW, touches="reads inside")
    assert matches(inside, "Read", PLAIN, links=None)
    assert not matches(inside, "Read", PLAIN)
    within = {"links": [[f"{CWD}/link", f"{CWD}/real"]], "complete": True}
    assert matches(inside, "Read", PLAIN, links=within)


def test_a_working_directory_behind_a_link_stays_the_working_directory() -> None:
    moved = {"links": [[CWD, "/data/shop"]], "complete": True}
    inside = DecisionRule(1, "Read", ALLOW, touches="reads inside")
    assert matches(inside, "Read", {"file_path": f"{CWD}/a.py"}, links=moved)
    assert not matches(
        DecisionRule(1, "*", DENY, touches="outside"), "Read", {"file_path": "a.py"}, links=moved
    )


def test_patterns_look_at_both_paths() -> None:
    assert matches(DecisionRule(1, "Read", DENY, pattern=r"\.ssh/"), *READ)
    allowed = DecisionRule(1, "Read", ALLOW, pattern=f"{CWD}/.*")
    assert matches(allowed, *READ, links=None)
    assert not matches(allowed, *READ)


def test_a_patch_is_judged_by_the_real_paths_of_its_targets() -> None:
    patch = {"command": "*** Begin Patch\n*** Update File: link/config\n@@\n-a\n+b\n*** End Patch"}
    assert matches(DecisionRule(1, "*", DENY, touches="writes ~/.ssh"), "apply_patch", patch)


def test_where_not_all_links_are_known_a_part_of_the_call_cannot_be_read() -> None:
    some = {"links": [], "complete": False}
    assert matches(DecisionRule(1, "*", DENY, touches="~/.ssh"), *CAT, links=some)
    assert not matches(DecisionRule(1, "*", DENY, touches="~/.ssh", unreadable="ignore"), *CAT, links=some)
    assert not matches(DecisionRule(1, "*", ALLOW, runs="cat", touches="reads inside"), *CAT, links=some)


@pytest.mark.parametrize(
    "value",
    [7, [], {}, {"links": 7}, {"links": [["/a"]], "complete": True}, {"links": [["a", "/b"]], "complete": True},
     {"links": [["/a/../b", "/c"]], "complete": True}, {"links": [["/a", 7]], "complete": True},
     {"links": [["/a", "/" + "b" * 5000]], "complete": True}, {"links": [], "complete": "yes"}],
)  # fmt: skip
def test_links_that_cannot_be_read_are_incomplete(value: Any) -> None:
    links = parse_reported_symlinks_or_none(value)
    assert links is not None
    assert not links.is_complete


def test_the_longest_link_counts_and_names_that_only_begin_alike_do_not() -> None:
    links = parse_reported_symlinks_or_none({"links": [["/a/b", "/x"], ["/a/b/c", "/y"]], "complete": True})
    assert links == PathLinks((("/a/b/c", "/y"), ("/a/b", "/x")))
    paths = {"/a/b/c/d": "/y/d", "/a/b/d": "/x/d", "/a/bc": "/a/bc", "/a/b": "/x"}
    assert {path: links.real_path(path) for path in paths} == paths
    assert PathLinks((("/home/dev/link", "/etc"),)).real_path("~/link/passwd") == "/etc/passwd"
