"""The audit log."""

from __future__ import annotations

from django.urls import path

from dashboard.views import audit, audit_proofs

app_name = "audit"

urlpatterns = [
    path("", audit.log, name="list"),
    path("export.csv", audit.export_csv, name="csv"),
    path("export.ndjson", audit.export_ndjson, name="ndjson"),
    path("verify/", audit_proofs.verify, name="verify"),
    path("verify/verify_audit.py", audit_proofs.verifier, name="verifier"),
    path("<int:entry_id>/", audit.entry, name="detail"),
    path("<int:entry_id>/proof/", audit_proofs.proof, name="proof"),
]
