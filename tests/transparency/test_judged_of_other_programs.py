"""The digest of what was judged fits what the entry shows, also of rows of other programs with secrets."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from coordinator.actions import approvals
from coordinator.models import AuditLog
from coordinator.policy.requests.approvals import Scope, Validity
from coordinator.policy.requests.judged_content import canonical_json_bytes
from tests.approvals.factories import NOW, asked, person, stored

pytestmark = pytest.mark.django_db
SECRETS = (
    "password=hunter2hunter2 and sk-ant-api03-"
    + "a1B2c3D4" * 12
    + " at https://user:Passw0rd99@host.example/ ghp_"
    + "aB3d" * 9
)


def digest_holds(row: Any) -> None:
    entry = AuditLog.objects.get(event_type="PERMISSION_REQUEST_APPROVED", target_id=row.request_id)
    assert (
        entry.metadata["judged_sha256"]
        == hashlib.sha256(canonical_json_bytes(entry.metadata["judged"])).hexdigest()
    )


@pytest.mark.parametrize("justification", [SECRETS, "x", "api_key: " + "q9" * 3000, "Bearer " + "zX9" * 40])
def test_foreign(justification: str) -> None:
    row = stored(justification=justification, target_resource="https://u:Passw0rd99@h.example/")
    approvals.decide_request(
        row.request_id, person=person(), verdict="approved", validity=Validity.ONCE, scope=Scope.CALL, now=NOW
    )
    digest_holds(row)


@pytest.mark.parametrize("justification", [SECRETS, "x", "api_key: " + "q9" * 300, "Bearer " + "zX9" * 40])
@pytest.mark.parametrize(
    "tool_input",
    [
        {"command": "curl -u a:Passw0rd99 " + SECRETS},
        {"password": "hunter2hunter2", "n": ["token=abcabcabcabc123"]},
    ],
)
def test_own(justification: str, tool_input: Any) -> None:
    row = asked(justification=justification, tool_input=tool_input, folder="/srv/password=hunter2hunter2")
    approvals.decide_request(
        row.request_id, person=person(), verdict="approved", validity=Validity.ONCE, scope=Scope.CALL, now=NOW
    )
    digest_holds(row)


def test_very_many_secrets() -> None:
    text = " ".join(f"password=hunter{n}hunter{n}x" for n in range(150))
    row = stored(justification=text)
    approvals.decide_request(
        row.request_id, person=person(), verdict="approved", validity=Validity.ONCE, scope=Scope.CALL, now=NOW
    )
    digest_holds(row)


def test_denied_foreign() -> None:
    row = stored(justification=SECRETS)
    approvals.decide_request(row.request_id, person=person(), verdict="denied", now=NOW)
    entry = AuditLog.objects.get(event_type="PERMISSION_REQUEST_DENIED")
    assert (
        entry.metadata["judged_sha256"]
        == hashlib.sha256(canonical_json_bytes(entry.metadata["judged"])).hexdigest()
    )
