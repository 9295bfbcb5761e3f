"""MCP servers, their tools, and who may call them.

Names of servers come from other programs and may hold anything, slashes too: so they stand last in a path.
"""

from __future__ import annotations

from django.urls import path

from dashboard.views import mcp_access, mcp_gateway, mcp_grants, mcp_matrix, mcp_servers

app_name = "mcp"
urlpatterns = [
    path("", mcp_servers.server_list, name="list"),
    path("unknown/", mcp_servers.unknown, name="unknown"),
    path("add/", mcp_servers.add, name="add"),
    path("servers/<text:name>/", mcp_servers.server_detail, name="server"),
    path("edit/<text:name>/", mcp_servers.edit, name="edit"),
    path("switch/<text:name>/", mcp_servers.switch, name="switch"),
    path("delete/<text:name>/", mcp_servers.delete, name="delete"),
    path("paste/<text:name>/", mcp_servers.paste, name="paste"),
    path("discover/<text:name>/", mcp_servers.discover, name="discover"),
    path("credentials/set/<text:name>/", mcp_gateway.set_value, name="credential-set"),
    path("credentials/remove/<text:name>/", mcp_gateway.remove, name="credential-remove"),
    path("upstream/<text:name>/", mcp_gateway.set_upstream, name="upstream"),
    path("isolation/<text:name>/", mcp_gateway.set_isolation_off, name="isolation"),
    path("command/<text:name>/", mcp_gateway.accept_command, name="accept-command"),
    path("changed/<text:name>/", mcp_servers.serve_accepted_only, name="accepted-only"),
    path("tool/", mcp_servers.tool_detail, name="tool"),
    path("tool/accept/", mcp_servers.accept, name="accept"),
    path("access/", mcp_access.sheet, name="sheet"),
    path("access/preview/", mcp_access.preview, name="preview"),
    path("access/save/", mcp_access.save, name="save"),
    path("why/", mcp_access.why, name="why"),
    path("ask/", mcp_access.ask, name="ask"),
    path("matrix/", mcp_matrix.page, name="matrix"),
    path("grants/", mcp_grants.grant_list, name="grants"),
    path("grants/<int:grant_id>/", mcp_access.grant_detail, name="grant"),
    path("grants/<int:grant_id>/revoke/", mcp_access.revoke, name="revoke"),
    path("grants/<int:grant_id>/extend/", mcp_access.extend, name="extend"),
]
