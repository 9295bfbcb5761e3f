"""Who decides what."""

from __future__ import annotations

from django.urls import path

from dashboard.deciders import views as deciders

app_name = "deciders"
urlpatterns = [
    path("", deciders.show_deciders, name="home"),
    path("save/", deciders.save_deciding_rules_view, name="save"),
    path("groups/", deciders.create_decider_group_view, name="group-make"),
    path("groups/<int:group_id>/", deciders.edit_decider_group_view, name="group-change"),
    path("groups/<int:group_id>/delete/", deciders.delete_decider_group_view, name="group-delete"),
    path("delegations/", deciders.delegate_decisions, name="delegate"),
    path("delegations/<int:delegation_id>/end/", deciders.revoke_delegation_view, name="delegation-end"),
]
