"""A session with decisions, and an audit log that was changed by hand: `python -m tests.gallery.tampering`."""

from __future__ import annotations

import os

import django


def main() -> None:
    """Decide, seal, change one entry and cut off the end."""
    from django.contrib.auth.models import User
    from django.db import connection
    from django.utils import timezone

    from coordinator.actions import approvals, audit, sealing
    from coordinator.actions.approvals import NewRequest
    from coordinator.identity.actors import key, system
    from coordinator.models import AuditLog, Session
    from coordinator.policy.approvals import Subject, Validity

    now = timezone.now()
    Session.objects.create(session_id="ses_evidence", status="running", created_at=now)
    for command, verdict in (
        ("make deploy", "approved"),
        ("rm -rf build", "denied"),
        ("make test", "approved"),
    ):
        subject = Subject("mind.x", "ProcessExecution", "bash", "Bash", {"command": command})
        asked = NewRequest(subject, justification="The release is due", session_id="ses_evidence")
        row = approvals.request(asked, by=key("agent-key"), now=now).request
        approver = User.objects.get(username="approver")
        approvals.decide(
            row.request_id, by=approver, verdict=verdict, reason="Checked.", validity=Validity.ONCE, now=now
        )
    for number in range(3):
        audit.record("PLUGIN_UPDATED", actor=system("tests"), target=f"mind.{number}", result="success")
    sealing.seal(now)
    sealing.send_out(now)
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
