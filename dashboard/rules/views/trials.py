"""Trials of rules and grants on all recorded calls: counts, made in pieces, and lists of the counted calls.

Viewers may test what is saved; only approvers may test unsaved edits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.errors import SignalboxError, UnprocessableRequest
from coordinator.identity.declarations import require_http_methods, require_POST
from coordinator.identity.roles import APPROVER, has_role
from coordinator.models.agent_names import agent_labels_by_id
from coordinator.policy.suggestions import rule_trials
from coordinator.policy.suggestions.history import CallHistoryReader, WalkTimeLimit
from coordinator.policy.suggestions.rule_trials import RuleTrial, TrialCallFilter
from dashboard.frame.browser_proof_middleware import allow_post_without_browser_proof
from dashboard.frame.guards import render_role_refusal, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.rules import question, trial_tables
from dashboard.rules import signed_values as carried
from dashboard.rules.question import RulesOnTrial
from dashboard.rules.recorded import FIRST_PIECE, FIRST_STRETCH, PIECE, READER

PURPOSE = "trial"
PAGE = 50  # calls
# Limits for the first response. The page requests further pieces by itself, and another page lists all calls.
AT_ONCE = FIRST_PIECE  # seconds for counting, and again for finding calls
SHOWN = 20  # calls
SHORT = 300


@require_POST
@never_cache
@allow_post_without_browser_proof
@require_viewer_role
def run_next_rule_trial_piece(request: HtmxHttpRequest) -> HttpResponse:
    """Count the next piece of a trial. It only reads, so the session cookie is enough, also for POST."""
    if question.has_unsaved_edits_in_form(request.POST) and not has_role(request.user, APPROVER):
        return render_role_refusal(request, APPROVER)
    try:
        trial_form = question.parse_rules_on_trial(request.POST)
        context = continue_trial_and_build_context(trial_form, request.POST.get("carried", ""))
    except SignalboxError as refusal:
        return render_trial_refusal(request, refusal)
    template = "rules/_trial.html" if wants_fragment(request) else "rules/trial.html"
    return render(request, template, context)


def start_trial_and_build_context(trial: RulesOnTrial, query: QueryDict) -> dict[str, Any]:
    """Return the context of a page that starts a trial.

    It contains the first counts, and the first of the calls that match `query`.
    """
    return continue_trial_and_build_context(trial, seconds=AT_ONCE) | build_trial_calls_context(
        trial, query, most=SHOWN, seconds=AT_ONCE
    )


def continue_trial_and_build_context(
    requested_trial: RulesOnTrial, so_far: str = "", seconds: float = PIECE
) -> dict[str, Any]:
    """Return the context of a trial after one more piece.

    Raises UnprocessableRequest if `so_far` is not valid.
    """
    trial = deserialize_or_build_rule_trial(so_far)
    now, then = requested_trial.build_current_and_trial_judges(timezone.now())
    trial.continue_rule_trial(choose_history_reader_by_seconds(seconds), now, then, WalkTimeLimit(seconds))
    return {
        "question": requested_trial,
        "trial": trial_tables.build_trial_display(trial, is_open=requested_trial.has_unsaved_edits),
        "carried": ""
        if trial.is_done
        else carried.sign_values_for_purpose(PURPOSE, trial.serialize_rule_trial_as_list()),
        "step": trial.before,
    }


def choose_history_reader_by_seconds(seconds: float) -> CallHistoryReader:
    """Return the reader of recorded calls. For fewer seconds than PIECE, it reads shorter stretches."""
    return replace(READER, stretch=min(READER.stretch, FIRST_STRETCH)) if seconds < PIECE else READER


def deserialize_or_build_rule_trial(so_far: str) -> RuleTrial:
    if not so_far:
        return RuleTrial.start_rule_trial_over_history(READER)
    try:
        return RuleTrial.deserialize_rule_trial(carried.unsign_values_of_hidden_field(PURPOSE, so_far))
    except (ValueError, TypeError):
        raise UnprocessableRequest(
            "Signalbox was updated after this test started. Reload the page."
        ) from None


def render_trial_refusal(request: HtmxHttpRequest, refusal: SignalboxError) -> HttpResponse:
    context = {"problem": str(refusal.detail)}
    template = "rules/_trial_refused.html" if wants_fragment(request) else "rules/trial.html"
    return render(request, template, context, status=422)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@allow_post_without_browser_proof
@require_viewer_role
def list_trial_calls(request: HtmxHttpRequest) -> HttpResponse:
    """List the calls that a number of a trial counts.

    The form contains the rules on trial, the query string the filter of calls.
    """
    if question.has_unsaved_edits_in_form(request.POST) and not has_role(request.user, APPROVER):
        return render_role_refusal(request, APPROVER)
    try:
        trial_form = question.parse_rules_on_trial(request.POST)
    except SignalboxError as refusal:
        return render_trial_refusal(request, refusal)
    context = build_trial_calls_context(trial_form, request.GET)
    return render(request, "rules/calls.html", context)


def build_trial_calls_context(
    trial: RulesOnTrial, query: QueryDict, *, most: int = PAGE, seconds: float = PIECE
) -> dict[str, Any]:
    """Return the context of a list of calls that match `query`, the latest first, older than its `before`."""
    wanted_calls = parse_trial_call_filter(query)
    now, then = trial.build_current_and_trial_judges(timezone.now())
    before = parse_event_id_or_zero(query.get("before", ""))
    listed = rule_trials.load_judged_call_page(
        choose_history_reader_by_seconds(seconds),
        now,
        then,
        wanted_calls,
        before=before,
        most=most,
        budget=WalkTimeLimit(seconds),
    )
    return {
        "question": trial,
        "listed": listed,
        "agent_labels": agent_labels_by_id(),
        "wanted": wanted_calls,
        "wanted_words": list_trial_call_filter_labels(wanted_calls),
        "older": build_trial_calls_query_string(query, before=str(listed.before)) if listed.before else "",
        "first": build_trial_calls_query_string(query) if before else "",
        "calls_url": reverse("rules:calls"),
        "short": SHORT,
    }


def parse_trial_call_filter(query: QueryDict) -> TrialCallFilter:
    text = {name: query.get(name, "").replace("\0", "")[:500] for name in ("decision", "by", "week")}
    agent = query.get("agent")
    return TrialCallFilter(**text, agent=agent, changed=query.get("changed") == "1")


def list_trial_call_filter_labels(call_filter: TrialCallFilter) -> list[str]:
    text_parts = (
        [trial_tables.WORDS.get(call_filter.decision, call_filter.decision)] if call_filter.decision else []
    )
    text_parts += ["answered differently"] if call_filter.changed else []
    text_parts += [f"by {call_filter.by}"] if call_filter.by else []
    text_parts += [f"of {call_filter.agent or 'no agent'}"] if call_filter.agent is not None else []
    return [*text_parts, *([f"in the week from {call_filter.week} (UTC)"] if call_filter.week else [])]


def parse_event_id_or_zero(text: str) -> int:
    """Return an event's id, or 0 for invalid text, which starts the list at the latest event."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def build_trial_calls_query_string(query: QueryDict, **keyset: str) -> str:
    new_query = query.copy()
    new_query.pop("before", None)
    for name, value in keyset.items():
        new_query[name] = value
    return f"?{new_query.urlencode()}"
