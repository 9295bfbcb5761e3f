"""Evidence about one session as a ZIP file: what happened, who was asked, who decided what, and the proofs.

The file can be read without Signalbox: it contains Markdown, JSON and proof files, and verify_audit.py to
check them.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from django.db.models import Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat

from coordinator import transparency
from coordinator.actions.audit.decision_events import VERDICTS
from coordinator.models import AuditLeaf, AuditLog, Grant, Note, PermissionRequest, Run, Session
from coordinator.policy.requests.approvals import canonical_instant_or_text
from coordinator.policy.requests.judged_content import judged_content_for_audit
from coordinator.policy.rules import tool_rules
from coordinator.sessions.timeline.walking import walk_session_events
from coordinator.transparency import entries, keys, proofs
from dashboard.sessions.decision_policy import PolicyInForce, load_all_rules_by_version, read_policy_in_force
from dashboard.sessions.views.events import export_event_as_dict
from dashboard.timeline.as_markdown import iterate_session_markdown

MOST_ENTRIES = 1_000  # audit entries in one file
IN_MEMORY = 16 * 1024 * 1024  # bytes; a larger file is written to disk
# Prefixes of the audit events of policy changes.
POLICY = ("GRANT", "TOOL_RULES", "MCP_SERVER", "MCP_TOOL_ACCEPTED", "MCP_TOOL_DECLINED", "AGENT")

README = """\
Evidence for the session {session}

timeline.md        what the agent did and said, to read
events.ndjson      the same as it was recorded, one JSON object a line
requests.json      what people were asked, and the outcome
decisions.json     each decided call: who or what decided, and which rules and grants were in force then
audit.ndjson       the audit entries of this session, its requests, runs and notes, in the form that was signed
proofs/            for each sealed entry, the proof that it is in the signed log
policy.ndjson      every audited change to rules and grants up to the session's last decision
policy.json        rules and grants as they were when this file was made
verify_audit.py    checks a proof: python verify_audit.py proofs/audit-N.tlog-proof --key 'KEY'
keys.txt           the public keys of the log, newest first, as this server says

Compare the key with one that you got elsewhere: whoever could forge this file could put a key of their own beside it.
{problems}
"""


@dataclass(frozen=True, slots=True)
class SessionAuditEntry:
    """An audit entry of the session, and its state in the signed log."""

    row: AuditLog
    entry: proofs.LogEntryStatus

    @property
    def policy_in_force(self) -> PolicyInForce | None:
        """The policy in force for the decided call; None if the entry is not about a decision."""
        return read_policy_in_force(self.row) if self.row.event_type in VERDICTS else None


def filter_session_permission_requests(session: Session) -> QuerySet[PermissionRequest]:
    """Return the permission requests that the session's agent made, oldest first."""
    return PermissionRequest.objects.filter(context__session_id=session.pk).order_by("created_at", "pk")


def load_session_audit_entries(session: Session) -> list[SessionAuditEntry]:
    """Return audit entries about the session and its requests, runs and notes, oldest first; at most MOST_ENTRIES."""
    request_ids = filter_session_permission_requests(session).values("request_id")
    run_ids = Run.objects.filter(session=session).values("run_id")
    note_targets = Note.objects.filter(session=session).values(
        target=Concat(Value("note:"), Cast("pk", TextField()), output_field=TextField())
    )
    about = Q(target_id=session.pk)
    for target_ids in (request_ids, run_ids, note_targets):
        about |= Q(target_id__in=target_ids)
    audit_logs = AuditLog.objects.filter(about)
    # An agent with very many requests must not displace the decisions.
    decided = list(audit_logs.filter(event_type__in=VERDICTS).order_by("pk")[:MOST_ENTRIES])
    other_entries = audit_logs.exclude(event_type__in=VERDICTS).order_by("pk")[: MOST_ENTRIES - len(decided)]
    rows = sorted([*decided, *other_entries], key=lambda row: row.pk)
    return [
        SessionAuditEntry(row, entry)
        for row, entry in zip(rows, proofs.verify_and_load_entry_statuses(rows), strict=True)
    ]


def open_temporary_evidence_zip(session: Session) -> IO[bytes]:
    """Return the ZIP file, positioned at its beginning. The caller closes it."""
    session_audit_entries = load_session_audit_entries(session)
    file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - the caller closes it
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        write_evidence_files(archive, session, session_audit_entries)
    file.seek(0)
    return file


