"""Rows that refer to people by name: they follow a person to a new name, and are deleted with an unused name.

Otherwise a renamed person could approve twice, decide their own requests or leave their budget behind. A person who
takes a free name would get its approvals, its sessions and its usage. tests/guards/test_names.py lists every column
that may hold a person's name: a new one belongs here or, where it only records the past, in HISTORY.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from coordinator.models import (
    ApiKey,
    Budget,
    PermissionContext,
    PermissionVote,
    ReadMark,
    RequestAssignment,
    RequestSnooze,
    SessionFigures,
    SessionOwner,
    UsageDay,
)
from coordinator.models.budgets import BudgetReach
from coordinator.models.permissions import RequestStatus

# These columns stay as they were written, under the name that the person had then.
HISTORY = (
    "AgentName.linked_by",
    "AgentToolListing.changed_by",
    "ArchivedSession.archived_by",
    "AuditLog.actor_id",
    "Brake.released_by",
    "Brake.set_by",
    "Budget.allowed_by",
    "Budget.changed_by",
    "ChatMessage.user_id",
    "DangerMark.changed_by",
    "DecidingRule.changed_by",
    "Delegation.made_by",
    "Delegation.revoked_by",
    "DrivenCommand.ordered_by",
    "EscalationStep.created_by",
    "Grant.granted_by",
    "InstallationSetting.changed_by",
    "McpAgentPerson.changed_by",
    "McpAuthorization.changed_by",
    "McpCallLimit.changed_by",
    "McpCredential.set_by",
    "DismissedSuggestion.dismissed_by",
    "KnownHost.approved_by",
    "McpTool.accepted_by",
    "McpTool.declined_by",
    "McpTool.short_by",
    "McpToolRevision.changed_by",
    "ModelPrice.changed_by",
    "Note.written_by",
    "PermissionContext.closed_by",
    "PermissionContext.decided_for",
    "PermissionContext.revoked_by",
    "PermissionContext.seen_by",
    "PermissionRequest.approved_by",
    "RequestAssignment.assigned_by",
    "RuntimePlugin.created_by",
    "SessionTag.tagged_by",
    "SessionTitle.set_by",
    "ToolCollection.changed_by",
    "ToolRule.changed_by",
)


def list_person_name_references() -> list[tuple[QuerySet[Any], str, str]]:
    """Return the rows that follow a person, the column that names them, and the prefix of the name there."""
    votes = PermissionVote.objects.filter(request__status=RequestStatus.PENDING)
    pending = PermissionContext.objects.filter(request__status=RequestStatus.PENDING)
    return [
        (votes, "voter", ""),
        (votes, "right_of", ""),
        (pending, "owner", ""),
        (pending, "requested_by", "user:"),
        (RequestAssignment.objects.all(), "person", ""),
        (RequestSnooze.objects.all(), "person", ""),
        (ReadMark.objects.all(), "person", ""),
        (SessionOwner.objects.all(), "person", ""),
        (SessionFigures.objects.all(), "person", ""),
        (UsageDay.objects.all(), "person", ""),
        (Budget.objects.filter(reach=BudgetReach.PERSON), "name", ""),
        (ApiKey.objects.all(), "created_by", "user:"),
    ]


FOLLOWING = tuple(f"{rows.model.__name__}.{column}" for rows, column, _ in list_person_name_references())


def rename_person_everywhere(before: str, after: str) -> None:
    """Let all that follow a person to a new name. Call it in the transaction that gives the name."""
    clear_person_name_references(after)  # left by another who had it
    for rows, column, prefix in list_person_name_references():
        rows.filter(**{column: prefix + before}).update(**{column: prefix + after})


def clear_person_name_references(name: str) -> None:
    """Keep nothing under a name that nobody has, or that somebody new gets. Call it where the name is freed.

    Approvals of what still waits, turns, snoozes and marks go; sessions, keys and what was used are nobody's. Budgets
    of the name stay: they may have been set before the person came (actions.policy.budgets.end_person_budgets).
    """
    votes = PermissionVote.objects.filter(request__status=RequestStatus.PENDING)
    votes.filter(voter=name).delete()
    votes.filter(right_of=name).delete()
    for model in (RequestAssignment, RequestSnooze, ReadMark, SessionOwner):
        model.objects.filter(person=name).delete()
    for rows in (SessionFigures.objects, UsageDay.objects):
        rows.filter(person=name).update(person=None)
    pending = PermissionContext.objects.filter(request__status=RequestStatus.PENDING)
    nobody = f"{name} (deleted)"  # no user name has such characters
    pending.filter(owner=name).update(owner=nobody)
    pending.filter(requested_by=f"user:{name}").update(requested_by=f"user:{nobody}")
    ApiKey.objects.filter(created_by=f"user:{name}").update(created_by=f"user:{nobody}")
