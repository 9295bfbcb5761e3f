"""Permission questions of driven agents: put to people, and answered with the agent's own options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from coordinator.actions import approvals as approvals_of
from coordinator.actions.approvals.answering import decrypt_stored_answers
from coordinator.actions.approvals.driven_questions import (
    RUNNER,
    find_open_agent_questions,
    withdraw_open_questions,
)
from coordinator.actions.driving import calls, drafts
from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.actions.driving.session_runners import (
    lock_driven_session,
    lock_or_assign_driven_session,
    require_last_run_of_runner,
)
from coordinator.actions.sessions import tool_calls
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.lib import instants
from coordinator.models import DrivenCall, PermissionRequest, Runner, Session
from coordinator.models.fields import dump_compact_json
from coordinator.policy.requests import agent_options, approvals
from coordinator.policy.requests.agent_options import Outcome
from coordinator.policy.requests.questions import (
    ANSWERED,
    ELICITATION,
    OPTION,
    AgentQuestions,
    build_elicitation_content,
    parse_elicitation_or_none,
)
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules.tool_rules import ALLOW, Ruling
from coordinator.sessions.driven_agent_updates import AgentProtocolReader

__all__ = [
    "PermissionQuestion",
    "load_question_outcome",
    "record_and_build_question_call",
    "record_and_build_ruling_answer",
    "submit_permission_question",
    "withdraw_open_questions",
]

NOBODY = "Nobody answered in Signalbox in time."
REPEATED_BY_AGENT = "The agent asked about this call again."
WITHDRAWN = "The question was withdrawn."
FORM_FIELDS = frozenset({"mode", "message", "requestedSchema"})


@dataclass(frozen=True, slots=True)
class PermissionQuestion:
    """A question of an agent to its runner: about which call, with which answers on offer, or with which form."""

    session_id: str
    run_id: str | None
    tool_call: Mapping[str, Any]
    known_calls: Sequence[Mapping[str, Any]]
    options: tuple[dict[str, str], ...]
    ask: str | None = None
    elicitation: Mapping[str, Any] | None = None  # the form that is to be filled in, in place of options

    @property
    def call_id(self) -> str:
        """The call's id. Raises UnprocessableRequest where there is none."""
        tool_call_id = self.tool_call.get("toolCallId")
        if not isinstance(tool_call_id, str) or not tool_call_id:
            raise UnprocessableRequest("tool_call names no toolCallId.")
        return tool_call_id


def record_and_build_question_call(
    question: PermissionQuestion, runner: Runner, speech: AgentProtocolReader, now: datetime
) -> ToolCallRequest:
    """Begin the call's row, if it has none yet, and return the call as rules and people see it.

    Raises NotFound, and Forbidden where another runner holds the session.
    """
    if question.elicitation is not None:
        return record_and_build_elicitation_call(question, question.elicitation, runner, speech, now)
    with transaction.atomic():
        driven = lock_or_assign_driven_session(question.session_id, runner)
        post = RunnerPost(question.session_id, question.run_id or driven.run_id, driven, speech, now)
        fields = question.tool_call
        if not DrivenCall.objects.filter(session_id=question.session_id, call_id=question.call_id).exists():
            drafts.finish_agent_draft(post)
            for before in question.known_calls:
                fields = {**before, **fields}
        driven_call = calls.begin_call_awaiting_permission(post, question.call_id, fields)
        post.write_events_return_last_id()
    call = speech.call(driven_call.told, post.agent_program)
    session = Session.objects.get(pk=question.session_id)
    return ToolCallRequest(
        hook_name=agent_options.PERMISSION_METHOD,
        session_id=question.session_id,
        agent_id=session.agent_name,
        since_us=instants.instant_to_microseconds(now),
        tool=call.tool,
        tool_input=call.tool_input,
        about="",
        program=post.agent_program,
        is_prompted=True,
        call_id=question.call_id,
        event_id=driven_call.event_id,
        folder=driven.worktree or session.project_dir,
        host=session.hostname or runner.hostname,
        offered=tuple(
            dict(option) for option in agent_options.find_options_allowing_later_calls(question.options)
        ),
        described=call.title
        if call.title not in {call.tool, *collect_top_level_strings(call.tool_input)}
        else None,
        details={
            "title": call.title,
            "mode": driven.mode,
            "options": list(question.options),
            "ask": question.ask,
        },
    )


