"""Coverage of an approval beyond its own call: the same call by the same requester, as widely as a person chose.

A new request looks here for an approval in force. Every look-up is by an indexed digest, however many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.utils import timezone

from coordinator.models import PermissionContext, PermissionRequest
from coordinator.policy.requests.approvals import (
    PermissionSubject,
    Scope,
    approved_edited_input,
    call_digest,
    hash_json_parts,
    legacy_call_digest,
    request_context,
    request_subject,
)
from coordinator.secrets.masking import find_masks_in_value


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asks, and where the call would run, as far as that is known. `requested_by` is the key or person."""

    agent_id: str | None = None
    requested_by: str | None = None
    session_id: str | None = None
    folder: str | None = None
    host: str | None = None

    @property
    def identity_covered_by_approval(self) -> tuple[str, str] | None:
        """Return who an approval covers: the agent; without one the key that asked; else nobody."""
        if self.agent_id is not None:
            return ("agent", self.agent_id)
        return ("asker", self.requested_by) if self.requested_by is not None else None

    @property
    def possible_scopes(self) -> list[Scope]:
        """Return what an approval of its calls can cover, narrowest first."""
        scope_values = {Scope.SESSION: self.session_id, Scope.FOLDER: self.folder and self.host}
        return [scope for scope in Scope if scope_values.get(scope, True)]


UNKNOWN = "unknown"  # who asked for a row that another program wrote


def request_requester(request: PermissionRequest) -> Requester:
    """Return who asked for `request`, and from where."""
    context = request_context(request)
    if context is None:
        return Requester()
    requested_by = None if context.requested_by == UNKNOWN else context.requested_by
    return Requester(context.agent_id, requested_by, context.session_id, context.folder, context.host)


def hash_approval_coverage(call: str, requester: Requester, scope: Scope) -> str | None:
    """Return the digest by which a lasting approval of the call (`call_digest`) is found; None for this call alone."""
    if scope is Scope.CALL:
        return None
    scope_fields: dict[Scope, tuple[str | None, ...]] = {
        Scope.SESSION: (requester.session_id, requester.folder, requester.host),
        Scope.FOLDER: (requester.folder, requester.host),
    }
    return hash_json_parts(
        "cover", call, requester.identity_covered_by_approval, scope.value, scope_fields.get(scope, ())
    )


def find_covering_approval(
    subject: PermissionSubject, requester: Requester, now: datetime
) -> PermissionRequest | None:
    """Return the newest approval in force that covers this call by this requester, or None.

    One of a row that another program wrote names no asker: it covers everybody who asks as that plugin.
    """
    call = call_digest(subject)
    keys = {hash_approval_coverage(call, requester, scope) for scope in requester.possible_scopes}
    keys |= {hash_approval_coverage(call, Requester(), Scope.EVERYWHERE)}
    covering = PermissionContext.objects.filter(cover_key__in=keys - {None}).values("pk")
    covering_approval = active_approvals(now).filter(request_id__in=covering).first()
    return (
        covering_approval
        or find_legacy_approval(subject, requester.agent_id, now)
        or find_approval_by_other_program(subject, now)
    )


def active_approvals(now: datetime) -> Any:
    return PermissionRequest.objects.with_context().approvals_in_force(now).order_by("-id")


def find_legacy_approval(
    subject: PermissionSubject, agent_id: str | None, now: datetime
) -> PermissionRequest | None:
    """Return an approval from before scopes. It still covers what it said: everywhere, for the agent that it names.

    One for a masked secret covers nothing any more, nor does one whose input was edited.
    """
    keys = [call_digest(subject), legacy_call_digest(subject)]
    same = PermissionContext.objects.filter(
        Q(agent_id=None) | Q(agent_id=agent_id), scope=None, subject_key__in=keys
    )
    rows = active_approvals(now).filter(request_id__in=same.values("pk"))
    return next(
        (row for row in rows if approved_edited_input(row) is None and not has_masked_secrets(row)), None
    )


def has_masked_secrets(row: PermissionRequest) -> bool:
    subject = request_subject(row)
    return bool(find_masks_in_value([subject.target_resource, subject.tool_input]))


def find_approval_by_other_program(subject: PermissionSubject, now: datetime) -> PermissionRequest | None:
    """Return an approval that another program wrote: those tables know no tool and no input."""
    if subject.tool_name is not None or subject.tool_input is not None:
        return None
    rows = active_approvals(now).filter(
        context=None,
        plugin_id=subject.plugin_id,
        permission_type=subject.permission_type,
        target_resource=subject.target_resource,
    )
    foreign_approval: PermissionRequest | None = rows.first()
    return foreign_approval


def is_call_approved(
    plugin_id: str,
    permission_type: str,
    target: str | None,
    now: datetime | None = None,
    *,
    requester: Requester | None = None,
    tool_name: str | None = None,
    tool_input: Any = None,
) -> bool:
    """Say whether a person's approval in force covers exactly this. Anything unclear is a no."""
    subject = PermissionSubject(plugin_id, permission_type, target, tool_name, tool_input)
    return find_covering_approval(subject, requester or Requester(), now or timezone.now()) is not None
