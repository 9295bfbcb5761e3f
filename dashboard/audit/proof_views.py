"""Proofs from the audit log: download one entry's proof, and how to verify it without Signalbox."""

from __future__ import annotations

from pathlib import Path

from django.contrib import messages
from django.http import FileResponse, Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from coordinator import transparency
from coordinator.identity.declarations import require_GET
from coordinator.models import AuditLog
from coordinator.transparency import keys, proofs, state
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest

VERIFIER = Path(transparency.__file__).parent / "verify_audit.py"


@require_GET
@require_viewer_role
def download_audit_proof(request: HtmxHttpRequest, entry_id: int) -> HttpResponse:
    """Return the proof file of one entry. If there is none, redirect to the entry's page with the reason."""
    row = AuditLog.objects.filter(pk=entry_id).first()
    if row is None:
        raise Http404("There is no such audit entry. Entries are deleted after 90 days.")
    try:
        proof = proofs.create_inclusion_proof_for_row(row)
    except proofs.ProofUnavailable as problem:
        messages.error(request, str(problem))
        return redirect("audit:detail", entry_id)
    answer = HttpResponse(proof.proof_file_text, content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="audit-{entry_id}.tlog-proof"'
    return answer


@require_GET
@require_viewer_role
def show_how_to_verify_proofs(request: HtmxHttpRequest) -> HttpResponse:
    """Show the log's public keys, its newest checkpoint, to whom it was sent, and how to verify a proof."""
    try:
        deliveries, setting_problem = state.list_checkpoint_deliveries(), ""
    except ValueError as problem:
        deliveries, setting_problem = [], str(problem)
    context = {
        "state": state.load_log_state(timezone.now()),
        "known": list(reversed(keys.load_log_verifiers())),
        "deliveries": deliveries,
        "setting_problem": setting_problem,
    }
    return render(request, "audit/verify.html", context)


@require_GET
@require_viewer_role
def download_proof_verifier(_request: HtmxHttpRequest) -> FileResponse:
    """Return the program that verifies proofs and exports."""
    return FileResponse(
        VERIFIER.open("rb"), as_attachment=True, filename="verify_audit.py", content_type="text/x-python"
    )
