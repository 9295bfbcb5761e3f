"""A hook of a plan that only names its file carries the file's text, and no other file's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.plan_files import FIELD, LARGEST_PLAN, add_plan_text_to_hook


def add_plan(folder: Path, name: Any, tool: str = "exit_plan_mode") -> str | None:
    """Return the plan that the hook of a session in this folder carries."""
    payload = {
        "tool_name": tool,
        "tool_input": {"plan_filename": name},
        "session_id": "4fe7fca2-0298",
        "cwd": str(folder / "work"),
        "transcript_path": str(folder / "tmp" / "chats" / "session.json"),
    }
    body = add_plan_text_to_hook(json.dumps(payload).encode(), payload)
    hook = json.loads(body)
    assert hook | payload == hook
    plan = hook.get(FIELD)
    assert plan is None or isinstance(plan, str)
    return plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in ("work/plans", "tmp/chats", "tmp/4fe7fca2-0298/plans"):
        (tmp_path / part).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("place", ["work", "tmp/4fe7fca2-0298/plans"])
def test_the_plan_is_read_where_its_agent_looks_for_it(folder: Path, place: str) -> None:
    (folder / place / "paint.md").write_text("# Paint it")
    assert add_plan(folder, "paint.md") == "# Paint it"
    assert add_plan(folder, "paint.md", tool="read_file") is None


def test_no_file_outside_of_those_folders_is_read(folder: Path) -> None:
    (folder / "secret.md").write_text("secret")
    (folder / "work" / "key").write_text("secret")
    (folder / "work" / "link.md").symlink_to(folder / "secret.md")
    os.mkfifo(folder / "work" / "pipe.md")
    for name in ("../secret.md", str(folder / "secret.md"), "key", "link.md", "pipe.md", "", 7, "\0.md"):
        assert add_plan(folder, name) is None


def test_a_large_plan_is_cut(folder: Path) -> None:
    (folder / "work" / "paint.md").write_text("x" * (LARGEST_PLAN + 1))
    assert add_plan(folder, "paint.md") == "x" * LARGEST_PLAN
