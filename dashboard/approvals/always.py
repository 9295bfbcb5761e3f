"""The offer to allow calls like a request's from now on, and what the page's form sends back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from coordinator.actions.approvals.always_allow import PermanentApproval
from coordinator.actions.policy import grants
from coordinator.dialects.dialect_registry import build_call_subject_text
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.mcp.gateway.binding import arguments_as_rule_text as gateway_about
from coordinator.models import PermissionRequest
from coordinator.policy.grants.access import ALLOW as GRANTED
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.grants.end_parsing import default_grant_end
from coordinator.policy.requests import approvals
from coordinator.policy.requests.judged_content import judged_card_digest
from coordinator.policy.requests.tool_calls import GATEWAY
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.call_text import CallText, copy_call_text_with_folder, text_for_allow_rules
from coordinator.policy.rules.tool_rules import DENY, DecisionRule
from coordinator.policy.suggestions import rules_for_requests
from coordinator.policy.suggestions.history import (
    RecordedCall,
    WalkTimeLimit,
    column_value_as_pattern_text,
    subject_field_name_or_empty,
)
from coordinator.policy.suggestions.rules_for_requests import PermanentAnswer
from coordinator.policy.suggestions.search import (
    build_rule_suggestion_with_examples,
    nearest_event_ids_outside_suggestion,
)
from coordinator.sessions.agent_programs import AGENT_TITLES
from dashboard.rules import question
from dashboard.rules import signed_values as carried
from dashboard.rules.question import RulesOnTrial
from dashboard.rules.recorded import FIRST_PIECE, READER
from dashboard.rules.sentences import SentencePart, build_rule_sentence_parts

PURPOSE = "always"


@dataclass(frozen=True, slots=True)
class AlwaysAllowOffer:
    """A rule or grants that would allow such calls from now on, with what else they would allow.

    `packed` is the signed offer that the form sends back if the person accepts. `exceptions` says which rules still
    ask or deny at a repetition (`describe_rules_for_repetitions`).
    """

    answer: PermanentAnswer
    call: RecordedCall
    others: list[str]  # fields of the call's input that the rule does not check
    question: RulesOnTrial
    packed: str
    examples: list[RecordedCall]
    nearest: list[RecordedCall]
    exceptions: str = ""

    @property
    def sentence(self) -> list[SentencePart]:
        """Return the rule as a sentence, in parts; empty if the offer has no rule."""
        return build_rule_sentence_parts(self.answer.rule) if self.answer.rule is not None else []

    @property
    def agent_title(self) -> str:
        return AGENT_TITLES.get(self.call.program, self.call.program)

    @property
    def call_text_or_rule_terms(self) -> str:
        """Return the text that a call must match: the lines of a wider rule, else this call's own text."""
        rule = self.answer.rule
        if rule is None or not self.answer.wider:
            return text_for_allow_rules(self.call.about)
        lines = (("Runs", rule.runs), ("Touches", rule.touches), ("Reaches", rule.reaches))
        return "\n".join(f"{name}:\n{text}" for name, text in lines if text)

    @property
    def grant_edit(self) -> GrantEdit | None:
        return self.answer.edits[0] if self.answer.edits else None


def build_offer_with_wider_flag(
    row: PermissionRequest, whose: int, now: datetime, *, wide: bool
) -> tuple[AlwaysAllowOffer, bool]:
    """Return the offer for the request, and whether a wider one exists. Raises Conflict.

    Args:
        row: The request.
        whose: The id of the user for whom the offer is signed.
        now: The current time.
        wide: Whether to return the wider offer, if there is one.
    """
    call = recorded_call_from_request(row)
    permanent_answers = rules_for_requests.suggest_rules_or_grants_for_request(row, call, now)
    answer = permanent_answers[1] if wide and len(permanent_answers) > 1 else permanent_answers[0]
    if answer.rule is not None and answer.rules is not None:
        answer = replace_rule_reason_in_answer(answer, f"Always allowed from request {row.request_id}")
    offer = AlwaysAllowOffer(
        answer,
        call,
        list_unchecked_input_fields(row, call),
        build_trial_of_permanent_answer(answer),
        sign_permanent_answer(answer, row, whose),
        *find_allowed_and_nearest_calls(answer, call),
        describe_rules_for_repetitions(answer, call, now),
    )
    return offer, len(permanent_answers) > 1


def find_allowed_and_nearest_calls(
    answer: PermanentAnswer, call: RecordedCall
) -> tuple[list[RecordedCall], list[RecordedCall]]:
    """Return recorded calls that the answer's rule would allow, and similar ones that it would not."""
    if answer.rule is None:
        return [], []
    compared = build_rule_suggestion_with_examples(answer.rule, call, READER, WalkTimeLimit(FIRST_PIECE))
    nearest = nearest_event_ids_outside_suggestion(compared)
    calls = {
        one.event_id: one
        for one in READER.load_recorded_calls_of_ids([*compared.examples.values(), *nearest])
    }
    return (
        [calls[event] for event in compared.examples.values() if event in calls],
        [calls[event] for event in nearest if event in calls],
    )


