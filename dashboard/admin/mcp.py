"""MCP servers, which can be edited here, and grants, read-only.

People edit grants (`mcp_access_control`) on the page MCP.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from coordinator.actions.mcp import mcp_servers
from coordinator.identity.actors import Actor
from coordinator.models import Grant, McpServer
from coordinator.models.mcp import DefaultPolicy, EntryType, GrantPermission
from dashboard.admin import columns
from dashboard.admin.filters import (
    build_choice_filter_class,
    build_period_filter_class,
    build_presence_filter_class,
)
from dashboard.admin.forms import StoredForm
from dashboard.admin.options import ActionAdmin, ViewOnlyAdmin


class McpServerForm(StoredForm):
    """The form of a server. An unknown stored default policy, which denies, is offered as it is."""

    default_policy = forms.ChoiceField(label="Calls without a grant", initial=DefaultPolicy.OPT_IN.value)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        help_parts = [
            (DefaultPolicy.OPT_IN.value, "denied"),
            (DefaultPolicy.OPT_OUT.value, "allowed"),
        ]
        stored = self.instance.default_policy
        if stored not in DefaultPolicy.values:
            help_parts.append((stored, f"{stored}: as stored, denied"))
        self.fields["default_policy"].choices = help_parts  # type: ignore[attr-defined]


@admin.register(McpServer)
class McpServerAdmin(ActionAdmin):
    """MCP servers: how each is started, and its policy for calls without a grant."""

    form = McpServerForm
    list_display = (
        columns.code_column("name"),
        columns.flag_column("is_active", label="state"),
        columns.state_column("default_policy"),
        columns.code_column("command"),
        columns.text_column("description"),
        columns.time_column("created_at"),
    )
    list_filter = (
        "is_active",
        build_choice_filter_class("default_policy", DefaultPolicy.values),
        build_period_filter_class("created_at"),
    )
    list_without = ("script_content",)
    search_fields = ("name", "command", "args", "description")
    ordering = ("name",)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = [*mcp_servers.EDITABLE, "version"]
        if obj is None:
            return [(None, {"fields": ["name", *fields]})]
        return [(None, {"fields": [*fields, CREATED_AT]})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [CREATED_AT] if obj else []

    def compute_row_version(self, row: Any) -> str:
        return mcp_servers.compute_server_version(row)

    def add_row(self, form: Any, actor: Actor) -> McpServer:
        return mcp_servers.create_mcp_server(
            form.cleaned_data["name"], actor=actor, **form.changed_form_values(mcp_servers.EDITABLE)
        )

    def change_row_from_admin_form(self, row: Any, form: Any, actor: Actor) -> None:
        changes = form.changed_form_values(mcp_servers.EDITABLE)
        mcp_servers.update_mcp_server(row.pk, changes, actor=actor, seen_version=form.cleaned_data["version"])

    def delete_row(self, row: Any, actor: Actor) -> None:
        mcp_servers.delete_server_with_grants(row.pk, actor=actor)

    def count_dependent_rows(self, rows: list[Any]) -> dict[str, int]:
        return mcp_servers.count_server_dependents_by_kind([row.pk for row in rows])


CREATED_AT = columns.time_column("created_at")


@admin.register(Grant)
class GrantAdmin(ViewOnlyAdmin):
    list_display = (
        columns.build_cell_for_attribute("id", str),
        columns.text_column("entry_type"),
        columns.reference_column("agent_id", "coordinator_agent"),
        columns.reference_column("server_id", "coordinator_mcpserver"),
        columns.code_column("tool_name"),
        columns.state_column("permission"),
        columns.text_column("granted_by"),
        columns.time_column("granted_at"),
        columns.time_column("expires_at"),
    )
    list_filter = (
        build_choice_filter_class("entry_type", EntryType.values),
        build_choice_filter_class("permission", GrantPermission.values),
        build_period_filter_class("granted_at"),
        build_presence_filter_class("expires_at", "expiry"),
    )
    search_fields = ("agent_id", "server_id", "tool_name", "granted_by", "justification")
    ordering = ("-id",)
