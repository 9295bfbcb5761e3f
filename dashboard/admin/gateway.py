"""The MCP gateway's tables, read-only. The content of calls is encrypted and not shown."""

from __future__ import annotations

from django.contrib import admin

from coordinator.models import GatewayCall, GatewayFigures, GatewayLink, GatewaySession, McpUpstream
from coordinator.models.gateway import CallState, Sharing, Transport
from dashboard.admin import columns
from dashboard.admin.filters import build_choice_filter_class, build_period_filter_class
from dashboard.admin.options import ViewOnlyAdmin


@admin.register(McpUpstream)
class McpUpstreamAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code_column("server_id"),
        columns.state_column("transport"),
        columns.code_column("url"),
        columns.state_column("sharing"),
        columns.flag_column("enabled", label="state"),
        columns.time_column("changed_at"),
    )
    list_filter = (
        build_choice_filter_class("transport", Transport.values),
        build_choice_filter_class("sharing", Sharing.values),
    )
    search_fields = ("server_id", "url")
    ordering = ("server_id",)


@admin.register(GatewaySession)
class GatewaySessionAdmin(ViewOnlyAdmin):
    list_display = (
        columns.text_column("agent_id"),
        columns.code_column("door"),
        columns.text_column("protocol_version"),
        columns.time_column("created_at"),
    )
    list_filter = (build_period_filter_class("created_at"),)
    never_read = ("session_id",)
    search_fields = ("agent_id", "door")
    ordering = ("-created_at",)


@admin.register(GatewayLink)
class GatewayLinkAdmin(ViewOnlyAdmin):
    list_display = ("id", columns.code_column("server_id"), columns.text_column("protocol_version"))
    never_read = ("session_id", "upstream_session")
    search_fields = ("server_id",)
    ordering = ("-id",)


@admin.register(GatewayCall)
class GatewayCallAdmin(ViewOnlyAdmin):
    list_display = (
        columns.text_column("agent_id"),
        columns.code_column("server_id"),
        columns.code_column("tool_name"),
        columns.state_column("state"),
        columns.time_column("created_at"),
        columns.time_column("started_at"),
        columns.time_column("ended_at"),
    )
    list_filter = (
        build_choice_filter_class("state", CallState.values),
        build_period_filter_class("created_at"),
    )
    never_read = ("message", "result", "gateway_session")
    search_fields = ("agent_id", "server_id", "tool_name", "request_id")
    ordering = ("-created_at",)


@admin.register(GatewayFigures)
class GatewayFiguresAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code_column("server_id"),
        columns.code_column("tool_name"),
        columns.time_column("hour"),
        columns.state_column("outcome"),
        "calls",
    )
    list_filter = (build_period_filter_class("hour"),)
    search_fields = ("server_id", "tool_name")
    ordering = ("-hour",)
