"""What a turn changed is told of real git work trees; nothing of theirs is touched or run."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coordinator.runner import changes, snapshots
from coordinator.runner import tree_diff as comparing
from coordinator.runner.changes import TurnChanges

pytestmark = [pytest.mark.skipif(not Path("/usr/bin/git").exists(), reason="git is not installed")]


def git(directory: Path, *words: str) -> str:
    who = ("-c", "user.name=Dev", "-c", "user.email=dev@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "kept.txt").write_text("one\ntwo\n")
    (folder / "gone.txt").write_text("x\n")
    (folder / "logo.png").write_bytes(b"\0png")
    (folder / ".gitignore").write_text("ignored/\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "First")
    return folder


class Session:
    def __init__(self, directory: Path, state: Path) -> None:
        self.changes = TurnChanges("ses_1", str(directory), str(state))

    def starts(self) -> None:
        asyncio.run(self.changes.snapshot_directory_at_turn_start())

    def ended(self) -> dict[str, dict[str, Any]]:
        return {one["scope"]: one for one in asyncio.run(self.changes.collect_turn_changes())}


@pytest.fixture
def session(project: Path, tmp_path: Path) -> Session:
    return Session(project, tmp_path / "state")


def files(update: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {
        one["path"]: (one["status"], one["added"], one["removed"], one["binary"]) for one in update["files"]
    }


def test_a_turn_is_told_with_files_that_git_does_not_know(session: Session, project: Path) -> None:
    (project / "notes.txt").write_text("the user's own\n")
    (project / "kept.txt").write_text("one\ntwo\nthe user's own\n")
    session.starts()
    (project / "kept.txt").write_text("one\nthree\n")
    (project / "gone.txt").unlink()
    (project / "logo.png").write_bytes(b"\0PNG")
    (project / "ignored").mkdir()
    (project / "ignored" / "a").write_text("a")
    (project / "new").mkdir()
    (project / "new" / 'a "b"\tü.txt').write_text("first\n")
    (project / "link").symlink_to("/etc/passwd")
    os.mkfifo(project / "pipe")
    turn = session.ended()["turn"]
    assert files(turn) == {
        "kept.txt": ("M", 1, 2, False),
        "gone.txt": ("D", 0, 1, False),
        "logo.png": ("M", 0, 0, True),
        "link": ("A", 1, 0, False),
        'new/a "b"\tü.txt': ("A", 1, 0, False),
    }
    assert "-the user's own\n+three\n" in turn["diff"]
    assert "Binary files a/logo.png and b/logo.png differ" in turn["diff"]
    assert "root:" not in turn["diff"]


def test_what_is_committed_or_moved_in_the_turn_is_seen_and_the_session_adds_up(
    session: Session, project: Path, tmp_path: Path
) -> None:
    session.starts()
    git(project, "mv", "gone.txt", "moved.txt")
    (project / "new.txt").write_text("1\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "Second")
    told = session.ended()
    assert files(told["turn"]) == files(told["session"])
    assert [one.get("from") for one in told["turn"]["files"]] == ["gone.txt", None]
    again = Session(project, tmp_path / "state")  # the runner was started again
    again.starts()
    (project / "new.txt").unlink()
    told = again.ended()
    assert [*files(told["turn"])] == ["new.txt"]
    assert [*files(told["session"])] == ["moved.txt"]


def test_nothing_of_the_repository_is_touched(session: Session, project: Path) -> None:
    (project / "staged.txt").write_text("staged\n")
    git(project, "add", "staged.txt")
    (project / "staged.txt").write_text("and more\n")
    inside = project / ".git"
    before = {one: one.stat().st_mtime_ns for one in inside.rglob("*")}
    session.starts()
    (project / "x").write_text("x\n")
    session.ended()
    assert {one: one.stat().st_mtime_ns for one in inside.rglob("*")} == before


def hostile(project: Path, marker: Path) -> None:
    """Have the repository name programs wherever its own settings may."""
    program = project / "run.sh"
    program.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    program.chmod(0o755)
    (project / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    for name, value in {
        "core.fsmonitor": str(program),
        "core.hooksPath": str(project / "hooks"),
        "core.pager": str(program),
        "filter.evil.clean": str(program),
        "filter.evil.smudge": str(program),
        "filter.evil.process": str(program),
        "filter.evil.required": "true",
        "diff.evil.command": str(program),
        "diff.evil.textconv": str(program),
        "diff.external": str(program),
        "core.sshCommand": str(program),
    }.items():
        git(project, "config", name, value)
    (project / "hooks").mkdir()
    for hook in ("post-index-change", "post-checkout", "pre-commit", "reference-transaction"):
        (project / "hooks" / hook).symlink_to(program)
    (project / "link-out").symlink_to("/")


def test_no_program_that_a_repository_names_is_run(session: Session, project: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    hostile(project, marker)
    session.starts()
    (project / "kept.txt").write_text("other\n")
    assert files(session.ended()["turn"]) == {"kept.txt": ("M", 1, 2, False)}
    assert not marker.exists()


def test_a_folder_in_a_repository_tells_of_itself_alone(project: Path, tmp_path: Path) -> None:
    (project / "part").mkdir()
    (project / "part" / "a").write_text("1\n")
    git(project, "add", "-A")
    session = Session(project / "part", tmp_path / "state")
    session.starts()
    (project / "part" / "a").write_text("2\n")
    (project / "part" / "b").write_text("2\n")
    (project / "kept.txt").write_text("elsewhere\n")
    git(project, "add", "-A")
    assert files(session.ended()["turn"]) == {"a": ("M", 1, 1, False), "b": ("A", 1, 0, False)}


def test_without_a_work_tree_there_is_nothing_to_tell(tmp_path: Path) -> None:
    session = Session(tmp_path, tmp_path / "state")
    session.starts()
    assert session.ended() == {}


def test_what_is_too_much_is_bounded_and_said(
    session: Session, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MOST_OF_A_FILE", 10_000)
    monkeypatch.setattr(comparing, "MOST_DIFF", 5_000)
    session.starts()
    (project / "large").write_text("line\n" * 10_000)
    (project / "many").write_text("line\n" * 1_500)
    turn = session.ended()["turn"]
    assert files(turn) == {"large": ("A", 0, 0, True), "many": ("A", 1_500, 0, False)}
    assert len(turn["diff"]) <= 5_000
    assert turn["truncated"]
    monkeypatch.setattr(snapshots, "MOST_FILES", 1)
    session.starts()
    assert "too many files" in session.ended()["turn"]["problem"]


def test_a_repository_that_goes_away_is_a_problem_in_words(session: Session, project: Path) -> None:
    session.starts()
    project.rename(project.with_name("elsewhere"))
    assert "is not there any more" in session.ended()["turn"]["problem"]


def test_a_conflict_and_files_that_git_was_told_to_overlook_are_seen(session: Session, project: Path) -> None:
    git(project, "checkout", "-qb", "other")
    (project / "kept.txt").write_text("theirs\n")
    git(project, "commit", "-qam", "Theirs")
    git(project, "checkout", "-q", "main")
    (project / "kept.txt").write_text("ours\n")
    git(project, "commit", "-qam", "Ours")
    git(project, "update-index", "--assume-unchanged", "gone.txt")
    session.starts()
    with pytest.raises(subprocess.CalledProcessError):
        git(project, "merge", "-q", "other")
    (project / "gone.txt").write_text("in secret\n")
    turn = session.ended()["turn"]
    assert set(files(turn)) == {"kept.txt", "gone.txt"}
    assert "+<<<<<<< HEAD" in turn["diff"]


def test_what_a_session_began_with_is_forgotten_after_long(
    session: Session, project: Path, tmp_path: Path
) -> None:
    session.starts()
    (note,) = (tmp_path / "state").rglob("began.json")
    os.utime(note, (0, 0))
    other = TurnChanges("ses_2", str(project), str(tmp_path / "state"))
    asyncio.run(other.snapshot_directory_at_turn_start())
    assert not note.exists()
    assert changes.SNAPSHOT_RETENTION_SECONDS > 7 * 24 * 3600
