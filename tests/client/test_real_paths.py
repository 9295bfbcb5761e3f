"""`signalbox hook` finds the links on the way to a call's paths, and says when it did not look at all words."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.real_paths import FIELD, MAX_WORDS, build_hook_body_with_symlinks


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with links to a folder and to a file outside of it, and a plain file."""
    project, outside = tmp_path / "project", tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret").write_text("x")
    (project / "src").mkdir(parents=True)
    (project / "plain").write_text("x")
    (project / "link").symlink_to(outside / "deep")
    (project / "notes.txt").symlink_to(outside / "secret")
    (project / "src" / "up").symlink_to("../link")
    return project


def found(project: Path, tool_input: Any, **more: Any) -> dict[str, Any] | None:
    payload = {"hook_event_name": "PreToolUse", "cwd": f"{project}", "tool_input": tool_input} | more
    body = build_hook_body_with_symlinks(json.dumps(payload).encode(), payload)
    told = json.loads(body)
    assert {name: value for name, value in told.items() if name != FIELD} == payload
    links: dict[str, Any] | None = told.get(FIELD)
    return links


def links_of(project: Path, tool_input: Any, **more: Any) -> dict[str, str]:
    told = found(project, tool_input, **more)
    assert told is not None
    assert told["complete"] is True
    return dict(told["links"])


@pytest.mark.parametrize(
    "tool_input",
    [{"file_path": "notes.txt"}, {"command": "cat 'notes.txt' | wc"}, {"command": ["cat", "--x=notes.txt"]}],
)
def test_a_link_to_a_file_is_found_wherever_it_is_named(project: Path, tool_input: Any) -> None:
    assert links_of(project, tool_input) == {f"{project}/notes.txt": f"{project.parent}/outside/secret"}


def test_a_link_in_the_middle_of_a_path_counts_also_where_the_file_is_new(project: Path) -> None:
    assert links_of(project, {"file_path": f"{project}/link/new.txt"}) == {
        f"{project}/link": f"{project.parent}/outside/deep"
    }


def test_a_link_after_a_change_of_folder_is_found(project: Path) -> None:
    assert f"{project}/src/up" in links_of(project, {"command": "cd src && cat up/x"})


def test_above_a_link_is_above_where_it_leads(project: Path) -> None:
    assert links_of(project, {"file_path": "link/../secret"})[f"{project}/secret"] == (
        f"{project.parent}/outside/secret"
    )


def test_a_working_directory_behind_a_link_is_found(project: Path, tmp_path: Path) -> None:
    (tmp_path / "work").symlink_to(project)
    assert links_of(project, {"command": "ls"}, cwd=f"{tmp_path}/work") == {f"{tmp_path}/work": f"{project}"}


@pytest.mark.parametrize(
    "tool_input", [{"file_path": "plain"}, {"command": "ls -la src"}, {"command": "\0"}, {}, [], None, 7]
)
def test_a_call_without_links_is_sent_as_it_is(project: Path, tool_input: Any) -> None:
    assert found(project, tool_input) is None


def test_more_words_than_are_tried_are_said_to_be_too_many(project: Path) -> None:
    command = " ".join(f"w{number}" for number in range(MAX_WORDS + 10))
    began = time.process_time()
    told = found(project, {"command": f"{command} notes.txt"})
    assert told == {"links": [], "complete": False}
    assert time.process_time() - began < 1


def test_a_body_that_names_links_itself_is_sent_as_it_is(project: Path) -> None:
    payload = {"cwd": f"{project}", "tool_input": {"file_path": "notes.txt"}, FIELD: {}}
    body = json.dumps(payload).encode()
    assert build_hook_body_with_symlinks(body, payload) == body
