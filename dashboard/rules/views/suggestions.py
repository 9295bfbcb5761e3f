"""Suggested rules and grants, with which most recorded calls would have run without asking a person.

The search runs in pieces. A person accepts or dismisses each suggestion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django_htmx.http import trigger_client_event

from coordinator.actions.policy import grants
from coordinator.actions.policy import suggestions as actions
from coordinator.errors import Conflict, SignalboxError, UnprocessableRequest
from coordinator.identity.actors import Actor, person_actor
from coordinator.identity.declarations import require_http_methods, require_POST
from coordinator.identity.roles import APPROVER, has_role
from coordinator.lib import instants
from coordinator.models import DismissedSuggestion
from coordinator.models.agent_names import agent_labels_by_id
from coordinator.policy.grants import managed
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.rules import tool_rules as policy
from coordinator.policy.rules.tool_rules import DecisionRule
from coordinator.policy.suggestions import search as suggestions
from coordinator.policy.suggestions.history import RecordedCall, WalkTimeLimit
from coordinator.policy.suggestions.search import GOAL, RuleSuggestion, SuggestionSearch
from coordinator.sessions.agent_programs import AGENT_TITLES
from dashboard.frame.browser_proof_middleware import allow_post_without_browser_proof
from dashboard.frame.guards import require_policy_editor, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.rules import question
from dashboard.rules import signed_values as carried
from dashboard.rules.question import RulesOnTrial
from dashboard.rules.recorded import FIRST_PIECE, FIRST_STRETCH, PIECE, READER
from dashboard.rules.sentences import SentencePart, build_rule_sentence_parts
from dashboard.rules.trial_tables import WORDS

SEARCH, ACCEPT, SINCE = "suggestions", "suggestion", "accepted-since"
SHORT = 200


@dataclass(frozen=True, slots=True)
class SuggestionCard:
    """A suggestion as its card shows it."""

    place: int
    one: RuleSuggestion
    packed: str  # the signed suggestion, which the form sends back when a person accepts it
    sentence: list[SentencePart]
    examples: list[RecordedCall]
    nearest: list[RecordedCall]
    question: RulesOnTrial
    callers: list[tuple[str, int]]
    now: str  # how its calls are decided now
    program: str
    grantee: str  # the agent of a grant; "" for a rule

    @property
    def newest_call_at(self) -> datetime:
        return instants.instant_from_microseconds(self.one.newest_us)

    @property
    def oldest_call_at(self) -> datetime:
        return instants.instant_from_microseconds(self.one.oldest_us)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@allow_post_without_browser_proof
@require_viewer_role
def run_next_suggestion_search_piece(request: HtmxHttpRequest) -> HttpResponse:
    """Run the next piece of the search. It only reads, so the session cookie is enough, also for POST."""
    user_id, saved = signed_in_user_id(request), policy.load_saved_tool_rules()
    try:
        search = resume_or_start_suggestion_search(
            user_id, request.POST.get("carried", ""), policy.digest_tool_rules(saved)
        )
    except SignalboxError as refusal:
        context = {"problem": str(refusal.detail)}
        template = "_trial_refused" if wants_fragment(request) else "suggestions"
        return render(request, f"rules/{template}.html", context, status=422)
    is_first = request.method != "POST"
    reader = replace(READER, stretch=min(READER.stretch, FIRST_STRETCH)) if is_first else READER
    search.continue_suggestion_search(
        reader, saved, timezone.now(), WalkTimeLimit(FIRST_PIECE if is_first else PIECE)
    )
    template = "_suggestions" if wants_fragment(request) else "suggestions"
    context = build_suggestions_context(user_id, search, saved) | {
        "may_try": has_role(request.user, APPROVER)
    }
    return render(request, f"rules/{template}.html", context)


def signed_in_user_id(request: HtmxHttpRequest) -> int:
    """Return the primary key of the signed-in user."""
    assert request.user.pk is not None
    return request.user.pk


def resume_or_start_suggestion_search(whose: int, so_far: str, version: str) -> SuggestionSearch:
    """Return the search to continue, or a new one if there is none yet or the rules have changed since."""
    if not so_far:
        return SuggestionSearch.start_suggestion_search_over_history(READER)
    try:
        seen_version, values = carried.unsign_values_for_person(whose, SEARCH, so_far)
        return (
            SuggestionSearch.deserialize_suggestion_search(values)
            if seen_version == version
            else SuggestionSearch.start_suggestion_search_over_history(READER)
        )
    except (ValueError, TypeError, AttributeError):
        raise UnprocessableRequest(
            "Signalbox was updated after this search started. Reload the page."
        ) from None


def build_suggestions_context(
    whose: int, search: SuggestionSearch, saved: Sequence[DecisionRule]
) -> dict[str, Any]:
    version = policy.digest_tool_rules(saved)
    chosen = search.tried if search.is_done else []
    return {
        "search": search,
        "share": round(search.suggestion_search_progress_fraction, 3),
        "carried": ""
        if search.is_done
        else carried.sign_values_for_person(
            whose, SEARCH, [version, search.serialize_suggestion_search_as_list()]
        ),
        "step": f"{search.phase}-{search.before}",
        "suggestions": load_suggestion_cards(whose, chosen, saved),
        "goal": round(100 * GOAL),
        "asked": search.count_calls_that_may_be_allowed,
        "unasked": search.count_calls_allowed_by_suggestions(chosen),
        "reached": int(100 * search.share_of_calls_suggestions_allow(chosen)),
        "reached_now": int(100 * search.share_of_calls_suggestions_allow([])),
        "dismissed": DismissedSuggestion.objects.count() if search.is_done else 0,
        "left": search.count_calls_that_may_be_allowed - search.count_calls_allowed_by_suggestions(chosen),
    }


def load_suggestion_cards(
    whose: int, chosen: Sequence[RuleSuggestion], saved: Sequence[DecisionRule]
) -> list[SuggestionCard]:
    shown_events = [
        event
        for suggestion in chosen
        for event in (
            *suggestion.examples.values(),
            *suggestions.nearest_event_ids_outside_suggestion(suggestion),
        )
    ]
    calls = {call.event_id: call for call in READER.load_recorded_calls_of_ids(shown_events)}
    versions = grants.load_grant_slots(*agents_and_servers_of_suggestions(chosen))
    cards, version, labels = [], policy.digest_tool_rules(saved), agent_labels_by_id()
    for number, suggestion in enumerate(chosen, 1):
        seen_version = None
        if suggestion.slot:
            slot_grants = versions.get((*suggestion.slot,), [])  # type: ignore[arg-type]
            seen_version = grants.compute_grant_slot_version(slot_grants)
        packed = carried.sign_values_for_person(
            whose, ACCEPT, [suggestion.serialize_rule_suggestion_as_list(), seen_version, version]
        )
        suggestion_trial = build_suggestion_trial(suggestion, saved)
        callers = [
            (labels.get(name, name), number)
            for name, number in sorted(
                (dict.fromkeys(suggestion.agents or (), 0) | suggestion.callers).items(),
                key=lambda item: -item[1],
            )
        ]
        program = AGENT_TITLES.get(suggestion.program, suggestion.program)
        cards.append(
            SuggestionCard(
                number,
                suggestion,
                packed,
                build_rule_sentence_parts(suggestion.suggested_rule(0), labels),
                [calls[event] for event in suggestion.examples.values() if event in calls],
                [
                    calls[event]
                    for event in suggestions.nearest_event_ids_outside_suggestion(suggestion)
                    if event in calls
                ],
                suggestion_trial,
                callers,
                describe_current_decisions(suggestion),
                program,
                labels.get(suggestion.slot[0], suggestion.slot[0]) if suggestion.slot else "",
            )
        )
    return cards


def describe_current_decisions(suggestion: RuleSuggestion) -> str:
    """Return how the calls are decided now: "now 3 asked by rule 2, 5 observed"."""
    parts = []
    for name, number in sorted(suggestion.now.items()):
        decision, _, by = name.partition(" ")
        word = WORDS.get(decision, decision).lower()
        parts.append(f"{number:,} {word} by {by}" if by else f"{number:,} {word}")
    return f"now {', '.join(parts)}"


def agents_and_servers_of_suggestions(chosen: Sequence[RuleSuggestion]) -> tuple[list[str], list[str]]:
    slots = [suggestion.slot for suggestion in chosen if suggestion.slot]
    return [slot[0] for slot in slots], [slot[1] for slot in slots]


def build_suggestion_trial(suggestion: RuleSuggestion, saved: Sequence[DecisionRule]) -> RulesOnTrial:
    """Return a trial of the suggestion alone, which lists the calls that it counts."""
    if suggestion.is_grant:
        return question.build_trial_of_grant_edits([suggestion.require_suggested_grant_edit(timezone.now())])
    return question.build_trial_of_rules(
        suggestions.insert_rules_after_last_deny(saved, [suggestion.suggested_rule(0)])
    )


@require_POST
@never_cache
@require_policy_editor
def accept_suggestion_view(request: HtmxHttpRequest) -> HttpResponse:
    """Save suggestions as rules and grants, all or none, as the person who accepted them."""
    by, now, user_id = person_actor(request.user), timezone.now(), signed_in_user_id(request)
    try:
        accepted = [unsign_accepted_suggestion(user_id, text) for text in request.POST.getlist("suggestion")]
        if not accepted:
            raise UnprocessableRequest("Select a suggestion first.")
        version = accepted[0][2]
        seen_version = rules_version_required_for_acceptance(user_id, version, request.POST.get("since", ""))
        message, url, after = save_suggestions_and_build_message(
            [(suggestion, slot) for suggestion, slot, _ in accepted], seen_version, by, now
        )
    except SignalboxError as refusal:
        detail = refusal.detail["message"] if isinstance(refusal.detail, dict) else str(refusal.detail)
        if not request.htmx:
            messages.error(request, detail)
            return redirect("rules:suggestions")
        answer = HttpResponse(status=204)
        return trigger_client_event(answer, "toast", {"level": "error", "text": detail})
    if not request.htmx:
        messages.success(request, message)
        return redirect(url)
    since = carried.sign_values_for_person(user_id, SINCE, [version, after])
    context = {
        "words": message,
        "url": url,
        "since": since,
        "sentence": build_rule_sentence_parts(accepted[0][0].suggested_rule(0)),
    }
    return render(request, "rules/_accepted.html", context | {"one": accepted[0][0]})


@require_POST
@never_cache
@require_policy_editor
def dismiss_or_restore_suggestions_view(request: HtmxHttpRequest) -> HttpResponse:
    """Dismiss a suggestion for good, or allow all dismissed suggestions again."""
    by, now, user_id = person_actor(request.user), timezone.now(), signed_in_user_id(request)
    if request.POST.get("restore"):
        restored = actions.restore_dismissed_suggestions(actor=by, now=now)
        messages.success(request, f"{restored} dismissed suggestions can be made again.")
        return redirect("rules:suggestions")
    try:
        suggestion, _, _ = unsign_accepted_suggestion(user_id, request.POST.get("suggestion", ""))
    except SignalboxError as refusal:
        messages.error(request, str(refusal.detail))
        return redirect("rules:suggestions")
    label = suggestion_as_plain_text(suggestion)
    actions.dismiss_suggestion(suggestion.suggestion_digest, label, actor=by, now=now)
    if not request.htmx:
        messages.success(request, "The suggestion is dismissed and will not be made again.")
        return redirect("rules:suggestions")
    return render(request, "rules/_dismissed.html", {"label": label})


def suggestion_as_plain_text(suggestion: RuleSuggestion) -> str:
    """Return a suggestion as plain text."""
    if suggestion.slot is not None:
        agent, server, tool = suggestion.slot
        return f"Grant {agent} the tool {tool} of {server}"
    return " ".join(part.text for part in build_rule_sentence_parts(suggestion.suggested_rule(0)))


def unsign_accepted_suggestion(whose: int, text: str) -> tuple[RuleSuggestion, str | None, str]:
    """Return the suggestion, the version of the grants in its slot, and the version of its rules.

    Raises UnprocessableRequest if `text` was not signed for this person, or by another version of Signalbox.
    """
    try:
        values, slot, version = carried.unsign_values_for_person(whose, ACCEPT, text)
        return RuleSuggestion(*values), slot, version
    except (ValueError, TypeError):
        raise UnprocessableRequest(
            "Signalbox was updated after this suggestion was made. Reload the page."
        ) from None


def rules_version_required_for_acceptance(whose: int, version: str, since: str) -> str:
    """Return the version that the saved rules must have for a suggestion to be accepted.

    This is the version that the search used, or the version after this person's last acceptance from that
    search.
    """
    if not since:
        return version
    try:
        before, after = carried.unsign_values_for_person(whose, SINCE, since)
    except (ValueError, TypeError):
        raise UnprocessableRequest(
            "Signalbox was updated after this page was loaded. Reload the page."
        ) from None
    return str(after) if before == version else version


def save_suggestions_and_build_message(
    accepted: Sequence[tuple[RuleSuggestion, str | None]], seen_version: str, actor: Actor, now: datetime
) -> tuple[str, str, str]:
    """Save suggestions as rules and grants.

    Return a message, the URL of the page with what was saved, and the new version of the rules. Raises
    Conflict if a person has since denied a call that a suggestion would allow.
    """
    servers = managed.load_managed_servers(now)
    added: list[DecisionRule] = []
    edits: list[GrantEdit] = []
    for suggestion, slot in accepted:
        if suggestions.find_refused_request_matching_suggestion(suggestion, READER, servers) is not None:
            raise Conflict(
                "Somebody has denied such a call since, so this is no longer suggested. Reload the page."
            )
        approved_text = (
            f"people approved {suggestion.approved}" if suggestion.approved else "nobody approved any"
        )
        reason = f"Suggested from {suggestion.calls} recorded calls; {approved_text}, and nobody refused one."
        if suggestion.is_grant:
            edits.append(suggestion.require_suggested_grant_edit(now, reason, slot))
        else:
            added.append(suggestion.suggested_rule(0, reason))
    try:
        numbered = actions.accept_suggestions(added, edits, seen_version=seen_version, actor=actor, now=now)
    except SignalboxError as refusal:
        if edits:
            grants.record_refused_grant_edits(edits, refusal, actor=actor, now=now)
        raise
    version = policy.digest_tool_rules(policy.load_saved_tool_rules())
    return (
        describe_accepted_suggestions(numbered, edits),
        saved_rules_or_grants_url(numbered, edits),
        version,
    )


def describe_accepted_suggestions(added: Sequence[DecisionRule], edits: Sequence[GrantEdit]) -> str:
    if len(added) == 1 and not edits:
        return f"Rule {added[0].number} allows it from now on."
    if len(edits) == 1 and not added:
        return f"{edits[0].agent_id} may now call {edits[0].tool_name}."
    parts = [f"{len(added)} rules"] if added else []
    parts += [f"{len(edits)} grants"] if edits else []
    return f"{' and '.join(parts)} are saved and apply from now on."


def saved_rules_or_grants_url(added: Sequence[DecisionRule], edits: Sequence[GrantEdit]) -> str:
    if added:
        return reverse("rules:list")
    query_text = urlencode({"agent": edits[0].agent_id, "server": edits[0].server_id}, quote_via=quote)
    return f"{reverse('mcp:sheet')}?{query_text}"
