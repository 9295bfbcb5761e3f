"""Known hosts of a project: those of the calls that people approved, which no longer count as new."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordinator.models import KnownHost, PermissionRequest
from coordinator.models.permissions import RequestStatus
from coordinator.policy.requests import approvals
from coordinator.policy.rules.call_text import (
    CallText,
    build_requested_call_text,
    copy_call_text_with_folder,
)
from coordinator.policy.rules.history_queries import MOST_HOSTS, load_project_folder_or_default

MOST_EARLIER = 1_000  # approvals from before such a rule that are looked at, the newest


def save_hosts_of_approved_request(row: PermissionRequest, now: datetime) -> None:
    """Note the hosts that the call of an approved request reaches. Must be called in the approval's transaction."""
    context = approvals.request_context(row)
    subject = approvals.request_subject(row)
    if context is None or not subject.tool_name:
        return
    edited = approvals.approved_edited_input(row)
    tool_input: Any = subject.tool_input if edited is None else edited
    text = copy_call_text_with_folder(
        build_requested_call_text(subject.tool_name, tool_input, subject.target_resource or ""),
        context.folder,
    )
    if not isinstance(text, CallText):
        return
    call = text.describe_call(subject.tool_name)
    hosts = sorted({address.host for address in call.addresses if address.host})[:MOST_HOSTS]
    if not hosts:
        return
    folder = load_project_folder_or_default(context.session_id, context.folder)
    KnownHost.objects.bulk_create(
        [
            KnownHost(
                folder=folder,
                host=host,
                request_id=row.request_id,
                approved_by=row.approved_by or "",
                approved_at=row.approved_at or now,
            )
            for host in hosts
        ],
        ignore_conflicts=True,
    )


def delete_hosts_of_revoked_request(row: PermissionRequest) -> None:
    """Forget the hosts that are known by a request whose approval is revoked."""
    KnownHost.objects.filter(request_id=row.request_id).delete()


def save_hosts_of_earlier_approvals(now: datetime) -> None:
    """Note the hosts of what people approved before there was a rule about new hosts, as far as it is looked at."""
    rows = PermissionRequest.objects.with_context().filter(
        status=RequestStatus.APPROVED, context__tool_name__isnull=False, context__revoked_at=None
    )
    newest_ids = list(rows.order_by("-id").values_list("pk", flat=True)[:MOST_EARLIER])
    # The oldest first: a host is known from its first approval on.
    for row in rows.filter(pk__gte=min(newest_ids, default=0)).order_by("id").iterator(50):
        save_hosts_of_approved_request(row, now)
