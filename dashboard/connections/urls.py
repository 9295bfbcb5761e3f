"""URLs of the page Connections, where agents are connected."""

from __future__ import annotations

from django.urls import path

from dashboard.connections import views as connections

app_name = "connections"

urlpatterns = [
    path("", connections.show_connections, name="home"),
    path("code/", connections.create_connect_code_view, name="code"),
    path("key/", connections.create_agent_key, name="key"),
    path("test/", connections.run_connection_test_view, name="test"),
    path("first-event/", connections.show_first_report_of_key, name="first-event"),
    path("imports/", connections.show_imports, name="imports"),
    path("imports/machine/", connections.show_machine_imports, name="machine"),
    path("<slug:name>/", connections.show_agent_connection, name="agent"),
]