def describe_rules_for_repetitions(answer: PermanentAnswer, call: RecordedCall, now: datetime) -> str:
    """Return which rules still ask about such calls, or deny them, at a repetition; empty if there are none.

    For example: "rule 1 still asks (same call 5 times in 10 minutes)".
    """
    return " and ".join(
        f"rule {rule.number} still {'denies' if rule.verdict == DENY else 'asks'} ({rule.repeats})"
        for rule in rules_for_requests.find_rules_for_repetitions_of_call(answer, call, now)
    )


def list_unchecked_input_fields(row: PermissionRequest, call: RecordedCall) -> list[str]:
    tool_input = approvals.request_subject(row).tool_input
    if not call.field or not isinstance(tool_input, dict):
        return []
    uncovered_fields = (
        call.about.fields_requiring_allow_pattern if isinstance(call.about, CallText) else frozenset()
    )
    return [name for name in tool_input if name != call.field and name not in uncovered_fields]


def recorded_call_from_request(row: PermissionRequest) -> RecordedCall:
    """Return the request's call, with the text that rules match."""
    context = approvals.request_context(row)
    tool_input = context.tool_input if context else None
    if row.plugin_id == GATEWAY:
        return rules_for_requests.convert_request_to_recorded_call(
            row, column_value_as_pattern_text(gateway_about(tool_input)), ""
        )
    tool = column_value_as_pattern_text(context.tool_name or "") if context else ""
    about = column_value_as_pattern_text(
        copy_call_text_with_folder(
            build_call_subject_text(row.plugin_id, tool, tool_input), context.folder if context else None
        )
    )
    return rules_for_requests.convert_request_to_recorded_call(
        row, about, subject_field_name_or_empty(tool_input, about)
    )


def replace_rule_reason_in_answer(answer: PermanentAnswer, reason: str) -> PermanentAnswer:
    old = answer.rule
    assert old is not None
    assert answer.rules is not None
    new = replace(old, reason=reason)
    return replace(answer, rule=new, rules=tuple(new if rule == old else rule for rule in answer.rules))


def build_trial_of_permanent_answer(answer: PermanentAnswer) -> RulesOnTrial:
    if answer.rules is None:
        return question.build_trial_of_grant_edits(answer.edits)
    return question.build_trial_of_rules(answer.rules, answer.edits)


def sign_permanent_answer(answer: PermanentAnswer, row: PermissionRequest, whose: int) -> str:
    version = tool_rules.digest_tool_rules(tool_rules.load_saved_tool_rules())
    rule_number = answer.rule.number if answer.rule else 0
    rule = [getattr(answer.rule, name) for name in DecisionRule.__slots__] if answer.rule else None
    edits = [
        [edit.agent_id, edit.server_id, edit.tool_name, version_of_edited_grant_slot(edit)]
        for edit in answer.edits
    ]
    values = [row.request_id, judged_card_digest(row), version, rule_number, rule, edits]
    return carried.sign_values_for_person(whose, PURPOSE, values)


def version_of_edited_grant_slot(edit: GrantEdit) -> str:
    return grants.compute_grant_slot_version(
        grants.load_grant_slots([edit.agent_id], [edit.server_id]).get(edit.grant_slot, [])
    )


@dataclass(frozen=True, slots=True)
class AcceptedOffer:
    """What a person accepts: the digest of the request they saw, the answer, and the new rule's number.

    `exceptions` says which rules still ask or deny at a repetition (`describe_rules_for_repetitions`).
    """

    judged: str
    answer: PermanentApproval
    number: int
    exceptions: str


def verify_accepted_offer(row: PermissionRequest, whose: int, text: str, now: datetime) -> AcceptedOffer:
    """Return the offer that the form sends back.

    Raises UnprocessableRequest if the text was not signed for this person and request, and Conflict if the
    rules have changed since the page was loaded.
    """
    try:
        name, judged, version, rule_number, values, slots = carried.unsign_values_for_person(
            whose, PURPOSE, text
        )
        rule = None if values is None else build_rule_from_values(values)
        edits = tuple(
            GrantEdit(agent, server, tool, GRANTED, default_grant_end(now), seen_version=seen_version or None)
            for agent, server, tool, seen_version in slots
        )
    except (ValueError, TypeError):
        raise UnprocessableRequest(
            "Signalbox was updated after this page was loaded. Reload the page."
        ) from None
    if name != row.request_id:
        raise UnprocessableRequest("This page was made for another request. Reload it.")
    call = recorded_call_from_request(row)
    if rule is None:
        exceptions = describe_rules_for_repetitions(PermanentAnswer(edits=edits), call, now)
        return AcceptedOffer(judged, PermanentApproval(edits=edits), 0, exceptions)
    saved = tool_rules.load_saved_tool_rules()
    if tool_rules.digest_tool_rules(saved) != version:
        raise Conflict("The rules have changed since this page was loaded. Check the new offer.")
    rules = [*saved[: rule_number - 1], rule, *saved[rule_number - 1 :]]
    numbered = tuple(replace(one, number=number) for number, one in enumerate(rules, 1))
    exceptions = describe_rules_for_repetitions(PermanentAnswer(rules=numbered), call, now)
    return AcceptedOffer(judged, PermanentApproval(numbered, version, edits), rule_number, exceptions)


def build_rule_from_values(values: list[Any]) -> DecisionRule:
    rule_fields = dict(zip(DecisionRule.__slots__, values, strict=True))
    agents = rule_fields.pop("agents")
    return DecisionRule(agents=None if agents is None else tuple(agents), **rule_fields)
