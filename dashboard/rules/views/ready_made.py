"""The switches of ready-made rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.policy import ready_made as actions
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_GET, require_POST
from coordinator.policy.rules.ready_made import BY_NAME, READY_MADE_RULES
from coordinator.policy.rules.ready_made_allowing import ALLOWING_RULES
from coordinator.policy.rules.ready_made_rule import ReadyMadeRule
from coordinator.policy.rules.tool_rules import load_saved_tool_rules
from coordinator.policy.suggestions.history import WalkTimeLimit
from coordinator.policy.suggestions.search import (
    build_preset_suggestion_with_examples,
    nearest_event_ids_outside_suggestion,
)
from dashboard.frame.guards import require_policy_editor, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.rules.recorded import PIECE, READER


@dataclass(frozen=True, slots=True)
class ReadyMadeSwitch:
    """A ready-made rule, and its number in the list of rules (None if it is off)."""

    rule: ReadyMadeRule
    number: int | None


def load_ready_made_switches(rules: Sequence[ReadyMadeRule] = READY_MADE_RULES) -> list[ReadyMadeSwitch]:
    numbers = {
        rule.ready_made: rule.number
        for rule in reversed(load_saved_tool_rules())
        if rule.ready_made and not rule.is_off
    }
    return [ReadyMadeSwitch(rule, numbers.get(rule.name)) for rule in rules]


@require_GET
@never_cache
@require_viewer_role
def preview_ready_made_rule_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Show recorded calls that a ready-made rule would allow, and similar calls that it would not."""
    if name not in {rule.name for rule in ALLOWING_RULES}:
        raise Http404("There is no such ready-made rule.")
    ready_made = BY_NAME[name]
    compared = build_preset_suggestion_with_examples(ready_made.build_rule(1), READER, WalkTimeLimit(PIECE))
    nearest = nearest_event_ids_outside_suggestion(compared)
    calls = {
        call.event_id: call
        for call in READER.load_recorded_calls_of_ids([*compared.examples.values(), *nearest])
    }
    (switch,) = load_ready_made_switches([ready_made])
    context = {
        "switch": switch,
        "examples": [calls[event] for event in compared.examples.values() if event in calls],
        "nearest": [calls[event] for event in nearest if event in calls],
    }
    template = "_ready_made_calls" if wants_fragment(request) else "ready_made"
    return render(request, f"rules/{template}.html", context)


@require_POST
@never_cache
@require_policy_editor
def switch_ready_made_rule(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Switch a ready-made rule on or off, and redirect to the rules."""
    is_on = request.POST.get("is_on") == "1"
    try:
        actions.set_ready_made_rule_enabled(
            name, is_on=is_on, actor=person_actor(request.user), now=timezone.now()
        )
    except SignalboxError as refusal:
        messages.error(request, str(refusal.detail))
    else:
        place = "behind the rules that ask" if BY_NAME[name].is_allowing else "at the top of the list"
        state = f"on: it stands {place}" if is_on else "off"
        messages.success(request, f"“{BY_NAME[name].mark}” is {state}.")
    return redirect("rules:list")
