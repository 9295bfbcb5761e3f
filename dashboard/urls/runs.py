"""Runs."""

from __future__ import annotations

from django.urls import path

from dashboard.views import runs

app_name = "runs"
urlpatterns = [
    path("", runs.listing, name="list"),
    path("new/", runs.new, name="new"),
    path("<text:run_id>/stop/", runs.stop, name="stop"),
    path("<text:run_id>/release/", runs.release, name="release"),
]
