"""A session's evidence: who approved exactly which command, provable with the file alone."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.models import AuditLog, Session
from coordinator.policy.approvals import canonical
from coordinator.transparency import keys
from tests.approvals import factories
from tests.guards import callers
from tests.transparency.conftest import seal

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def people() -> dict[str, User]:
    return callers.people()


@pytest.fixture
def decided(people: dict[str, User]) -> str:
    """A session whose one dangerous call was approved; gives the request's id."""
    session_id = "ses_evidence"
    now = timezone.now()
    Session.objects.create(session_id=session_id, status="running", created_at=now)
    row = factories.asked(tool_input={"command": "make deploy — now"}, session_id=session_id, now=now)
    approvals.decide(row.request_id, by=people["approver"], verdict="approved", reason="Checked.", now=now)
    seal()
    return row.request_id


def downloaded(client: Client) -> zipfile.ZipFile:
    answer = client.get(reverse("sessions:evidence-zip", args=["ses_evidence"]))
    assert answer.headers["Content-Type"] == "application/zip"
    return zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))  # type: ignore[attr-defined]


def test_the_file_alone_shows_who_approved_exactly_what(
    people: dict[str, User], decided: str, tmp_path: Path
) -> None:
    key = keys.signer().verifier.text
    with downloaded(callers.browser(people["viewer"])) as made:
        assert made.testzip() is None
        made.extractall(tmp_path)
    row = AuditLog.objects.get(event_type="PERMISSION_REQUEST_APPROVED")
    done = subprocess.run(
        [sys.executable, "verify_audit.py", f"proofs/audit-{row.pk}.tlog-proof", "--key", key],
        cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "actor_id: user:approver" in done.stdout
    assert '"command": "make deploy — now"' in done.stdout
    assert f"target_id: {decided}" in done.stdout
    assert (tmp_path / "keys.txt").read_text() == f"{key}\n"
    (request,) = json.loads((tmp_path / "requests.json").read_text())
    assert (request["status"], request["decided_by"]) == ("approved", "approver")


def test_the_digest_in_the_entry_is_of_what_was_judged(decided: str) -> None:
    metadata: Any = AuditLog.objects.get(event_type="PERMISSION_REQUEST_APPROVED").metadata
    assert metadata["judged_sha256"] == hashlib.sha256(canonical(metadata["judged"])).hexdigest()
    assert metadata["judged"]["tool_input"] == {"command": "make deploy — now"}
    assert metadata["rules_version"]


def test_the_page_marks_what_was_altered_and_the_file_says_so(people: dict[str, User], decided: str) -> None:
    client = callers.browser(people["viewer"])
    page = reverse("sessions:evidence", args=["ses_evidence"])
    assert "Do not trust" not in client.get(page).content.decode()
    AuditLog.objects.filter(event_type="PERMISSION_REQUEST_APPROVED").update(actor_id="user:mallory")
    assert "Do not trust all of this" in client.get(page).content.decode()
    with downloaded(client) as made:
        assert "DO NOT TRUST" in made.read("README.txt").decode()
        assert len([name for name in made.namelist() if name.startswith("proofs/")]) == 1


def test_a_session_in_which_nobody_was_asked(people: dict[str, User]) -> None:
    Session.objects.create(session_id="ses_evidence", status="finished", created_at=timezone.now())
    client = callers.browser(people["viewer"])
    assert (
        "Nobody was asked" in client.get(reverse("sessions:evidence", args=["ses_evidence"])).content.decode()
    )
    with downloaded(client) as made:
        assert made.read("requests.json") == b"[]"
