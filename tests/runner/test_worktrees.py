"""Sessions in one repository do not meet: each has a work tree of its own, which only a person's order removes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coordinator.runner import worktrees
from coordinator.runner.errors import RunnerRefused
from tests.runner.test_changes import git, hostile, project

pytestmark = [pytest.mark.skipif(not Path("/usr/bin/git").exists(), reason="git is not installed")]
__all__ = ["project"]


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def make(session_id: str, directory: Path, state: str) -> Path:
    return Path(asyncio.run(worktrees.get_or_create_worktree(session_id, str(directory), state)))


def remove(session_id: str, directory: Path, state: str, *, discard: bool = False) -> None:
    asyncio.run(worktrees.remove_worktree(session_id, str(directory), state, discard=discard))


def branches(project: Path) -> list[str]:
    return git(project, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


def test_ten_sessions_begin_at_once_and_do_not_meet(project: Path, state: str) -> None:
    async def all_of_them() -> list[str]:
        names = (f"ses_{number}" for number in range(10))
        return await asyncio.gather(
            *(worktrees.get_or_create_worktree(name, str(project), state) for name in names)
        )

    trees = [Path(one) for one in asyncio.run(all_of_them())]
    assert len(set(trees)) == 10
    for tree in trees:
        assert (tree / "kept.txt").read_text() == "one\ntwo\n"
        (tree / "kept.txt").write_text(str(tree))
    assert [(tree / "kept.txt").read_text() for tree in trees] == [str(tree) for tree in trees]
    assert (project / "kept.txt").read_text() == "one\ntwo\n"
    assert git(project, "status", "--porcelain") == ""
    assert {f"signalbox/ses_{number}" for number in range(10)} < set(branches(project))


def test_it_stands_for_the_folder_and_is_found_again(project: Path, state: str) -> None:
    (project / "part").mkdir()
    (project / "part" / "a").write_text("a")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "Part")
    tree = make("ses_1", project / "part", state)
    assert (tree / "a").read_text() == "a"
    assert make("ses_1", project / "part", state) == tree


def test_uncommitted_work_is_removed_only_where_that_was_said(project: Path, state: str) -> None:
    tree = make("ses_1", project, state)
    (tree / "new.txt").write_text("work\n")
    with pytest.raises(RunnerRefused, match=r"uncommitted work in 1 file \(new.txt\)"):
        remove("ses_1", project, state)
    assert (tree / "new.txt").exists()
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "Work")
    remove("ses_1", project, state)
    assert not tree.exists()
    assert git(project, "show", "signalbox/ses_1:new.txt") == "work\n"
    again = make("ses_1", project, state)
    assert (again / "new.txt").read_text() == "work\n"
    (again / "new.txt").write_text("more")
    remove("ses_1", project, state, discard=True)
    assert not again.exists()


def test_commits_on_no_branch_are_work_too(project: Path, state: str) -> None:
    tree = make("ses_1", project, state)
    git(tree, "checkout", "-q", "--detach")
    git(tree, "commit", "-q", "--allow-empty", "-m", "Lost")
    with pytest.raises(RunnerRefused, match="commits that are on no branch"):
        remove("ses_1", project, state)


def test_a_branch_without_commits_goes_with_its_work_tree(project: Path, state: str) -> None:
    make("ses_1", project, state)
    remove("ses_1", project, state)
    assert branches(project) == ["main"]
    with pytest.raises(RunnerRefused, match="no work tree of ses_1"):
        remove("ses_1", project, state)


def test_what_has_none_is_refused_in_words(tmp_path: Path, state: str) -> None:
    with pytest.raises(RunnerRefused, match="only in a git repository"):
        make("ses_1", tmp_path, state)
    git(tmp_path, "init", "-q")
    with pytest.raises(RunnerRefused, match="no commit yet"):
        make("ses_1", tmp_path, state)


def test_any_id_makes_a_branch_and_stays_in_its_folder(project: Path, state: str) -> None:
    for name in ("../../etc", "a..b~^:", "", ".lock", "-x", "x" * 300):
        assert Path(state) in make(name, project, state).parents


def test_no_program_that_a_repository_names_is_run(project: Path, state: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    hostile(project, marker)
    calm = "filter.evil.clean= filter.evil.process= filter.evil.required=false core.hooksPath= core.fsmonitor=false"
    settings = [word for one in calm.split() for word in ("-c", one)]
    git(project, *settings, "add", ".gitattributes")  # so that a checkout filters all files
    git(project, *settings, "commit", "-qm", "Evil")
    assert not marker.exists()
    tree = make("ses_1", project, state)
    (tree / "kept.txt").write_text("changed")
    with pytest.raises(RunnerRefused, match="uncommitted"):
        remove("ses_1", project, state)
    remove("ses_1", project, state, discard=True)
    assert not marker.exists()


@pytest.mark.parametrize("condition", ["gitdir:**/.git/worktrees/**", "onbranch:signalbox/**"])
def test_a_filter_that_only_a_work_tree_has_is_not_run(
    project: Path, state: str, tmp_path: Path, condition: str
) -> None:
    marker = tmp_path / "ran"
    (project / ".gitattributes").write_text("kept.txt filter=evil\nother.txt filter=a=b\n")
    (project / "other.txt").write_text("other\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "Filtered")
    program = f'"touch {marker}; cat"'
    lines = f"\tsmudge = {program}\n\tclean = {program}\n"
    (project / ".git" / "more").write_text(f'[filter "evil"]\n{lines}')
    with (project / ".git" / "config").open("a") as config:
        config.write(f'[includeIf "{condition}"]\n\tpath = more\n[filter "a=b"]\n{lines}')
    tree = make("ses_1", project, state)
    assert ((tree / "kept.txt").read_text(), (tree / "other.txt").read_text()) == ("one\ntwo\n", "other\n")
    (tree / "kept.txt").write_text("two\none\n")  # of the same length, so that git has to read it
    with pytest.raises(RunnerRefused, match="uncommitted"):
        remove("ses_1", project, state)
    assert not marker.exists()


def test_a_symlink_does_not_lead_out_of_the_work_tree(project: Path, state: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / "part").symlink_to(outside)
    git(project, "add", "-A")
    git(project, "commit", "-qm", "Link")
    (project / "part").unlink()
    (project / "part").mkdir()
    with pytest.raises(RunnerRefused, match="leads out of the repository"):
        make("ses_1", project / "part", state)
    tree = make("ses_2", project / "part" / "..", state)
    assert asyncio.run(worktrees.find_worktree("ses_2", state)) == str(tree)
    tree.rename(tmp_path / "moved")
    tree.symlink_to(outside)
    with pytest.raises(RunnerRefused, match="leads out of the session's work tree"):
        asyncio.run(worktrees.find_worktree("ses_2", state))