def record_and_build_elicitation_call(
    question: PermissionQuestion,
    form: Mapping[str, Any],
    runner: Runner,
    speech: AgentProtocolReader,
    now: datetime,
) -> ToolCallRequest:
    """Return the form as the call that people see; its row is that of the call for which the agent asks, if it has one.

    Raises UnprocessableRequest for a form that nobody could fill in, for its agent then goes on without.
    """
    tool_input = {name: value for name, value in form.items() if name in FORM_FIELDS}
    if parse_elicitation_or_none(tool_input) is None:
        raise UnprocessableRequest("The form has fields that no person can fill in here.")
    with transaction.atomic():
        driven = lock_or_assign_driven_session(question.session_id, runner)
        post = RunnerPost(question.session_id, question.run_id or driven.run_id, driven, speech, now)
        program = post.agent_program
    session = Session.objects.get(pk=question.session_id)
    calls_of_session = DrivenCall.objects.filter(session_id=question.session_id, call_id=question.call_id)
    return ToolCallRequest(
        hook_name=agent_options.PERMISSION_METHOD,
        session_id=question.session_id,
        agent_id=session.agent_name,
        since_us=instants.instant_to_microseconds(now),
        tool=ELICITATION,
        tool_input=tool_input,
        about="",
        program=program,
        is_prompted=True,
        call_id=question.call_id,
        event_id=calls_of_session.values_list("event_id", flat=True).first(),
        folder=driven.worktree or session.project_dir,
        host=session.hostname or runner.hostname,
        details={"mode": driven.mode, "ask": question.ask},
    )


def collect_top_level_strings(tool_input: Mapping[str, Any] | None) -> set[str]:
    return {value for value in (tool_input or {}).values() if isinstance(value, str)}


def submit_permission_question(
    call_request: ToolCallRequest, ruling: Ruling, *, ask: str | None, actor: Actor, now: datetime
) -> PermissionRequest:
    """Put the question to people and return its request; the same question gets the same request.

    `ask` identifies the question: an agent may ask twice about one call, and an approval answers once. It waits until
    it is answered or its turn ends; where a rule sets a time limit, until then.
    """
    hook_verdict = find_request_decided_by_hook(call_request)
    if hook_verdict is not None:
        return hook_verdict
    until = now + timedelta(seconds=ruling.wait_seconds) if ruling.wait_seconds else None
    digest = approvals.hash_json_parts(
        "driven",
        call_request.session_id,
        call_request.call_id,
        ask,
        call_request.tool_input,
        list(call_request.offered),
    )
    sent_as = f"driven:{digest}"
    try:
        row = tool_calls.request_tool_approval(
            call_request, ruling, actor=actor, deadline=until, sent_as=sent_as, now=now
        )
    except Conflict:
        # Where the session works may have become known since the runner asked this first.
        earlier = approvals_of.find_request_by_idempotency_key(sent_as, actor=actor)
        if earlier is None or not tool_calls.is_verdict_for_call(earlier, call_request):
            raise
        row = earlier
    withdraw_superseded_questions(call_request, row, now)
    return row


def find_request_decided_by_hook(call_request: ToolCallRequest) -> PermissionRequest | None:
    """Return the verdict that the agent's own hook has brought on this very call a moment ago."""
    decided = PermissionRequest.objects.defer_large_columns().filter(
        metadata__contains=dump_compact_json(call_request.call_id),
        context__session_id=call_request.session_id,
        plugin_id=call_request.program,
        status__in=approvals.DECIDED,
    )
    for row in decided.order_by("-id")[: tool_calls.LIKELY]:
        names_call = (
            isinstance(row.metadata, dict) and row.metadata.get("tool_use_id") == call_request.call_id
        )
        is_own = (
            names_call
            and not agent_options.is_driven_agent_request(row)
            and tool_calls.is_request_on_same_host(row, call_request)
        )
        if is_own and tool_calls.is_verdict_for_call(row, call_request):
            return row
    return None


