"""Claude Code: connecting it, and the rules for its tools."""

from __future__ import annotations

from django.urls import path

from dashboard.views import claude_code, costs, rule_suggestions, rule_trials, tool_rules

app_name = "claude_code"

urlpatterns = [
    path("", claude_code.connect, name="connect"),
    path("key/", claude_code.make_key, name="key"),
    path("test/", claude_code.test, name="test"),
    path("rules/", tool_rules.rules, name="rules"),
    path("rules/save/", tool_rules.save, name="save-rules"),
    path("rules/trial/", rule_trials.count, name="trial"),
    path("rules/calls/", rule_trials.calls, name="calls"),
    path("rules/suggestions/", rule_suggestions.page, name="suggestions"),
    path("rules/suggestions/accept/", rule_suggestions.accept, name="accept-suggestion"),
    path("costs/", costs.costs, name="costs"),
    path("costs/prices/", costs.save_prices, name="save-prices"),
]
