"""Agents. Their ids come from other programs too and may hold anything, slashes as well: they stand last."""

from __future__ import annotations

from django.urls import path

from dashboard.views import agent_acts, agents

app_name = "agents"
urlpatterns = [
    path("", agents.listing, name="list"),
    path("new/", agent_acts.new, name="new"),
    path("of/<path:agent_id>/", agents.detail, name="detail"),
    path("edit/<path:agent_id>/", agent_acts.edit, name="edit"),
    path("delete/<path:agent_id>/", agent_acts.delete, name="delete"),
    path("power/<path:agent_id>/", agent_acts.power, name="power"),
    path("password/<path:agent_id>/", agent_acts.password, name="password"),
    path("assign/<path:agent_id>/", agent_acts.assign, name="assign"),
    path("withdraw/<path:agent_id>/", agent_acts.withdraw, name="withdraw"),
]
