"""Connections: how agents are made to report here."""

from __future__ import annotations

from django.urls import path

from dashboard.views import connections

app_name = "connections"

urlpatterns = [
    path("", connections.home, name="home"),
    path("code/", connections.make_code, name="code"),
    path("key/", connections.make_key, name="key"),
    path("test/", connections.test, name="test"),
    path("<slug:name>/", connections.agent, name="agent"),
]
