"""What leaves the machine holds no secrets and hides nothing, whoever wrote the row."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from coordinator.models import Notification, NotificationTarget
from coordinator.notifications import messages, webhook_messages
from tests.approvals.factories import NOW, fresh, stored

pytestmark = pytest.mark.django_db
SECRET = "ghp_" + "a1B2" * 9


def test_a_row_of_another_program_leaves_without_its_secrets(alice: User) -> None:
    row = fresh(stored(plugin_id=f"mind.{SECRET}", justification=f"Because {SECRET}\nis due"))
    target = NotificationTarget.objects.create(person="alice", kind="webhook", address="x", created_at=NOW)
    message = Notification.objects.create(target=target, request_id=row.request_id, created_at=NOW)
    told = messages.build_message_text(message, row, NOW)
    assert SECRET not in f"{told}{webhook_messages.build_webhook_payload(message, row, NOW)}"
    assert told.text.startswith("Because [masked: ")
    assert "\nis due" in told.text


def test_a_line_shows_what_an_eye_would_miss() -> None:
    assert (
        messages.clean_foreign_text_to_one_line("mind.x\u202ecod.exe\r\nBcc: eve\x1b[0m")
        == "mind.x\ufffdcod.exe Bcc: eve\ufffd[0m"
    )


def test_what_is_cut_shows_no_half_of_a_secret() -> None:
    """A mask is shorter than what it stands for: what stood far beyond the end moves into it."""
    text = " ".join(["github_pat_" + "a1B2" * 20 + "aa"] * 1000)
    for beginning in range(93):
        assert "a1B2" not in messages.clean_foreign_text_keeping_lines("x" * beginning + " " + text)
    assert len(messages.clean_foreign_text_to_one_line(text)) == messages.LONGEST_TITLE
