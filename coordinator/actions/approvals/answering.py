"""Answers to agents' questions, and approvals of plans: decisions that carry the person's answer."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.actions.approvals.deciding import decide_request
from coordinator.actions.approvals.rows import Person
from coordinator.errors import BadRequest, UnprocessableRequest
from coordinator.models import PermissionRequest
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests import question_requests, questions
from coordinator.policy.requests.questions import (
    ANSWERED,
    HIDDEN_TEXT,
    MODE,
    OPTION,
    SEALED_TEXT,
    AgentOption,
    AgentQuestions,
    OptionsQuestion,
    PlanMode,
    PlanReview,
    Question,
    SubmittedAnswer,
)
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.secrets.sealing import seal_for_purpose, unseal_for_purpose

SEALED_AS = "question-answer"
ANSWERED_BY_ONE = (
    "Two people must approve such requests, and a question has one answer."
    " Deny it, or answer it where the agent runs."
)


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """A person's answer to a question: one for each part, how an agent goes on with its plan, or its option."""

    answers: Sequence[SubmittedAnswer] = ()
    mode: str = ""
    option: str = ""


def answer_request(
    request_id: str, answer: RequestAnswer, *, person: Person, judged: str, reason: str | None = None
) -> PermissionRequest:
    """Answer a waiting question, or approve a waiting plan.

    `judged` is the digest of what the person saw, as for every decision. The answer is checked against the stored
    questions while the row is locked. Raises UnprocessableRequest for an answer that does not fit them, BadRequest for
    a request that is no question, and what `decide_request` raises.
    """
    row = PermissionRequest.objects.with_context().filter(request_id=request_id).first()
    question = question_requests.parse_request_question_or_none(row) if row is not None else None
    chosen = (
        require_offered_agent_option(question, answer.option)
        if isinstance(question, OptionsQuestion)
        else None
    )
    return decide_request(
        request_id,
        person=person,
        verdict="denied" if chosen is not None and not chosen.allows else "approved",
        judged=judged,
        reason=reason,
        added=functools.partial(build_stored_answer, answer),
        adds_rules=chosen is not None and chosen.allows and chosen.lasts,
        is_answer=True,
    )


def build_stored_answer(answer: RequestAnswer, row: PermissionRequest) -> dict[str, Any]:
    """Return the answer as it is stored with the decision."""
    parsed_question = question_requests.parse_request_question_or_none(row)
    if parsed_question is None:
        raise BadRequest("This request is not a question. Approve or deny it.")
    chosen = (
        require_offered_agent_option(parsed_question, answer.option)
        if isinstance(parsed_question, OptionsQuestion)
        else None
    )
    is_denial = chosen is not None and not chosen.allows  # one denial is enough
    if rules.required_approver_count(row) > 1 and not is_denial:
        raise BadRequest(ANSWERED_BY_ONE)
    if isinstance(parsed_question, PlanReview):
        return {MODE: validate_plan_mode(parsed_question, answer.mode)}
    if chosen is not None:
        return {OPTION: chosen.option_id, "name": chosen.name}
    if isinstance(parsed_question, AgentQuestions):
        stored = questions.convert_answers_to_stored_list(parsed_question, answer.answers)
        if rules.request_subject(row).tool_name == questions.ELICITATION:
            stored = [
                encrypt_answer_if_secret(question, stored_answer)
                for question, stored_answer in zip(parsed_question.questions, stored, strict=True)
            ]
        return {ANSWERED: stored}
    return {ANSWERED: []}  # an address that the person opened


def require_offered_agent_option(options: OptionsQuestion, option_id: str) -> AgentOption:
    chosen = next((option for option in options.options if option.option_id == option_id), None)
    if chosen is None:
        raise UnprocessableRequest("Choose one of the options that the agent offers.")
    return chosen


def validate_plan_mode(plan: PlanReview, mode: str) -> str:
    if not plan.modes:
        return ""
    if mode not in plan.modes:
        raise UnprocessableRequest("Choose how the agent goes on.")
    return PlanMode(mode).value


def encrypt_answer_if_secret(question: Question, stored_answer: dict[str, Any]) -> dict[str, Any]:
    """Return a form's answer as it is stored: a text that is, or may be, a secret can be read by its asker alone."""
    text = stored_answer["text"]
    if not text or not (question.is_secret or mask_secrets_in_value(text) != text):
        return stored_answer
    sealed = seal_for_purpose(SEALED_AS, text.encode()).decode()
    return stored_answer | {"text": HIDDEN_TEXT, SEALED_TEXT: sealed}


def decrypt_stored_answers(stored: Any) -> Any:
    """Return stored answers as their asker needs them. Raises ValueError where one cannot be opened any more."""
    if not isinstance(stored, list):
        return stored
    return [
        {
            **answer,
            "text": unseal_for_purpose(SEALED_AS, str(answer[SEALED_TEXT]).encode()).decode(),
        }
        if isinstance(answer, dict) and SEALED_TEXT in answer
        else answer
        for answer in stored
    ]
