"""People, questions and rows for the tests of approvals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group, User

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.identity.actors import Actor, key_actor_by_name
from coordinator.models import AuditLog, PermissionRequest
from coordinator.policy.requests.approvals import PermissionSubject, Scope, Validity

# The audit log's trigger compares with the database's own clock and deletes what is older than 90 days.
NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
MINUTE = timedelta(minutes=1)
AGENT = key_actor_by_name("agent-key")


def person(name: str = "alice", role: str | None = "approver") -> User:
    """Return a person with a role."""
    user = User.objects.create_user(name, password="secret-words-7")
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


def ask(**changes: Any) -> NewPermissionRequest:
    """Return a question: plugin mind.x wants to run a command."""
    subject = {
        "plugin_id": "mind.x",
        "permission_type": "ProcessExecution",
        "target_resource": "bash",
        "tool_name": "Bash",
        "tool_input": {"command": "make deploy"},
    }
    subject |= {name: changes.pop(name) for name in list(changes) if name in subject}
    changes.setdefault("justification", "The release is due")
    return NewPermissionRequest(PermissionSubject(**subject), **changes)


def asked(by: Actor = AGENT, now: datetime = NOW, **changes: Any) -> PermissionRequest:
    """Return the request of a question that was just asked."""
    return approvals.request_permission(ask(**changes), actor=by, now=now).request


def approve(
    row: PermissionRequest,
    by: User | None = None,
    *,
    validity: Validity = Validity.UNTIL_REVOKED,
    scope: Scope = Scope.EVERYWHERE,
) -> PermissionRequest:
    """Approve the request at NOW, by itself until revoked and everywhere; once is for its call alone."""
    scope = Scope.CALL if validity is Validity.ONCE else scope
    by = by or person()
    return approvals.decide_request(
        row.request_id, person=by, verdict="approved", validity=validity, scope=scope, now=NOW
    )


def stored(status: str = "pending", **columns: Any) -> PermissionRequest:
    """Return a row as another program writes it: without a context."""
    number = PermissionRequest.objects.count()
    values = {
        "request_id": f"foreign-{number}",
        "created_at": NOW,
        "plugin_id": "mind.x",
        "permission_type": "NetworkAccess",
        "target_resource": "api.example.org",
        "justification": "To look something up",
    }
    return PermissionRequest.objects.create(**values | columns | {"status": status})


def fresh(row: PermissionRequest) -> PermissionRequest:
    """Return the row as the database has it now."""
    return PermissionRequest.objects.with_context().get(pk=row.pk)


def trail(row: PermissionRequest) -> list[str]:
    """Return the events that the audit log tells of the request, in order."""
    found = AuditLog.objects.filter(target_id=row.request_id).order_by("id")
    return list(found.values_list("event_type", flat=True))
