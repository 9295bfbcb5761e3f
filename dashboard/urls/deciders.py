"""Who decides what."""

from __future__ import annotations

from django.urls import path

from dashboard.views import deciders

app_name = "deciders"
urlpatterns = [
    path("", deciders.home, name="home"),
    path("save/", deciders.save, name="save"),
    path("groups/", deciders.make_group, name="group-make"),
    path("groups/<int:group_id>/", deciders.change_group, name="group-change"),
    path("groups/<int:group_id>/delete/", deciders.delete_group, name="group-delete"),
    path("delegations/", deciders.delegate, name="delegate"),
    path("delegations/<int:delegation_id>/end/", deciders.end_delegation, name="delegation-end"),
]
