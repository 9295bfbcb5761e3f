"""The audit log."""

from __future__ import annotations

from django.urls import path

from dashboard.audit import proof_views as audit_proofs
from dashboard.audit import views as audit

app_name = "audit"

urlpatterns = [
    path("", audit.list_audit_entries, name="list"),
    path("export.csv", audit.export_audit_csv, name="csv"),
    path("export.ndjson", audit.export_audit_ndjson, name="ndjson"),
    path("verify/", audit_proofs.show_how_to_verify_proofs, name="verify"),
    path("verify/verify_audit.py", audit_proofs.download_proof_verifier, name="verifier"),
    path("<int:entry_id>/", audit.show_audit_entry, name="detail"),
    path("<int:entry_id>/proof/", audit_proofs.download_audit_proof, name="proof"),
]
