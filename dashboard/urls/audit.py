"""The audit log."""

from __future__ import annotations

from django.urls import path

from dashboard.views import audit

app_name = "audit"

urlpatterns = [
    path("", audit.log, name="list"),
    path("export.csv", audit.export_csv, name="csv"),
    path("export.ndjson", audit.export_ndjson, name="ndjson"),
    path("<int:entry_id>/", audit.entry, name="detail"),
]
