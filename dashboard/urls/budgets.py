"""Budgets."""

from __future__ import annotations

from django.urls import path

from dashboard.views import budgets

app_name = "budgets"

urlpatterns = [
    path("", budgets.home, name="home"),
    path("add/", budgets.add, name="add"),
    path("of/<text:session_id>/", budgets.of_session, name="of-session"),
    path("<int:budget_id>/", budgets.edit, name="edit"),
    path("<int:budget_id>/allow/", budgets.allow, name="allow"),
    path("<int:budget_id>/remove/", budgets.remove, name="remove"),
]
