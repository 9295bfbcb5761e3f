"""Rules for agents' tools: what they say, what others would have said, and which are suggested."""

from __future__ import annotations

from django.urls import path

from dashboard.views import rule_suggestions, rule_trials, tool_rules

app_name = "rules"

urlpatterns = [
    path("", tool_rules.rules, name="list"),
    path("save/", tool_rules.save, name="save"),
    path("trial/", rule_trials.count, name="trial"),
    path("calls/", rule_trials.calls, name="calls"),
    path("suggestions/", rule_suggestions.page, name="suggestions"),
    path("suggestions/accept/", rule_suggestions.accept, name="accept-suggestion"),
]
