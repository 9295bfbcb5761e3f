"""URLs of runs."""

from __future__ import annotations

from django.urls import path

from dashboard.runs import views as runs

app_name = "runs"
urlpatterns = [
    path("", runs.show_run_list, name="list"),
    path("new/", runs.start_run_view, name="new"),
    path("<text:run_id>/stop/", runs.stop_run_view, name="stop"),
    path("<text:run_id>/release/", runs.release_run_view, name="release"),
]
