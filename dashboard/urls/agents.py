"""Agents. Their ids come from other programs too and may hold anything, slashes as well: they stand last."""

from __future__ import annotations

from django.urls import path

from dashboard.views import agent_acts, agents

app_name = "agents"
urlpatterns = [
    path("", agents.listing, name="list"),
    path("new/", agent_acts.new, name="new"),
    path("of/<text:agent_id>/", agents.detail, name="detail"),
    path("edit/<text:agent_id>/", agent_acts.edit, name="edit"),
    path("delete/<text:agent_id>/", agent_acts.delete, name="delete"),
    path("power/<text:agent_id>/", agent_acts.power, name="power"),
    path("password/<text:agent_id>/", agent_acts.password, name="password"),
    path("assign/<text:agent_id>/", agent_acts.assign, name="assign"),
    path("withdraw/<text:agent_id>/", agent_acts.withdraw, name="withdraw"),
]
