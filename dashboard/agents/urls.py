"""URLs of agents. An id may contain anything, also slashes, so it is the last part of a path."""

from __future__ import annotations

from django.urls import path

from dashboard.agents import act_views as agent_acts
from dashboard.agents import views as agents

app_name = "agents"
urlpatterns = [
    path("", agents.list_agents_page, name="list"),
    path("new/", agent_acts.add_agent_view, name="new"),
    path("of/<text:agent_id>/", agents.show_agent, name="detail"),
    path("edit/<text:agent_id>/", agent_acts.edit_agent, name="edit"),
    path("delete/<text:agent_id>/", agent_acts.delete_agent_view, name="delete"),
    path("power/<text:agent_id>/", agent_acts.switch_agent_power_view, name="power"),
    path("password/<text:agent_id>/", agent_acts.set_agent_switch_password, name="password"),
    path("assign/<text:agent_id>/", agent_acts.assign_agent_plugin_view, name="assign"),
    path("link-name/<text:agent_id>/", agent_acts.link_agent_name_view, name="link-name"),
    path("unlink-name/<text:agent_id>/", agent_acts.unlink_agent_name_view, name="unlink-name"),
    path("withdraw/<text:agent_id>/", agent_acts.withdraw_agent_plugin_view, name="withdraw"),
]
