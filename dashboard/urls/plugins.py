"""Plugins. Their ids come from other programs and may hold anything, slashes too: they stand last."""

from __future__ import annotations

from django.urls import path

from dashboard.views import plugins

app_name = "plugins"
urlpatterns = [
    path("", plugins.listing, name="list"),
    path("of/<text:plugin_id>/", plugins.detail, name="detail"),
    path("switch/<text:plugin_id>/", plugins.switch, name="switch"),
    path("grant/<text:plugin_id>/", plugins.grant, name="grant"),
    path("revoke/<text:plugin_id>/", plugins.revoke, name="revoke"),
    path("register/<text:plugin_id>/", plugins.register, name="register"),
]
