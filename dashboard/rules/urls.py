"""URLs of the rules for agents' tools, of their trials and of suggested rules."""

from __future__ import annotations

from django.urls import path

from dashboard.rules.views import ready_made
from dashboard.rules.views import rules as tool_rules
from dashboard.rules.views import suggestions as rule_suggestions
from dashboard.rules.views import trials as rule_trials

app_name = "rules"

urlpatterns = [
    path("", tool_rules.list_tool_rules, name="list"),
    path("save/", tool_rules.save_or_test_posted_rules, name="save"),
    path("ready-made/<slug:name>/", ready_made.switch_ready_made_rule, name="ready-made"),
    path("ready-made/<slug:name>/calls/", ready_made.preview_ready_made_rule_view, name="ready-made-calls"),
    path("trial/", rule_trials.run_next_rule_trial_piece, name="trial"),
    path("calls/", rule_trials.list_trial_calls, name="calls"),
    path("suggestions/", rule_suggestions.run_next_suggestion_search_piece, name="suggestions"),
    path("suggestions/accept/", rule_suggestions.accept_suggestion_view, name="accept-suggestion"),
    path(
        "suggestions/dismiss/",
        rule_suggestions.dismiss_or_restore_suggestions_view,
        name="dismiss-suggestion",
    ),
]