def withdraw_superseded_questions(
    call_request: ToolCallRequest, row: PermissionRequest, now: datetime
) -> None:
    """A question about the same call that says something else is not asked any more."""
    for open_question in find_open_agent_questions(call_request.session_id, call_request.call_id):
        if open_question.pk != row.pk:
            with suppress(Conflict, NotFound):
                approvals_of.withdraw_request(
                    open_question.request_id, actor=RUNNER, may_all=True, reason=REPEATED_BY_AGENT, now=now
                )


def load_question_outcome(
    request_id: str, question: PermissionQuestion, now: datetime
) -> dict[str, Any] | None:
    """Return how a question was answered, in the agent's own options or as its form; None while it waits."""
    row = approvals.require_permission_request(request_id)
    state = approvals.current_request_state(row, now)
    if state.waiting:
        return None
    context = approvals.request_context(row)
    reason = context.reason if context else None
    added = approvals.approval_additions_by_name(row)
    if row.status == PermissionRequest.Status.WITHDRAWN:
        outcome, reason = agent_options.CANCELLED, reason or WITHDRAWN
    elif question.elicitation is not None:
        outcome = build_elicitation_response(question.elicitation, added, allowed=state.allowed)
    elif OPTION in added:
        outcome = agent_options.build_chosen_outcome_or_cancel(question.options, added[OPTION])
    elif state.allowed:
        outcome = agent_options.build_allow_outcome_or_cancel(
            question.options, added.get("suggestions") or ()
        )
    else:
        outcome = agent_options.build_reject_outcome_or_cancel(question.options)
        reason = reason or (NOBODY if row.status != PermissionRequest.Status.DENIED else None)
    return {"permission_request_id": request_id, "outcome": outcome, "reason": reason}


def build_elicitation_response(
    form: Mapping[str, Any], added: Mapping[str, Any], *, allowed: bool
) -> Outcome:
    """Return the answer to a form, filled in from its own fields: the stored ones may be masked."""
    elicited = parse_elicitation_or_none(dict(form))
    if not allowed or not isinstance(elicited, AgentQuestions):
        return {"action": "decline"}
    try:
        content = build_elicitation_content(elicited, decrypt_stored_answers(added.get(ANSWERED)))
    except ValueError:  # the server's secret key has changed
        content = None
    return {"action": "decline"} if content is None else {"action": "accept", "content": content}


def record_and_build_ruling_answer(
    call_request: ToolCallRequest,
    ruling: Ruling,
    question: PermissionQuestion,
    *,
    actor: Actor,
    now: datetime,
) -> dict[str, Any]:
    """Answer by what policy says, and have it on record, once for a call as it is, however often it is asked."""
    ruled = {
        "ruled": [ruling.decision, ruling.by],
        "ruled_call": approvals.hash_json_parts(call_request.tool, call_request.tool_input),
    }
    with transaction.atomic():
        lock_driven_session(call_request.session_id)
        driven_call = DrivenCall.objects.filter(
            session_id=call_request.session_id, call_id=call_request.call_id
        ).first()
        if driven_call is None or any(driven_call.told.get(name) != value for name, value in ruled.items()):
            tool_calls.audit_policy_ruling(call_request, ruling, actor=actor, now=now)
            if driven_call is not None:
                driven_call.told = {**driven_call.told, **ruled}
                driven_call.save(update_fields=["told"])
    allows = ruling.decision == ALLOW
    outcome: Outcome
    if question.elicitation is not None:
        outcome = {"action": "decline"}  # no rule fills in a form
    elif allows:
        outcome = agent_options.build_allow_outcome_or_cancel(question.options)
    else:
        outcome = agent_options.build_reject_outcome_or_cancel(question.options)
    reason = None if allows else f"Signalbox ({ruling.by}): {ruling.reason}"
    return {"permission_request_id": None, "outcome": outcome, "reason": reason}


def withdraw_driven_question(
    session_id: str, runner: Runner, call_id: str, *, ask: str | None, reason: str, now: datetime
) -> None:
    """Withdraw the question about this call, whose answer nobody awaits any more. Raises NotFound and Forbidden."""
    require_last_run_of_runner(session_id, runner)
    withdraw_open_questions(session_id, reason[:2_000] or WITHDRAWN, now=now, call_id=call_id, ask=ask)
