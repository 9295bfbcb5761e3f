"""The switches of ready-made rules."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.policy import ready_made as actions
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST
from coordinator.policy.rules.ready_made import BY_NAME, READY_MADE_RULES, ReadyMadeRule
from coordinator.policy.rules.tool_rules import load_saved_tool_rules
from dashboard.frame.guards import require_policy_editor
from dashboard.frame.htmx import HtmxHttpRequest


@dataclass(frozen=True, slots=True)
class ReadyMadeSwitch:
    """A ready-made rule, whether it is on, and as which number of the list."""

    rule: ReadyMadeRule
    number: int | None


def list_ready_made_switches() -> list[ReadyMadeSwitch]:
    numbers = {
        rule.ready_made: rule.number
        for rule in reversed(load_saved_tool_rules())
        if rule.ready_made and not rule.is_off
    }
    return [ReadyMadeSwitch(rule, numbers.get(rule.name)) for rule in READY_MADE_RULES]


@require_POST
@never_cache
@require_policy_editor
def switch_ready_made_rule(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Switch a ready-made rule on or off, and lead back to the page."""
    is_on = request.POST.get("is_on") == "1"
    try:
        actions.switch_ready_made_rule(
            name, is_on=is_on, actor=person_actor(request.user), now=timezone.now()
        )
    except SignalboxError as refusal:
        messages.error(request, str(refusal.detail))
    else:
        state = "on: it stands at the top of the list" if is_on else "off"
        messages.success(request, f"“{BY_NAME[name].mark}” is {state}.")
    return redirect("rules:list")
