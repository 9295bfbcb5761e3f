"""Where pages were when Claude Code was the only agent: people have kept the addresses."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpResponseBase
from django.urls import path
from django.views.decorators.http import require_GET
from django.views.generic import RedirectView

from dashboard.frame.guards import viewer

app_name = "redirects"


def _moved_to(name: str) -> Callable[..., HttpResponseBase]:
    return require_GET(viewer(RedirectView.as_view(pattern_name=name, query_string=True)))


urlpatterns = [
    path("", _moved_to("connections:home"), name="connect"),
    path("rules/", _moved_to("rules:list"), name="rules"),
    path("rules/calls/", _moved_to("rules:calls"), name="calls"),
    path("rules/suggestions/", _moved_to("rules:suggestions"), name="suggestions"),
    path("costs/", _moved_to("costs:show"), name="costs"),
]
