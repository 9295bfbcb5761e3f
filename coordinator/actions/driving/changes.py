"""Reported changes of a work tree: the files that a turn, or the whole session, has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.models import SessionChange
from coordinator.secrets.masking import mask_secrets_in_value

MOST_FILES = 2_000
MOST_DIFF = 512 * 1024  # characters
LONGEST_PATH = 1_024
MAX_TURNS_WITH_DIFFS = 50  # turns whose diffs are kept; of older ones the files are
STATUSES = frozenset("AMDRCT")


def save_turn_or_session_diff(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    """Keep the newest comparison of a turn or of the session; one of no known scope is none."""
    scope = fields.get("scope")
    if scope not in {"turn", "session"}:
        return
    run_id = (post.run_id or "") if scope == "turn" else ""
    if scope == "turn" and not run_id:
        return
    diff, base, problem = (fields.get(name) for name in ("diff", "base", "problem"))
    listed = fields.get("files")
    files = [*map(parse_changed_file_or_none, listed[:MOST_FILES])] if isinstance(listed, list) else []
    text = diff if isinstance(diff, str) else ""
    SessionChange.objects.update_or_create(
        session_id=post.session_id,
        run_id=run_id,
        defaults={
            "base": base[:64] if isinstance(base, str) else None,
            "told_at": post.at,
            "files": [file_change for file_change in files if file_change],
            "diff": mask_secrets_in_value(text[:MOST_DIFF].replace("\0", "\ufffd")),
            "truncated": fields.get("truncated") is True or len(text) > MOST_DIFF,
            "problem": mask_secrets_in_value(problem[:1000].replace("\0", "\ufffd"))
            if isinstance(problem, str)
            else None,
        },
    )
    clear_old_turn_diffs(post.session_id)


def parse_changed_file_or_none(reported: Any) -> dict[str, Any] | None:
    """Return what is kept of a file; None where it has no name."""
    if not isinstance(reported, Mapping) or not isinstance(reported.get("path"), str) or not reported["path"]:
        return None
    status = reported.get("status")
    file: dict[str, Any] = {
        "path": mask_and_truncate_changed_path(reported["path"]),
        "status": status if status in STATUSES else "M",
        "added": clamp_line_count(reported.get("added")),
        "removed": clamp_line_count(reported.get("removed")),
        "binary": reported.get("binary") is True,
    }
    if isinstance(reported.get("from"), str):
        file["from"] = mask_and_truncate_changed_path(reported["from"])
    if isinstance(reported.get("mode"), str):
        file["mode"] = reported["mode"][:6]
    return file


def mask_and_truncate_changed_path(reported: str) -> str:
    return str(mask_secrets_in_value(reported[:LONGEST_PATH].replace("\0", "\ufffd")))


def clamp_line_count(reported: Any) -> int:
    return (
        min(reported, 10**9)
        if isinstance(reported, int) and not isinstance(reported, bool) and reported > 0
        else 0
    )


def clear_old_turn_diffs(session_id: str) -> None:
    turn_changes = SessionChange.objects.filter(session_id=session_id).exclude(run_id="")
    old = turn_changes.order_by("-id").values_list("id", flat=True)[
        MAX_TURNS_WITH_DIFFS : MAX_TURNS_WITH_DIFFS + 10
    ]
    SessionChange.objects.filter(pk__in=list(old), diff__isnull=False).update(diff=None)
