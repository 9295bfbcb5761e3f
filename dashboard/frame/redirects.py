"""Redirects from the URLs of pages in earlier releases, when Claude Code was the only agent."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpResponseBase
from django.urls import path
from django.views.generic import RedirectView

from coordinator.identity.declarations import require_GET
from dashboard.frame.guards import require_viewer_role

app_name = "redirects"


def build_redirect_view(name: str) -> Callable[..., HttpResponseBase]:
    return require_GET(require_viewer_role(RedirectView.as_view(pattern_name=name, query_string=True)))


urlpatterns = [
    path("", build_redirect_view("connections:home"), name="connect"),
    path("rules/", build_redirect_view("rules:list"), name="rules"),
    path("rules/calls/", build_redirect_view("rules:calls"), name="calls"),
    path("rules/suggestions/", build_redirect_view("rules:suggestions"), name="suggestions"),
    path("costs/", build_redirect_view("costs:show"), name="costs"),
]
