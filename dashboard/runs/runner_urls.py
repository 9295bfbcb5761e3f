"""URLs of runners."""

from __future__ import annotations

from django.urls import path

from dashboard.runs import runner_views as runners

app_name = "runners"
urlpatterns = [
    path("", runners.show_runner_list, name="list"),
    path("<text:runner_id>/deregister/", runners.deregister_runner_view, name="deregister"),
]
