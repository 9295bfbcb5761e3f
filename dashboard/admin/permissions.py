"""Permission requests, read-only: people decide them on the approvals pages."""

from __future__ import annotations

from django.contrib import admin

from coordinator.models import PermissionRequest
from coordinator.models.permissions import RequestStatus
from dashboard.admin import columns
from dashboard.admin.filters import build_choice_filter_class, build_period_filter_class
from dashboard.admin.options import ViewOnlyAdmin


@admin.register(PermissionRequest)
class PermissionRequestAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code_column("request_id", label="request"),
        columns.state_column("status"),
        columns.reference_column("plugin_id", "coordinator_pluginsetting"),
        columns.text_column("permission_type", label="permission"),
        columns.code_column("target_resource", label="target"),
        columns.text_column("justification"),
        columns.text_column("approved_by", label="decided by"),
        columns.time_column("created_at"),
        columns.time_column("approved_at", label="decided"),
        columns.time_column("expires_at"),
    )
    list_filter = (
        build_choice_filter_class("status", RequestStatus.values),
        build_period_filter_class("created_at"),
    )
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
