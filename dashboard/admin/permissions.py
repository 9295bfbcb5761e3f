"""Permission requests, to read: people decide them on their own pages."""

from __future__ import annotations

from django.contrib import admin

from coordinator.models import PermissionRequest
from coordinator.models.permissions import RequestStatus
from dashboard.admin import columns
from dashboard.admin.filters import period, words
from dashboard.admin.options import ViewOnlyAdmin


@admin.register(PermissionRequest)
class PermissionRequestAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code("request_id", label="request"),
        columns.word("status"),
        columns.reference("plugin_id", "coordinator_pluginsetting"),
        columns.text("permission_type", label="permission"),
        columns.code("target_resource", label="target"),
        columns.text("justification"),
        columns.text("approved_by", label="decided by"),
        columns.moment("created_at"),
        columns.moment("approved_at", label="decided"),
        columns.moment("expires_at"),
    )
    list_filter = (words("status", RequestStatus.values), period("created_at"))
    list_without = ("metadata",)
    search_fields = (
        "request_id",
        "plugin_id",
        "permission_type",
        "target_resource",
        "justification",
        "approved_by",
    )
    ordering = ("-created_at",)
