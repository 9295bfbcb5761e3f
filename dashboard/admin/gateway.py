"""The MCP gateway's tables, to read. What clients and servers said within calls is sealed, and not shown."""

from __future__ import annotations

from django.contrib import admin

from coordinator.models import GatewayCall, GatewayFigures, GatewayLink, GatewaySession, McpUpstream
from coordinator.models.gateway import CallState, Sharing, Transport
from dashboard.admin import columns
from dashboard.admin.filters import period, words
from dashboard.admin.options import ViewOnlyAdmin


@admin.register(McpUpstream)
class McpUpstreamAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code("server_id"),
        columns.word("transport"),
        columns.code("url"),
        columns.word("sharing"),
        columns.flag("enabled", label="state"),
        columns.moment("changed_at"),
    )
    list_filter = (words("transport", Transport.values), words("sharing", Sharing.values))
    search_fields = ("server_id", "url")
    ordering = ("server_id",)


@admin.register(GatewaySession)
class GatewaySessionAdmin(ViewOnlyAdmin):
    list_display = (
        columns.text("agent_id"),
        columns.code("door"),
        columns.text("protocol_version"),
        columns.moment("created_at"),
    )
    list_filter = (period("created_at"),)
    never_read = ("session_id",)
    search_fields = ("agent_id", "door")
    ordering = ("-created_at",)


@admin.register(GatewayLink)
class GatewayLinkAdmin(ViewOnlyAdmin):
    list_display = ("id", columns.code("server_id"), columns.text("protocol_version"))
    never_read = ("session_id", "upstream_session")
    search_fields = ("server_id",)
    ordering = ("-id",)


@admin.register(GatewayCall)
class GatewayCallAdmin(ViewOnlyAdmin):
    list_display = (
        columns.text("agent_id"),
        columns.code("server_id"),
        columns.code("tool_name"),
        columns.word("state"),
        columns.moment("created_at"),
        columns.moment("started_at"),
        columns.moment("ended_at"),
    )
    list_filter = (words("state", CallState.values), period("created_at"))
    never_read = ("message", "result", "gateway_session")
    search_fields = ("agent_id", "server_id", "tool_name", "request_id")
    ordering = ("-created_at",)


@admin.register(GatewayFigures)
class GatewayFiguresAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code("server_id"),
        columns.code("tool_name"),
        columns.moment("hour"),
        columns.word("outcome"),
        "calls",
    )
    list_filter = (period("hour"),)
    search_fields = ("server_id", "tool_name")
    ordering = ("-hour",)
