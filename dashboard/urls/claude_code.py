"""Rules for agents' tools, and costs; the addresses are older than the other agents."""

from __future__ import annotations

from django.urls import path
from django.views.decorators.http import require_GET
from django.views.generic import RedirectView

from dashboard.frame.guards import viewer
from dashboard.views import costs, rule_suggestions, rule_trials, tool_rules

app_name = "claude_code"

urlpatterns = [
    # Where the page Connections was: people have kept the address.
    path(
        "",
        require_GET(viewer(RedirectView.as_view(pattern_name="connections:home"))),
        name="connect",
    ),
    path("rules/", tool_rules.rules, name="rules"),
    path("rules/save/", tool_rules.save, name="save-rules"),
    path("rules/trial/", rule_trials.count, name="trial"),
    path("rules/calls/", rule_trials.calls, name="calls"),
    path("rules/suggestions/", rule_suggestions.page, name="suggestions"),
    path("rules/suggestions/accept/", rule_suggestions.accept, name="accept-suggestion"),
    path("costs/", costs.costs, name="costs"),
    path("costs/prices/", costs.save_prices, name="save-prices"),
]
