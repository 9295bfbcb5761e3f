"""Budgets."""

from __future__ import annotations

from django.urls import path

from dashboard.budgets import views as budgets

app_name = "budgets"

urlpatterns = [
    path("", budgets.list_budgets, name="home"),
    path("add/", budgets.add_budget_view, name="add"),
    path("of/<text:session_id>/", budgets.show_session_budget_warnings, name="of-session"),
    path("<int:budget_id>/", budgets.edit_budget_view, name="edit"),
    path("<int:budget_id>/allow/", budgets.allow_over_budget_today, name="allow"),
    path("<int:budget_id>/remove/", budgets.delete_budget_view, name="remove"),
]
