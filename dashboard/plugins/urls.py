"""URLs of plugins. An id comes from another program and may contain slashes, so it is last in each path."""

from __future__ import annotations

from django.urls import path

from dashboard.plugins import views as plugins

app_name = "plugins"
urlpatterns = [
    path("", plugins.list_plugins, name="list"),
    path("of/<text:plugin_id>/", plugins.show_plugin, name="detail"),
    path("switch/<text:plugin_id>/", plugins.switch_plugin_view, name="switch"),
    path("grant/<text:plugin_id>/", plugins.grant_plugin_permission_view, name="grant"),
    path("revoke/<text:plugin_id>/", plugins.revoke_plugin_permission_view, name="revoke"),
    path("register/<text:plugin_id>/", plugins.register_plugin_view, name="register"),
]
