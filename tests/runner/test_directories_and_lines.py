"""Tests of the directory that a runner binds a session to, and of the lines of files that it hands to agents."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from coordinator.runner import files
from coordinator.runner.directories import AllowedDirectories
from coordinator.runs.offers import describe_missing_offer
from tests.runner.driving import runner_here
from tests.runner.small_coordinator import SmallCoordinator

pytestmark = pytest.mark.one_engine


def make_repository(folder: Path) -> None:
    (folder / "a.txt").write_text("a\n")
    author = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run(
            ["git", *words],
            cwd=folder,
            check=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **author},
        )


def test_a_session_in_a_work_tree_is_bound_to_the_directory_in_which_its_runner_may_work(
    coordinator: SmallCoordinator, work: Path
) -> None:
    make_repository(work)
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "hello", worktree=True)
        _, what, _ = coordinator.report("r")
        assert what == "completed"
        bound = coordinator.bound["s"]["project_dir"]
        assert coordinator.kinds("s", "signalbox/agent")[0]["worktree"] != str(work)
        # This is what the server makes the project_dir of the session's next run, and asks of its offers.
        assert describe_missing_offer(coordinator.registered["offers"], None, bound) == ""


def test_lines_of_a_file_are_those_that_editors_count(tmp_path: Path) -> None:
    path = tmp_path / "gnu.c"
    path.write_text("one\n\f\ntwo \x0b three\nfour\u2028five\nsix\n", encoding="utf-8")
    answer = files.read_text_file(
        AllowedDirectories([str(tmp_path)]), {"path": str(path), "line": 5, "limit": 1}
    )
    assert answer == {"content": "six\n"}
