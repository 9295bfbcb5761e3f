"""Rules and grants that would have let most calls run unasked: searched piece by piece, accepted one by one."""

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
from django.views.decorators.http import require_http_methods, require_POST
from django_htmx.http import trigger_client_event

from coordinator.actions import grants, tool_rules
from coordinator.errors import Conflict, Invalid, SignalboxError
from coordinator.identity.actors import Actor, person
from coordinator.identity.roles import APPROVER, has_role
from coordinator.lib import instants
from coordinator.policy import managed, suggestions
from coordinator.policy import tool_rules as policy
from coordinator.policy.edits import Edit
from coordinator.policy.history import Budget, RecordedCall
from coordinator.policy.suggestions import GOAL, Search, Suggestion
from coordinator.policy.tool_rules import Rule
from coordinator.sessions.agent_programs import AGENT_TITLES
from dashboard.frame.guards import policy_editor, viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.frame.proofs import without_proof
from dashboard.rules import carried, question
from dashboard.rules.counts import WORDS
from dashboard.rules.question import RulesOnTrial
from dashboard.rules.recorded import PIECE, READER

SEARCH, ACCEPT, SINCE = "suggestions", "suggestion", "accepted-since"
SHORT = 200


@dataclass(frozen=True, slots=True)
class SuggestionCard:
    """A suggestion as its card shows it. `packed` is the whole of it, for whoever accepts."""

    place: int
    one: Suggestion
    packed: str
    examples: list[RecordedCall]
    question: RulesOnTrial
    callers: list[tuple[str, int]]
    now: str
    program: str

    @property
    def newest(self) -> datetime:
        return instants.from_us(self.one.newest_us)

    @property
    def oldest(self) -> datetime:
        return instants.from_us(self.one.oldest_us)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@without_proof
@viewer
def page(request: HtmxHttpRequest) -> HttpResponse:
    """Search, or search on from where the last piece stopped; only reads, so the cookie is enough."""
    whose, saved = _key_of(request), policy.saved()
    try:
        search = _search(whose, request.POST.get("carried", ""), policy.version(saved))
    except SignalboxError as refusal:
        context = {"problem": str(refusal.detail)}
        template = "_trial_refused" if wants_fragment(request) else "suggestions"
        return render(request, f"rules/{template}.html", context, status=422)
    search.go_on(READER, saved, timezone.now(), Budget(PIECE))
    template = "_suggestions" if wants_fragment(request) else "suggestions"
    context = _context(whose, search, saved) | {"may_try": has_role(request.user, APPROVER)}
    return render(request, f"rules/{template}.html", context)


def _key_of(request: HtmxHttpRequest) -> int:
    """Return the key of whoever is signed in."""
    assert request.user.pk is not None
    return request.user.pk


def _search(whose: int, so_far: str, version: str) -> Search:
    """Return the search to go on with: a new one where the rules have changed since the last piece."""
    if not so_far:
        return Search.beginning(READER)
    try:
        seen, values = carried.unpacked_for(whose, SEARCH, so_far)
        return Search.from_values(values) if seen == version else Search.beginning(READER)
    except (ValueError, TypeError, AttributeError):
        raise Invalid("Signalbox was updated after this search started. Reload the page.") from None


def _context(whose: int, search: Search, saved: Sequence[Rule]) -> dict[str, Any]:
    version = policy.version(saved)
    chosen = search.tried if search.is_done else []
    return {
        "search": search,
        "share": round(search.share, 3),
        "carried": "" if search.is_done else carried.packed_for(whose, SEARCH, [version, search.as_values()]),
        "step": f"{search.phase}-{search.before}",
        "suggestions": _shown(whose, chosen, saved),
        "goal": round(100 * GOAL),
        "asked": search.asked,
        "unasked": search.unasked(chosen),
        "reached": int(100 * search.coverage(chosen)),
        "reached_now": int(100 * search.coverage([])),
        "left": search.asked - search.unasked(chosen),
    }


def _shown(whose: int, chosen: Sequence[Suggestion], saved: Sequence[Rule]) -> list[SuggestionCard]:
    examples = {
        call.event_id: call for call in READER.named([event for one in chosen for event in one.examples])
    }
    versions = grants.slots_of(*_slots(chosen))
    found, version = [], policy.version(saved)
    for place, one in enumerate(chosen, 1):
        seen = grants.version_of(versions.get((*one.slot,), [])) if one.slot else None  # type: ignore[arg-type]
        packed = carried.packed_for(whose, ACCEPT, [one.as_values(), seen, version])
        calls = list(
            {examples[event].about: examples[event] for event in one.examples if event in examples}.values()
        )
        asked = _question(one, saved)
        callers = sorted(
            (dict.fromkeys(one.agents or (), 0) | one.callers).items(), key=lambda item: -item[1]
        )
        program = AGENT_TITLES.get(one.program, one.program)
        found.append(SuggestionCard(place, one, packed, calls, asked, callers, _now_in_words(one), program))
    return found


