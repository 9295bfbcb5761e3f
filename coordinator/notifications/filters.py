"""Filters that decide of which requests an address is notified, as its owner chose."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from coordinator.models import NotificationTarget, PermissionRequest
from coordinator.policy.requests.approvals import request_subject
from coordinator.policy.rules import marks
from coordinator.policy.rules.tool_rules import matches_tool_name

About = NotificationTarget.About


def filter_targets_for_request(
    targets: Iterable[NotificationTarget], request: PermissionRequest
) -> list[NotificationTarget]:
    """Return the `targets` that are notified of `request`. A choice that cannot be read leaves nothing out."""
    targets = list(targets)
    wants_marks = any(target.about == About.MARKED for target in targets)
    is_marked = wants_marks and bool(marks.find_request_review_reasons(request, marks.load_danger_marks()))
    return [
        target for target in targets if is_target_notified_of_request(target, request, is_marked=is_marked)
    ]


def filter_targets_for_budgets(targets: Iterable[NotificationTarget]) -> list[NotificationTarget]:
    """Return the `targets` that are notified of how much of the budgets is used."""
    return [target for target in targets if target.about in (About.EVERYTHING, About.BUDGETS)]


def filter_targets_for_sessions(targets: Iterable[NotificationTarget]) -> list[NotificationTarget]:
    """Return the `targets` that are notified of sessions: addresses that are about everything."""
    return [target for target in targets if target.about == About.EVERYTHING]


def is_target_notified_of_request(
    target: NotificationTarget, request: PermissionRequest, *, is_marked: bool
) -> bool:
    if target.about == About.BUDGETS:
        return False
    if target.about == About.MARKED:
        return is_marked
    if target.about == About.TYPES:
        wanted_patterns = [pattern.casefold() for pattern in split_target_patterns(target.patterns)]
        return any(
            fnmatch.fnmatchcase(request.permission_type.casefold(), wanted_pattern)
            for wanted_pattern in wanted_patterns
        )
    if target.about == About.TOOLS:
        tool = request_subject(request).tool_name
        return bool(tool) and matches_tool_name("|".join(split_target_patterns(target.patterns)), tool or "")
    return True


def split_target_patterns(text: str) -> list[str]:
    """Return the types or tools that a person listed, apart by commas or lines."""
    return [pattern.strip() for pattern in text.replace("\n", ",").split(",") if pattern.strip()]
