"""A session's own git work tree: on a branch that is named after the session, kept until a person removes it."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import re
import shutil
import threading
from collections.abc import Mapping
from typing import Any

from coordinator.runner.directories import is_inside_folder
from coordinator.runner.errors import RunnerRefused
from coordinator.runner.git import GitFailed, run_git

ARE_MADE = True
CHECKED_OUT_WITHIN = 120.0  # seconds
MOST_NAMED = 5
ADDING = threading.Lock()  # git reads the others' notes, and fails where one is half made


async def get_or_create_worktree(session_id: str, directory: str, state: str) -> str:
    """Return the directory's counterpart in the session's work tree, made if need be. Raises RunnerRefused."""
    return await asyncio.to_thread(
        get_or_create_worktree_blocking, session_id, os.path.realpath(directory), state
    )


async def find_worktree(session_id: str, state: str) -> str | None:
    """Return what `get_or_create_worktree` returned for a session whose work tree is kept, None without one.

    Raises RunnerRefused.
    """
    return await asyncio.to_thread(find_worktree_blocking, session_id, state)


async def remove_worktree(session_id: str, directory: str, state: str, *, discard: bool = False) -> None:
    """Remove a session's work tree, and its branch where it holds no commit of its own.

    Raises RunnerRefused where there is none, and, without `discard`, where it holds uncommitted work.
    """
    await asyncio.to_thread(remove_worktree_blocking, session_id, os.path.realpath(directory), state, discard)


def get_or_create_worktree_blocking(session_id: str, directory: str, state: str) -> str:
    folder, note = worktree_folder_and_note_path(session_id, state)
    if tree := find_worktree_blocking(session_id, state):
        return tree
    try:
        top = run_git("rev-parse", "--show-toplevel", directory=directory).decoded_git_output
    except GitFailed as problem:
        raise RunnerRefused(
            f"A run can get a work tree of its own only in a git repository, and {directory} is not in one ({problem})."
            " Choose another directory, or start the run without a work tree of its own."
        ) from None
    try:
        start_output = run_git(
            "rev-parse", "--verify", "--end-of-options", "HEAD^{commit}", directory=top
        ).decoded_git_output
    except GitFailed:
        raise RunnerRefused(
            f"{top} has no commit yet to begin a work tree from. Commit something there first."
        ) from None
    branch, path = (
        f"signalbox/{worktree_slug(session_id)}",
        os.path.join(folder, os.path.basename(top) or "tree"),
    )
    inside = os.path.relpath(directory, top)
    works_in = path if inside == "." else os.path.join(path, inside)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        check_out_worktree(top, path, branch, start_output)
        if not is_inside_folder(os.path.realpath(path), os.path.realpath(works_in)):
            remove_worktree_and_unused_branch(top, path, branch, start_output)
            raise RunnerRefused(f"In the last commit of {top}, {inside} leads out of the repository.")
        os.makedirs(works_in, exist_ok=True)
    except (GitFailed, OSError) as problem:
        raise RunnerRefused(f"No work tree could be made of {top}: {problem}") from None
    save_worktree_note(
        note, {"top": top, "path": path, "works_in": works_in, "branch": branch, "began": start_output}
    )
    return works_in


def find_worktree_blocking(session_id: str, state: str) -> str | None:
    """Return where the session works in its work tree. Raises RunnerRefused where that is gone or leads elsewhere."""
    folder, note = worktree_folder_and_note_path(session_id, state)
    noted = load_worktree_note(note)
    if noted is None:
        return None
    path, works_in = str(noted.get("path")), str(noted.get("works_in"))
    tree = os.path.realpath(path)
    if not is_inside_folder(os.path.realpath(folder), tree) or not is_inside_folder(
        tree, os.path.realpath(works_in)
    ):
        raise RunnerRefused(
            f"{works_in} leads out of the session's work tree. Fix that, or discard the work tree."
        )
    if not os.path.isdir(works_in):
        raise RunnerRefused(f"The session's work tree {works_in} no longer exists. Discard it.")
    return works_in


def check_out_worktree(top: str, path: str, branch: str, began: str) -> None:
    """Add a work tree; the remains of an earlier attempt are removed. Raises GitFailed."""
    shutil.rmtree(path, ignore_errors=True)
    with ADDING:
        run_git("worktree", "prune", directory=top)
        is_known = (
            find_branch_commit_id(top, branch) is not None
        )  # an earlier work tree of the session left commits on it
        arguments = (path, branch) if is_known else ("-b", branch, path, began)
        run_git("worktree", "add", "--no-checkout", *arguments, directory=top, within=CHECKED_OUT_WITHIN)
    # Settings may hold in a work tree, or on a branch, alone: what filters is known there.
    calm = git_filter_disabling_variables(path)
    run_git("reset", "--hard", "--quiet", directory=path, variables=calm, within=CHECKED_OUT_WITHIN)


def remove_worktree_blocking(session_id: str, directory: str, state: str, discard: bool) -> None:
    folder, note = worktree_folder_and_note_path(session_id, state)
    worktree_note = load_worktree_note(note)
    if worktree_note is None:
        raise RunnerRefused(f"This machine has no work tree of {session_id} for {directory}.")
    path, top = str(worktree_note["path"]), str(worktree_note["top"])
    if os.path.isdir(path) and not discard:
        require_committed_worktree(path, top)
    try:
        remove_worktree_and_unused_branch(
            top, path, str(worktree_note["branch"]), str(worktree_note["began"])
        )
    except GitFailed as problem:
        if os.path.isdir(top):
            raise RunnerRefused(f"The work tree {path} could not be removed: {problem}") from None
        # Its repository is gone: nothing knows the work tree any more.
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.exists(path):
        raise RunnerRefused(
            f"The work tree {path} could not be removed: some of its files are not the runner's to remove."
        )


def require_committed_worktree(path: str, top: str) -> None:
    """Raise RunnerRefused where files differ from what is committed, or commits are on no branch."""
    filters = git_filter_disabling_variables(top, path)  # on the branch of either other settings may hold
    try:
        modules = run_git(
            "rev-parse", "--path-format=absolute", "--git-path", "modules", directory=path
        ).decoded_git_output
        status_output = run_git(
            "status",
            "--porcelain",
            "-z",
            "--no-renames",
            "--untracked-files=normal",
            "--ignore-submodules=all",
            directory=path,
            variables=filters,
        ).output
        git_output = run_git(
            "for-each-ref", "--contains", "HEAD", "--count=1", "refs/heads", directory=path
        ).decoded_git_output
    except GitFailed as problem:
        raise RunnerRefused(f"It is not known whether {path} holds uncommitted work: {problem}") from None
    if files := [line[3:].decode("utf-8", "replace") for line in status_output.split(b"\0") if line]:
        raise RunnerRefused(
            f"The work tree holds uncommitted work in {summarize_file_names(files)}. Have it committed, or discard it."
        )
    if not git_output:
        raise RunnerRefused(
            "The work tree holds commits that are on no branch. Have a branch made of them, or discard them."
        )
    if os.path.isdir(modules):
        raise RunnerRefused(
            "The work tree holds submodules, whose work is not known. Look at them, or discard them."
        )


def summarize_file_names(files: list[str]) -> str:
    named_files = ", ".join(files[:MOST_NAMED]) + (", …" if len(files) > MOST_NAMED else "")
    return f"1 file ({named_files})" if len(files) == 1 else f"{len(files):,} files ({named_files})"


def remove_worktree_and_unused_branch(top: str, path: str, branch: str, began: str) -> None:
    """Remove the work tree, and its branch where that is where it began. Raises GitFailed."""
    if os.path.isdir(path):
        run_git("worktree", "remove", "--force", "--force", path, directory=top, within=CHECKED_OUT_WITHIN)
    else:
        run_git("worktree", "prune", directory=top)
    if find_branch_commit_id(top, branch) == began:  # nothing was committed: the name alone would be left
        run_git("update-ref", "-d", f"refs/heads/{branch}", began, directory=top)


def find_branch_commit_id(top: str, branch: str) -> str | None:
    try:
        return run_git(
            "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", directory=top
        ).decoded_git_output
    except GitFailed:
        return None


def git_filter_disabling_variables(*directories: str) -> Mapping[str, str]:
    """Return variables that switch off each filter that the repository itself defines: a filter is a program.

    `directories` are its work trees in which git is to run; settings may hold in one of them alone.
    """
    names = set()
    for directory, scope in itertools.product(directories, ("--local", "--worktree")):
        try:
            git_output = run_git(
                "config",
                scope,
                "--includes",
                "--name-only",
                "-z",
                "--get-regexp",
                r"^filter\.",
                directory=directory,
            )
        except GitFailed:
            continue  # none
        names |= {
            filter_key.rpartition(".")[0]
            for filter_key in git_output.decoded_git_output.split("\0")
            if filter_key
        }
    calm = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
    settings = [(f"{name}.{key}", value) for name in sorted(names) for key, value in calm]
    # Not with -c: a filter's name may hold a "=".
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def worktree_folder_and_note_path(session_id: str, state: str) -> tuple[str, str]:
    """Return the folder of a session's work tree, and the file in it that says what it is."""
    folder = os.path.join(state, "worktrees", worktree_slug(session_id))
    return folder, os.path.join(folder, "tree.json")


def worktree_slug(session_id: str) -> str:
    """Return a name for a branch and a folder; a client may have chosen the id."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}", session_id):
        return session_id
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', session_id)[:40].strip('-') or 'session'}-{digest}"


def load_worktree_note(note: str) -> dict[str, Any] | None:
    try:
        with open(note, "rb") as file:
            decoded = json.loads(file.read(1 << 16))
    except (OSError, ValueError):
        return None
    return decoded if isinstance(decoded, dict) else None


def save_worktree_note(note: str, fields: dict[str, Any]) -> None:
    with open(f"{note}.new", "w") as file:
        json.dump(fields, file)
    os.replace(f"{note}.new", note)
