"""A session with decisions, and an audit log that was changed by hand: `python -m tests.gallery.tampering`."""

from __future__ import annotations

import os

import django


def main() -> None:
    """Decide, seal, change one entry and cut off the end."""
    from django.contrib.auth.models import User
    from django.db import connection
    from django.utils import timezone

    from coordinator.actions import approvals
    from coordinator.actions.approvals import NewPermissionRequest
    from coordinator.actions.audit import audit, sealing
    from coordinator.identity.actors import key_actor_by_name, system_actor
    from coordinator.models import AuditLog, Session
    from coordinator.policy.requests.approvals import PermissionSubject, Validity

    now = timezone.now()
    Session.objects.create(session_id="ses_evidence", status="running", created_at=now)
    for command, verdict in (
        ("make deploy", "approved"),
        ("rm -rf build", "denied"),
        ("make test", "approved"),
    ):
        subject = PermissionSubject("mind.x", "ProcessExecution", "bash", "Bash", {"command": command})
        asked = NewPermissionRequest(subject, justification="The release is due", session_id="ses_evidence")
        row = approvals.request_permission(asked, actor=key_actor_by_name("agent-key"), now=now).request
        approver = User.objects.get(username="approver")
        approvals.decide_request(
            row.request_id,
            person=approver,
            verdict=verdict,
            reason="Checked.",
            validity=Validity.ONCE,
            now=now,
        )
    for number in range(3):
        audit.record_audit_entry(
            "PLUGIN_UPDATED", actor=system_actor("tests"), target=f"mind.{number}", result="success"
        )
    sealing.sign_audit_checkpoint(now)
    sealing.send_pending_checkpoints(now)
    changed = AuditLog.objects.filter(event_type="PERMISSION_REQUEST_APPROVED").order_by("pk").first()
    assert changed is not None
    cut = list(AuditLog.objects.order_by("-pk").values_list("pk", flat=True)[:2])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE audit_logs SET actor_id = 'user:mallory' WHERE id = %s", [changed.pk])
        for pk in cut:
            cursor.execute("DELETE FROM audit_leaves WHERE audit_id = %s", [pk])
            cursor.execute("DELETE FROM audit_logs WHERE id = %s", [pk])


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    main()