def write_evidence_files(
    archive: zipfile.ZipFile, session: Session, entries: list[SessionAuditEntry]
) -> None:
    archive.writestr(
        "README.txt", README.format(session=session.pk, problems=describe_evidence_problems(entries))
    )
    write_zip_lines(archive, "timeline.md", iterate_session_markdown(session))
    write_zip_lines(
        archive,
        "events.ndjson",
        (format_ndjson_line(export_event_as_dict(event)) for event in walk_session_events(session)),
    )
    archive.writestr(
        "requests.json",
        format_evidence_json(
            [
                permission_request_evidence_dict(row)
                for row in filter_session_permission_requests(session).select_related("context")
            ]
        ),
    )
    archive.writestr("decisions.json", format_evidence_json(list_session_decisions(entries)))
    write_zip_lines(
        archive,
        "audit.ndjson",
        (
            audit_entry.entry.canonical.decode() + "\n"
            for audit_entry in entries
            if audit_entry.entry.canonical
        ),
    )
    for audit_entry in entries:
        if audit_entry.entry.state is proofs.EntryState.SEALED:
            archive.writestr(
                f"proofs/audit-{audit_entry.row.pk}.tlog-proof",
                proofs.build_sealed_entry_inclusion_proof(audit_entry.entry).proof_file_text,
            )
    archive.writestr("policy.json", format_evidence_json(rules_and_grants_as_dict()))
    write_zip_lines(archive, "policy.ndjson", iterate_canonical_policy_entries(entries))
    archive.writestr(
        "keys.txt", "".join(f"{key.public_key_text}\n" for key in reversed(keys.load_log_verifiers()))
    )
    archive.write(Path(transparency.__file__).parent / "verify_audit.py", "verify_audit.py")


def write_zip_lines(archive: zipfile.ZipFile, name: str, lines: Iterable[str]) -> None:
    with archive.open(name, "w") as part:
        for line in lines:
            part.write(line.encode(errors="backslashreplace"))


def format_ndjson_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) + "\n"


def format_evidence_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def describe_evidence_problems(entries: list[SessionAuditEntry]) -> str:
    wrong = [
        f"Entry {audit_entry.entry.index} (audit row {audit_entry.row.pk}): {audit_entry.entry.problem}"
        for audit_entry in entries
        if audit_entry.entry.problem
    ]
    waiting = sum(audit_entry.entry.state is proofs.EntryState.WAITING for audit_entry in entries)
    lines = ["\nDO NOT TRUST:", *wrong] if wrong else []
    if len(entries) == MOST_ENTRIES:
        lines.append(f"\nCUT: there are more than {MOST_ENTRIES} entries. The others are in the audit log.")
    if waiting:
        lines.append(f"\nEntries without a proof, because the log was not sealed yet: {waiting}")
    return "\n".join(lines)


def permission_request_evidence_dict(row: PermissionRequest) -> dict[str, Any]:
    decided = {
        "status": row.status,
        "decided_by": row.approved_by,
        "decided_at": canonical_instant_or_text(row.approved_at),
    }
    request_fields = {
        "request_id": row.request_id,
        "asked_at": canonical_instant_or_text(row.created_at),
        "until": canonical_instant_or_text(row.expires_at),
    }
    return request_fields | decided | judged_content_for_audit(row)


def list_session_decisions(entries: list[SessionAuditEntry]) -> list[dict[str, Any]]:
    """Return each decision with the rules and grants in force that its audit entry records."""
    rules = load_all_rules_by_version()
    return [
        {
            "audit_row": decision_row.row.pk,
            "entry": decision_row.entry.index,
            "at": canonical_instant_or_text(decision_row.row.timestamp),
            "decision": VERDICTS[decision_row.row.event_type],
            "decided_by": decision_row.row.actor_id,
            "request_id": decision_row.row.target_id,
            "reason": decision_row.row.reason,
            "in_force": decision_row.policy_in_force.export_as_dict(rules),
        }
        for decision_row in entries
        if decision_row.policy_in_force is not None
    ]


def rules_and_grants_as_dict() -> dict[str, Any]:
    saved = tool_rules.load_saved_tool_rules()
    rules = [{name: getattr(rule, name) for name in tool_rules.DecisionRule.__slots__} for rule in saved]
    grants = list(Grant.objects.order_by("pk").values())
    return {"rules_version": tool_rules.digest_tool_rules(saved), "rules": rules, "grants": grants}


def iterate_canonical_policy_entries(changes: list[SessionAuditEntry]) -> Iterator[str]:
    """Yield the canonical entries of changes to rules and grants up to the session's last entry."""
    if not changes:
        return
    about_policy = Q()
    for begin in POLICY:
        about_policy |= Q(event_type__startswith=begin)
    rows = AuditLog.objects.filter(about_policy, pk__lte=changes[-1].row.pk).order_by("pk")[:MOST_ENTRIES]
    ids = [row.pk for row in rows]
    stored = entries.load_audit_columns_by_id(ids)
    own_by_id = dict(AuditLeaf.objects.filter(pk__in=ids).values_list("pk", "by_signalbox"))
    for pk, columns in sorted(stored.items()):
        yield (
            entries.encode_canonical_audit_entry(columns, by_signalbox=own_by_id.get(pk, False)).decode()
            + "\n"
        )
