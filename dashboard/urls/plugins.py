"""Plugins. Their ids come from other programs and may hold anything, slashes too: they stand last."""

from __future__ import annotations

from django.urls import path

from dashboard.views import plugins

app_name = "plugins"
urlpatterns = [
    path("", plugins.listing, name="list"),
    path("of/<path:plugin_id>/", plugins.detail, name="detail"),
    path("switch/<path:plugin_id>/", plugins.switch, name="switch"),
    path("grant/<path:plugin_id>/", plugins.grant, name="grant"),
    path("revoke/<path:plugin_id>/", plugins.revoke, name="revoke"),
    path("register/<path:plugin_id>/", plugins.register, name="register"),
]
