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

from coordinator.actions import approvals, runs
from coordinator.actions.policy import grants
from coordinator.actions.policy.tool_rules import replace_tool_rules as save_rules
from coordinator.actions.sessions import notes
from coordinator.actions.sessions.tool_calls import audit_policy_ruling
from coordinator.identity.actors import person_actor, system_actor
from coordinator.models import Agent, AuditLog, McpServer, Note, Session
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.requests.approvals import canonical_json_bytes
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules import tool_rules
from coordinator.runs.statuses import START
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
    approvals.decide_request(
        row.request_id, person=people["approver"], verdict="approved", reason="Checked.", now=now
    )
    seal()
    return row.request_id


def downloaded(client: Client) -> zipfile.ZipFile:
    answer = client.get(reverse("sessions:evidence-zip", args=["ses_evidence"]))
    assert answer.headers["Content-Type"] == "application/zip"
    return zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))  # type: ignore[attr-defined]


def test_the_file_alone_shows_who_approved_exactly_what(
    people: dict[str, User], decided: str, tmp_path: Path
) -> None:
    key = keys.load_or_create_audit_signer().public_verifier.public_key_text
    with downloaded(callers.browser(people["viewer"])) as made:
        assert made.testzip() is None
        made.extractall(tmp_path)
    row = AuditLog.objects.get(event_type="PERMISSION_REQUEST_APPROVED")
    done = subprocess.run(
        [sys.executable, "verify_audit.py", f"proofs/audit-{row.pk}.tlog-proof", "--key", key],
        cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Who:        user:approver\n" in done.stdout
    assert "What:       PERMISSION_REQUEST_APPROVED\n" in done.stdout
    assert 'Input:      {"command": "make deploy — now"}\n' in done.stdout
    assert "actor_id: user:approver" in done.stdout
    assert '"command": "make deploy — now"' in done.stdout
    assert f"target_id: {decided}" in done.stdout
    assert (tmp_path / "keys.txt").read_text() == f"{key}\n"
    (request,) = json.loads((tmp_path / "requests.json").read_text())
    assert (request["status"], request["decided_by"]) == ("approved", "approver")


def test_the_digest_in_the_entry_is_of_what_was_judged(decided: str) -> None:
    metadata: Any = AuditLog.objects.get(event_type="PERMISSION_REQUEST_APPROVED").metadata
    assert metadata["judged_sha256"] == hashlib.sha256(canonical_json_bytes(metadata["judged"])).hexdigest()
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


def saved_rule(tool: str, verdict: str, **more: Any) -> None:
    before = tool_rules.digest_tool_rules(tool_rules.load_saved_tool_rules())
    wanted = [tool_rules.DecisionRule(1, tool, verdict, **more)]
    save_rules(wanted, seen_version=before, actor=system_actor("tests"), now=timezone.now())


def test_each_decision_says_which_rules_and_grants_were_in_force_then(people: dict[str, User]) -> None:
    session_id, now = "ses_evidence", timezone.now()
    Session.objects.create(session_id=session_id, status="running", created_at=now)
    McpServer.objects.create(name="files", command="x", args=[], default_policy="opt-in", created_at=now)
    Agent.objects.create(
        id="agent.a", name="A", description="", default_engine_id="x", required_capabilities=[], metadata={}
    )
    asked = {"tool_name": "mcp__files__write", "session_id": session_id, "agent_id": "agent.a", "now": now}
    saved_rule("mcp__*", "ask")
    first = factories.asked(tool_input={"path": "a"}, **asked)
    approvals.decide_request(first.request_id, person=people["approver"], verdict="approved", now=now)
    saved_rule("mcp__*", "ask", reason="Look twice.")
    edit = GrantEdit("agent.a", "files", "write", "allow", None, "For the release.")
    grants.apply_grant_edits([edit], actor=person_actor(people["admin"]), now=now)
    second = factories.asked(tool_input={"path": "b"}, **asked)
    approvals.decide_request(second.request_id, person=people["approver"], verdict="denied", now=now)
    seal()
    client = callers.browser(people["viewer"])
    with downloaded(client) as made:
        before, after = json.loads(made.read("decisions.json"))
    assert (before["decision"], after["decision"]) == ("approved", "denied")
    assert [one["in_force"]["rules"][0]["reason"] for one in (before, after)] == ["", "Look twice."]
    assert before["in_force"]["grants"] == []
    (grant,) = after["in_force"]["grants"]
    assert (grant["permission"], grant["tool_name"], grant["justification"]) == (
        "allow",
        "write",
        "For the release.",
    )
    assert after["in_force"]["defaults"] == {"files": "opt-in"}
    shown = client.get(reverse("sessions:evidence", args=[session_id])).content.decode()
    assert f"grant {grant['id']}: allow files.write" in shown


def test_rules_that_are_not_those_of_the_decision_are_not_told(decided: str, people: dict[str, User]) -> None:
    saved_rule("Bash", "deny")
    entry = AuditLog.objects.get(event_type="PERMISSION_REQUEST_APPROVED")
    metadata: Any = entry.metadata
    metadata["rules_version"] = "0" * 16
    AuditLog.objects.filter(pk=entry.pk).update(metadata=metadata)
    with downloaded(callers.browser(people["viewer"])) as made:
        (told,) = json.loads(made.read("decisions.json"))
    assert told["in_force"]["rules"] is None
    assert "no longer in the audit log" in told["in_force"]["rules_unknown"]


def test_a_call_that_a_rule_decided_says_which(people: dict[str, User]) -> None:
    Session.objects.create(session_id="ses_evidence", status="running", created_at=timezone.now())
    rule = tool_rules.DecisionRule(1, "Bash", "deny", "rm -rf", reason="Never.")
    ruling = tool_rules.tool_ruling_or_no_opinion([rule], "Bash", "rm -rf /", None)
    asked = ToolCallRequest("PreToolUse", "ses_evidence", None, 0, "Bash", {}, "rm -rf /", "claude-code")
    audit_policy_ruling(asked, ruling, actor=system_actor("tests"), now=timezone.now())
    with downloaded(callers.browser(people["viewer"])) as made:
        (told,) = json.loads(made.read("decisions.json"))
    assert told["decision"] == "denied"
    assert (told["in_force"]["rule"]["pattern"], told["in_force"]["rule"]["reason"]) == ("rm -rf", "Never.")


def test_the_file_has_the_entries_of_the_sessions_runs_and_notes_and_of_no_other(
    people: dict[str, User],
) -> None:
    now, actor = timezone.now(), person_actor(people["approver"])
    targets = []
    for session_id in ("ses_evidence", "ses_other"):
        run = runs.queue_start_or_resume_run(
            kind=START, prompt="x", session_id=session_id, actor=actor, now=now
        )
        note = Note.objects.create(session_id=session_id, text="x", written_at=now, written_by="approver")
        notes.record_note_audit("NOTE_WRITTEN", note, actor, now)
        targets.append({(run.run_id, "RUN_CREATED"), (f"note:{note.pk}", "NOTE_WRITTEN")})
    seal()
    with downloaded(callers.browser(people["viewer"])) as made:
        lines = made.read("audit.ndjson").decode().splitlines()
        proofs = [name for name in made.namelist() if name.startswith("proofs/")]
    entries = [json.loads(line) for line in lines]
    assert {(entry["target_id"], entry["event_type"]) for entry in entries} == targets[0]
    assert len(proofs) == len(entries) == 2
