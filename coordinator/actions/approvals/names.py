"""What is kept of people by name: it follows a person to a new name, and goes with a name that nobody has any more.

Else a person who is renamed could approve twice, or decide what they asked for, and whoever takes a name that became
free would have its approvals.
"""

from __future__ import annotations

from coordinator.models import (
    ApiKey,
    PermissionContext,
    PermissionVote,
    RequestAssignment,
    RequestSnooze,
)
from coordinator.models.permissions import RequestStatus


def rename(before: str, after: str) -> None:
    """Let all that follow a person to a new name. Call it in the transaction that gives the name."""
    forget(after)  # left by another who had it
    votes = PermissionVote.objects.filter(request__status=RequestStatus.PENDING)
    votes.filter(voter=before).update(voter=after)
    votes.filter(right_of=before).update(right_of=after)
    asked = PermissionContext.objects.filter(request__status=RequestStatus.PENDING, owner=before)
    asked.update(owner=after)
    RequestAssignment.objects.filter(person=before).update(person=after)
    RequestSnooze.objects.filter(person=before).update(person=after)
    ApiKey.objects.filter(created_by=f"user:{before}").update(created_by=f"user:{after}")


def forget(name: str) -> None:
    """Drop the approvals of a name for what still waits, its turns and its snoozes. Call it where the name is freed."""
    votes = PermissionVote.objects.filter(request__status=RequestStatus.PENDING)
    votes.filter(voter=name).delete()
    votes.filter(right_of=name).delete()
    RequestAssignment.objects.filter(person=name).delete()
    RequestSnooze.objects.filter(person=name).delete()
