"""The page of jobs: what it shows, and that an administrator, and nobody else, has one done at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from coordinator.models import AuditLog, Job, Notification, NotificationTarget
from tests.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_sidebar")]
LIST = "/admin/coordinator/job/"


def job(name: str = "audit:seal", **columns: Any) -> Job:
    now = timezone.now()
    times = {"next_at": now + timedelta(hours=1), "chosen_at": now}
    return Job.objects.create(**({"name": name} | times | columns))


def test_the_list_shows_what_waits_who_does_what_and_what_went_wrong() -> None:
    ends = timezone.now() + timedelta(seconds=20)
    job("prune")
    job("feed:prune", leased_by="host-7:4242", leased_until=ends, attempts=1)
    job("audit:seal", error="The key cannot be read.", attempts=3)
    client = signed_in("admin")
    page = client.get(LIST).content.decode()
    for words in ("prune", "host-7:4242", "The key cannot be read.", "Running", "Failed", "Waiting"):
        assert words in page
    for state, name in (("running", "feed:prune"), ("failed", "audit:seal"), ("waiting", "prune")):
        rows = client.get(f"{LIST}?state={state}").context["cl"].result_list
        assert [row.name for row in rows] == [name]


def test_an_administrator_has_a_job_done_at_once() -> None:
    row = job(error="No route.", attempts=2)
    answer = signed_in("admin").post(LIST, {"action": "run_now", "_selected_action": [row.pk]}, follow=True)
    assert "1 job starts within seconds." in answer.content.decode()
    row.refresh_from_db()
    assert row.next_at <= timezone.now()
    entry = AuditLog.objects.get(event_type="JOB_RUN_NOW")
    assert (entry.target_id, entry.metadata) == ("job:audit:seal", {"attempts": 2, "error": "No route."})


def test_a_job_that_is_being_done_is_left() -> None:
    row = job(leased_by="host-7:4242", leased_until=timezone.now() + timedelta(seconds=20))
    answer = signed_in("admin").post(LIST, {"action": "run_now", "_selected_action": [row.pk]}, follow=True)
    assert "This job is being done by host-7:4242." in answer.content.decode()
    assert not AuditLog.objects.filter(event_type="JOB_RUN_NOW").exists()


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_nobody_else_does(role: str) -> None:
    row = job()
    signed_in(role).post(LIST, {"action": "run_now", "_selected_action": [row.pk]})
    assert Job.objects.get().next_at > timezone.now()


def test_an_administrator_gives_up_a_message_and_nothing_else() -> None:
    now = timezone.now()
    target = NotificationTarget.objects.create(person="ada", kind="email", address="a@x.test", created_at=now)
    message = Notification.objects.create(target=target, request_id="", created_at=now)
    rows = [job("notifications:send", subject=str(message.pk)), job()]
    chosen = {"action": "give_up", "_selected_action": [row.pk for row in rows]}
    page = signed_in("admin").post(LIST, chosen, follow=True).content.decode()
    assert "1 message was given up." in page
    assert "udit:seal is done again and again. Only messages can be given up." in page
    assert [row.name for row in Job.objects.all()] == ["audit:seal"]
    message.refresh_from_db()
    assert message.state == "failed"