def _now_in_words(one: Suggestion) -> str:
    """Return how the calls are decided as things stand: "now 3 asked by rule 2, 5 observed"."""
    parts = []
    for name, number in sorted(one.now.items()):
        decision, _, by = name.partition(" ")
        word = WORDS.get(decision, decision).lower()
        parts.append(f"{number:,} {word} by {by}" if by else f"{number:,} {word}")
    return f"now {', '.join(parts)}"


def _slots(chosen: Sequence[Suggestion]) -> tuple[list[str], list[str]]:
    slots = [one.slot for one in chosen if one.slot]
    return [slot[0] for slot in slots], [slot[1] for slot in slots]


def _question(one: Suggestion, saved: Sequence[Rule]) -> RulesOnTrial:
    """Return the question what the suggestion alone would change: the calls behind its number."""
    if one.is_grant:
        return question.of_edits([one.edit(timezone.now())])
    return question.of_rules(suggestions.placed(saved, [one.rule(0)]))


@require_POST
@never_cache
@policy_editor
def accept(request: HtmxHttpRequest) -> HttpResponse:
    """Make one suggestion a rule or a grant, as the person who pressed the button."""
    by, now, whose = person(request.user), timezone.now(), _key_of(request)
    try:
        one, slot, version = _accepted(whose, request.POST.get("suggestion", ""))
        seen = _version_now(whose, version, request.POST.get("since", ""))
        words, url, after = _make(one, slot, seen, by, now)
    except SignalboxError as refusal:
        detail = refusal.detail["message"] if isinstance(refusal.detail, dict) else str(refusal.detail)
        if not request.htmx:
            messages.error(request, detail)
            return redirect("rules:suggestions")
        answer = HttpResponse(status=204)
        return trigger_client_event(answer, "toast", {"level": "error", "text": detail})
    if not request.htmx:
        messages.success(request, words)
        return redirect(url)
    since = carried.packed_for(whose, SINCE, [version, after])
    return render(request, "rules/_accepted.html", {"words": words, "url": url, "one": one, "since": since})


def _accepted(whose: int, text: str) -> tuple[Suggestion, str | None, str]:
    """Return the suggestion, the version of the grant in its slot, and that of the rules it was made against."""
    try:
        values, slot, version = carried.unpacked_for(whose, ACCEPT, text)
        return Suggestion(*values), slot, version
    except (ValueError, TypeError):
        raise Invalid("Signalbox was updated after this suggestion was made. Reload the page.") from None


def _version_now(whose: int, version: str, since: str) -> str:
    """Return the version that the rules must have: that of the search, with what this person accepted from it."""
    if not since:
        return version
    try:
        before, after = carried.unpacked_for(whose, SINCE, since)
    except (ValueError, TypeError):
        raise Invalid("Signalbox was updated after this page was loaded. Reload the page.") from None
    return str(after) if before == version else version


def _make(one: Suggestion, slot: str | None, seen: str, by: Actor, now: datetime) -> tuple[str, str, str]:
    """Save what was suggested; return what was done, in words, where it stands, and the version of the rules then."""
    if suggestions.refused_meanwhile(one, READER, managed.load(now)) is not None:
        raise Conflict(
            "Somebody has denied such a call since, so this is no longer suggested. Reload the page."
        )
    said = f"people approved {one.approved}" if one.approved else "nobody approved any"
    reason = f"Suggested from {one.calls} recorded calls; {said}, and nobody refused one."
    if one.is_grant:
        return *_grant(one.edit(now, reason, slot), by, now), seen
    return _rule(one, reason, seen, by, now)


def _grant(edit: Edit, by: Actor, now: datetime) -> tuple[str, str]:
    try:
        grants.apply([edit], by=by, now=now)
    except SignalboxError as refusal:
        grants.record_refusal([edit], refusal, by=by, now=now)
        raise
    named = urlencode({"agent": edit.agent_id, "server": edit.server_id}, quote_via=quote)
    return f"{edit.agent_id} may now call {edit.tool_name}.", f"{reverse('mcp:sheet')}?{named}"


def _rule(one: Suggestion, reason: str, seen: str, by: Actor, now: datetime) -> tuple[str, str, str]:
    saved = policy.saved()
    number = suggestions.behind_denials(saved) + 1
    rule = one.rule(number, reason)
    if any(replace(old, number=number, reason=reason) == rule for old in saved):
        raise Conflict("This rule already exists.")
    if policy.version(saved) != seen:
        raise Conflict(tool_rules.CHANGED_MEANWHILE)
    wanted = suggestions.placed(saved, [rule])
    tool_rules.save(wanted, seen=seen, by=by, now=now)
    return f"Rule {number} allows it from now on.", reverse("rules:list"), policy.version(wanted)
