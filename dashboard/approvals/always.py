"""What "always allow this" would write, as its page shows it and its form brings it back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from coordinator.actions import grants
from coordinator.actions.approvals.always import LastingAnswer
from coordinator.dialects.loaded import subject_text
from coordinator.errors import Conflict, Invalid
from coordinator.gateway.binding import about as gateway_about
from coordinator.models import PermissionRequest
from coordinator.policy import approvals, narrowest, tool_rules
from coordinator.policy.access import ALLOW as GRANTED
from coordinator.policy.call_text import CallText, shown_text
from coordinator.policy.edits import Edit
from coordinator.policy.grant_lengths import default_end
from coordinator.policy.history import RecordedCall, field_of, in_words
from coordinator.policy.judged import judged_digest
from coordinator.policy.narrowest import StandingAnswer
from coordinator.policy.tool_calls import GATEWAY
from coordinator.policy.tool_rules import Rule
from coordinator.sessions.agent_programs import AGENT_TITLES
from dashboard.rules import carried, question
from dashboard.rules.question import RulesOnTrial

PURPOSE = "always"


@dataclass(frozen=True, slots=True)
class Offer:
    """An answer in words, with the question what else it would allow, and the whole of it for whoever accepts."""

    answer: StandingAnswer
    call: RecordedCall
    others: list[str]  # fields of the call's input at which rules do not look
    question: RulesOnTrial
    packed: str

    @property
    def program(self) -> str:
        return AGENT_TITLES.get(self.call.program, self.call.program)

    @property
    def text(self) -> str:
        """Return what the call must be: a pattern where that is wider than its own text."""
        rule = self.answer.rule
        return rule.pattern if rule is not None and self.answer.wider else shown_text(self.call.about)

    @property
    def grant(self) -> Edit | None:
        return self.answer.edits[0] if self.answer.edits else None


def offer_for(row: PermissionRequest, whose: int, now: datetime, *, wide: bool) -> tuple[Offer, bool]:
    """Return what is offered, and whether there is a wider one beside the narrowest. Raises Conflict."""
    call = _call_of(row)
    found = narrowest.answers(row, call, now)
    answer = found[1] if wide and len(found) > 1 else found[0]
    if answer.rule is not None and answer.rules is not None:
        answer = _with_reason(answer, f"Always allowed from request {row.request_id}")
    offer = Offer(answer, call, _others(row, call), _question(answer), _packed(answer, row, whose))
    return offer, len(found) > 1


def _others(row: PermissionRequest, call: RecordedCall) -> list[str]:
    given = approvals.subject_of(row).tool_input
    if not call.field or not isinstance(given, dict):
        return []
    named = call.about.uncovered if isinstance(call.about, CallText) else frozenset()
    return [name for name in given if name != call.field and name not in named]


def _call_of(row: PermissionRequest) -> RecordedCall:
    """Return the call with the text that rules look at."""
    context = approvals.context_of(row)
    given = context.tool_input if context else None
    if row.plugin_id == GATEWAY:
        return narrowest.call_of(row, in_words(gateway_about(given)), "")
    tool = in_words(context.tool_name or "") if context else ""
    about = in_words(subject_text(row.plugin_id, tool, given))
    return narrowest.call_of(row, about, field_of(given, about))


def _with_reason(answer: StandingAnswer, reason: str) -> StandingAnswer:
    old = answer.rule
    assert old is not None
    assert answer.rules is not None
    new = replace(old, reason=reason)
    return replace(answer, rule=new, rules=tuple(new if one == old else one for one in answer.rules))


def _question(answer: StandingAnswer) -> RulesOnTrial:
    if answer.rules is None:
        return question.of_edits(answer.edits)
    return question.of_rules(answer.rules, answer.edits)


def _packed(answer: StandingAnswer, row: PermissionRequest, whose: int) -> str:
    version = tool_rules.version(tool_rules.saved())
    place = answer.rule.number if answer.rule else 0
    rule = [getattr(answer.rule, name) for name in Rule.__slots__] if answer.rule else None
    edits = [[one.agent_id, one.server_id, one.tool_name, _seen(one)] for one in answer.edits]
    values = [row.request_id, judged_digest(row), version, place, rule, edits]
    return carried.packed_for(whose, PURPOSE, values)


def _seen(edit: Edit) -> str:
    return grants.version_of(grants.slots_of([edit.agent_id], [edit.server_id]).get(edit.slot, []))


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a person accepts: the digest of the request they saw, what shall stand, and the number of the new rule."""

    judged: str
    answer: LastingAnswer
    number: int


def accepted(row: PermissionRequest, whose: int, text: str, now: datetime) -> Accepted:
    """Return what the form brings back. Raises Invalid for what is not from here, Conflict for other rules."""
    try:
        name, judged, version, place, values, slots = carried.unpacked_for(whose, PURPOSE, text)
        rule = None if values is None else _rule_of(values)
        edits = tuple(
            Edit(agent, server, tool, GRANTED, default_end(now), seen=seen or None)
            for agent, server, tool, seen in slots
        )
    except (ValueError, TypeError):
        raise Invalid("Signalbox was updated after this page was loaded. Reload the page.") from None
    if name != row.request_id:
        raise Invalid("This page was made for another request. Reload it.")
    if rule is None:
        return Accepted(judged, LastingAnswer(edits=edits), 0)
    saved = tool_rules.saved()
    if tool_rules.version(saved) != version:
        raise Conflict("The rules have changed since this page was loaded. Check the new offer.")
    rules = [*saved[: place - 1], rule, *saved[place - 1 :]]
    numbered = tuple(replace(one, number=number) for number, one in enumerate(rules, 1))
    return Accepted(judged, LastingAnswer(numbered, version, edits), place)


def _rule_of(values: list[Any]) -> Rule:
    said = dict(zip(Rule.__slots__, values, strict=True))
    agents = said.pop("agents")
    return Rule(agents=None if agents is None else tuple(agents), **said)
