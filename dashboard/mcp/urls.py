"""URLs of MCP servers, tools and grants.

A server's name may contain anything, also slashes, so it is the last part of a path.
"""

from __future__ import annotations

from django.urls import path

from dashboard.mcp.views import access as mcp_access
from dashboard.mcp.views import collections as mcp_collections
from dashboard.mcp.views import gateway as mcp_gateway
from dashboard.mcp.views import grants as mcp_grants
from dashboard.mcp.views import graph as mcp_graph
from dashboard.mcp.views import limits as mcp_limits
from dashboard.mcp.views import matrix as mcp_matrix
from dashboard.mcp.views import servers as mcp_servers
from dashboard.mcp.views import shown_tools as mcp_shown
from dashboard.mcp.views import sign_ins as mcp_sign_ins
from dashboard.mcp.views import tool_trials as mcp_trials

app_name = "mcp"
urlpatterns = [
    path("", mcp_servers.list_mcp_servers_view, name="list"),
    path("unknown/", mcp_servers.list_unknown_mcp_servers_view, name="unknown"),
    path("add/", mcp_servers.add_mcp_server_view, name="add"),
    path("servers/<text:name>/", mcp_servers.show_mcp_server, name="server"),
    path("edit/<text:name>/", mcp_servers.edit_mcp_server, name="edit"),
    path("switch/<text:name>/", mcp_servers.enable_or_disable_mcp_server, name="switch"),
    path("delete/<text:name>/", mcp_servers.delete_mcp_server_view, name="delete"),
    path("paste/<text:name>/", mcp_servers.import_pasted_tools, name="paste"),
    path("discover/<text:name>/", mcp_servers.start_server_and_import_tools, name="discover"),
    path("credentials/set/<text:name>/", mcp_gateway.save_server_credential_view, name="credential-set"),
    path(
        "credentials/remove/<text:name>/", mcp_gateway.delete_server_credential_view, name="credential-remove"
    ),
    path("upstream/<text:name>/", mcp_gateway.save_upstream_view, name="upstream"),
    path("sign-in/back/", mcp_sign_ins.confirm_or_finish_server_authorization, name="sign-in-back"),
    path("sign-in/client/", mcp_sign_ins.show_oauth_client_metadata, name="client-document"),
    path("sign-in/save/<text:name>/", mcp_sign_ins.save_server_sign_in_settings, name="save-sign-in"),
    path("sign-in/begin/<text:name>/", mcp_sign_ins.start_server_sign_in, name="sign-in"),
    path("sign-in/end/<text:name>/", mcp_sign_ins.sign_out_of_mcp_server_view, name="sign-out"),
    path("sign-in/agent/<text:name>/", mcp_sign_ins.choose_sign_in_person_of_agent, name="agent-person"),
    path("isolation/<text:name>/", mcp_gateway.switch_server_isolation, name="isolation"),
    path("command/<text:name>/", mcp_gateway.accept_server_command_view, name="accept-command"),
    path("changed/<text:name>/", mcp_servers.set_accepted_tools_only_view, name="accepted-only"),
    path("tool/", mcp_servers.show_mcp_tool, name="tool"),
    path("tool/accept/", mcp_servers.decide_changed_tool, name="accept"),
    path("tool/try/", mcp_trials.try_tool_view, name="try"),
    path("shown/", mcp_shown.show_listed_tools, name="shown"),
    path("shown/save/", mcp_shown.save_listed_tools, name="show-tools"),
    path("collections/", mcp_collections.list_collections, name="collections"),
    path("collections/add/", mcp_collections.add_collection_view, name="add-collection"),
    path("collections/of/<text:name>/", mcp_collections.show_collection, name="collection"),
    path("collections/save/<text:name>/", mcp_collections.save_collection_view, name="save-collection"),
    path(
        "collections/delete/<text:name>/",
        mcp_collections.delete_tool_collection_view,
        name="delete-collection",
    ),
    path("tool/describe/", mcp_shown.save_short_tool_description_view, name="describe"),
    path("limits/save/", mcp_limits.save_call_limits_view, name="save-limits"),
    path("limits/close/", mcp_limits.close_circuit_breaker_view, name="close-breaker"),
    path("limits/empty/", mcp_limits.clear_result_cache_view, name="empty-cache"),
    path("access/", mcp_access.show_access_sheet, name="sheet"),
    path("access/preview/", mcp_access.preview_grant_edits_view, name="preview"),
    path("access/save/", mcp_access.save_grant_edits_view, name="save"),
    path("end/", mcp_access.show_exact_grant_end, name="end"),
    path("why/", mcp_access.explain_access, name="why"),
    path("ask/", mcp_access.request_tool_access_view, name="ask"),
    path("matrix/", mcp_matrix.show_access_matrix, name="matrix"),
    path("graph/", mcp_graph.show_grant_graph, name="graph"),
    path("grants/", mcp_grants.list_grants, name="grants"),
    path("grants/<int:grant_id>/", mcp_access.show_grant, name="grant"),
    path("grants/<int:grant_id>/revoke/", mcp_access.revoke_mcp_grant_view, name="revoke"),
    path("grants/<int:grant_id>/extend/", mcp_access.extend_grant_view, name="extend"),
]
