"""The changes of a turn in a git work tree, reported as `signalbox/changes`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import shutil
import threading
import time
from typing import Any

from coordinator.runner.git import GitFailed
from coordinator.runner.snapshots import GitWorkTree, ShadowRepository
from coordinator.runner.tree_diff import TreeDifference, build_git_tree_difference

log = logging.getLogger("signalbox.runner")

# For which what a session began with is stored after its last turn.
SNAPSHOT_RETENTION_SECONDS = 30 * 24 * 3600.0
AT_ONCE = threading.BoundedSemaphore(2)  # comparisons of all sessions: each may keep a core busy


class TurnChanges:
    """Compares a session's directory with its state when the turn and the session began. Never raises for its content.

    Without a git work tree it reports nothing. `state` is the runner's folder: what the session began with is
    kept there, so that it is known after a restart.
    """

    def __init__(self, session_id: str, directory: str, state: str) -> None:
        self._directory = os.path.realpath(directory)
        name = hashlib.sha256(f"{session_id}\0{self._directory}".encode("utf-8", "surrogatepass")).hexdigest()
        self._folder = os.path.join(state, "changes", name[:32])
        self._note = os.path.join(self._folder, "began.json")
        self._shadow: ShadowRepository | None = None
        self._turn: str | None = None
        self._problem: str | None = None

    async def snapshot_directory_at_turn_start(self) -> None:
        """Note the state of the directory."""
        await asyncio.to_thread(self._take_start_snapshot)

    async def collect_turn_changes(self) -> list[dict[str, Any]]:
        """Return the updates: what the turn changed, and what the session did. May be called again."""
        return await asyncio.to_thread(self.build_turn_and_session_updates)

    def _take_start_snapshot(self) -> None:
        self._turn = self._problem = None
        try:
            if self._shadow is None:
                self._shadow = self.open_shadow_repository_or_none()
            if self._shadow is not None:
                with AT_ONCE:
                    self._turn = self._shadow.write_directory_snapshot_tree()
                self.get_or_create_session_base_tree(self._turn)
        except (GitFailed, OSError) as problem:
            self._problem = str(problem)

    def open_shadow_repository_or_none(self) -> ShadowRepository | None:
        try:
            work_tree = GitWorkTree.require_work_tree_of_directory(self._directory)
        except GitFailed as problem:
            log.debug("Changes in %s are not tracked: %s", self._directory, problem)
            return None
        remove_old_change_folders(os.path.dirname(self._folder))
        return ShadowRepository(work_tree, self._folder)

    def get_or_create_session_base_tree(self, now: str) -> str:
        """Return the tree with which the session began; it begins now where none is known."""
        try:
            with open(self._note, "rb") as file:
                tree = str(json.loads(file.read(4096))["tree"])
            os.utime(self._note)
            return tree
        except (OSError, ValueError, KeyError, TypeError):
            with open(self._note, "w") as file:
                json.dump({"tree": now}, file)
            return now

    def build_turn_and_session_updates(self) -> list[dict[str, Any]]:
        shadow, turn_start = self._shadow, self._turn
        if shadow is None and self._problem is None:
            return []
        try:
            if shadow is None or turn_start is None:
                raise GitFailed(self._problem or "the state at the start of the turn is not known")
            with AT_ONCE:
                now = shadow.write_directory_snapshot_tree()
                base = self.get_or_create_session_base_tree(turn_start)
                return [
                    build_changes_update_for_trees(shadow, "turn", turn_start, now),
                    build_changes_update_for_trees(shadow, "session", base, now),
                ]
        except (GitFailed, OSError) as problem:
            return [
                build_changes_update("turn", turn_start, TreeDifference([], "", truncated=False), problem)
            ]


def build_changes_update_for_trees(
    shadow: ShadowRepository, scope: str, before: str, after: str
) -> dict[str, Any]:
    try:
        return build_changes_update(scope, before, build_git_tree_difference(shadow, before, after))
    except GitFailed as problem:
        return build_changes_update(scope, before, TreeDifference([], "", truncated=False), problem)


def build_changes_update(
    scope: str, base: str | None, difference: TreeDifference, problem: Exception | None = None
) -> dict[str, Any]:
    update = {
        "sessionUpdate": "signalbox/changes",
        "scope": scope,
        "base": base,
        "files": difference.files,
        "diff": difference.diff,
        "truncated": difference.truncated,
    }
    return update if problem is None else {**update, "problem": str(problem)[:1000]}


def remove_old_change_folders(folder: str) -> None:
    """Remove what is known of sessions that had no turn for long."""
    with contextlib.suppress(OSError):
        for folder_entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if (
                    os.stat(os.path.join(folder_entry.path, "began.json")).st_mtime
                    < time.time() - SNAPSHOT_RETENTION_SECONDS
                ):
                    shutil.rmtree(folder_entry.path)
