"""A driven agent asks whether a call may run: its question is put before people, and answered in its own options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from coordinator.actions import approvals as approvals_of
from coordinator.actions import tool_calls
from coordinator.actions.approvals.driven import RUNNER, open_questions, withdraw_open
from coordinator.actions.driving import calls, drafts
from coordinator.actions.driving.holding import lock, locked, require_holder
from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.errors import Conflict, Invalid, NotFound
from coordinator.identity.actors import Actor
from coordinator.lib import instants
from coordinator.models import DrivenCall, PermissionRequest, Runner, Session
from coordinator.models.fields import dump
from coordinator.policy import agent_options, approvals
from coordinator.policy.agent_options import Outcome
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import ALLOW, Ruling
from coordinator.sessions.driving import Speech

__all__ = ["PermissionQuestion", "answer_of", "by_ruling", "note", "put", "withdraw_open"]

NOBODY = "Nobody answered in Signalbox in time."
ASKED_ANEW = "The agent asked about this call again."
WITHDRAWN = "The question was withdrawn."


@dataclass(frozen=True, slots=True)
class PermissionQuestion:
    """What a runner was asked by its agent: about which call, with which answers on offer."""

    session_id: str
    run_id: str | None
    tool_call: Mapping[str, Any]
    known: Sequence[Mapping[str, Any]]
    options: tuple[dict[str, str], ...]
    ask: str | None = None

    @property
    def call_id(self) -> str:
        """The call's id. Raises Invalid where there is none."""
        given = self.tool_call.get("toolCallId")
        if not isinstance(given, str) or not given:
            raise Invalid("tool_call names no toolCallId.")
        return given


def note(question: PermissionQuestion, runner: Runner, speech: Speech, now: datetime) -> AskedCall:
    """Begin the call's row, if it has none yet, and return the call as rules and people see it.

    Raises NotFound, and Forbidden where another runner holds the session.
    """
    with transaction.atomic():
        driven = locked(question.session_id, runner)
        told = RunnerPost(question.session_id, question.run_id or driven.run_id, driven, speech, now)
        fields = question.tool_call
        if not DrivenCall.objects.filter(session_id=question.session_id, call_id=question.call_id).exists():
            drafts.finish(told)
            for before in question.known:
                fields = {**before, **fields}
        known = calls.note_asked(told, question.call_id, fields)
        told.write()
    call = speech.call(known.told, told.program)
    session = Session.objects.get(pk=question.session_id)
    return AskedCall(
        asks=agent_options.ASKS,
        session_id=question.session_id,
        agent_id=session.agent_name,
        since_us=instants.to_us(now),
        tool=call.tool,
        tool_input=call.tool_input,
        about="",
        program=told.program,
        is_prompted=True,
        call_id=question.call_id,
        event_id=known.event_id,
        folder=driven.worktree or session.project_dir,
        host=session.hostname or runner.hostname,
        offered=tuple(dict(one) for one in agent_options.lasting(question.options)),
        described=call.title if call.title not in {call.tool, *_texts(call.tool_input)} else None,
        details={
            "title": call.title,
            "mode": driven.mode,
            "options": list(question.options),
            "ask": question.ask,
        },
    )


def _texts(tool_input: Mapping[str, Any] | None) -> set[str]:
    return {value for value in (tool_input or {}).values() if isinstance(value, str)}


def put(asked: AskedCall, ruling: Ruling, *, ask: str | None, by: Actor, now: datetime) -> PermissionRequest:
    """Put the question before people and return the request that stands for it; the same for the same question.

    `ask` names the question: an agent may ask twice about one call, and a yes answers once. It waits until it is
    answered or its turn ends; where a rule says for how long, until then.
    """
    known = _decided_by_hook(asked)
    if known is not None:
        return known
    until = now + timedelta(seconds=ruling.wait_seconds) if ruling.wait_seconds else None
    digest = approvals.digest(
        "driven", asked.session_id, asked.call_id, ask, asked.tool_input, list(asked.offered)
    )
    sent_as = f"driven:{digest}"
    try:
        row = tool_calls.ask(asked, ruling, by=by, deadline=until, sent_as=sent_as, now=now)
    except Conflict:
        # Where the session works may have become known since the runner asked this first.
        earlier = approvals_of.asked_as(sent_as, by=by)
        if earlier is None or not tool_calls.judged(earlier, asked):
            raise
        row = earlier
    _end_others(asked, row, now)
    return row


def _decided_by_hook(asked: AskedCall) -> PermissionRequest | None:
    """Return the verdict that the agent's own hook has brought on this very call a moment ago."""
    decided = PermissionRequest.objects.without_bodies().filter(
        metadata__contains=dump(asked.call_id),
        context__session_id=asked.session_id,
        plugin_id=asked.program,
        status__in=approvals.DECIDED,
    )
    for row in decided.order_by("-id")[: tool_calls.LIKELY]:
        named = isinstance(row.metadata, dict) and row.metadata.get("tool_use_id") == asked.call_id
        is_own = named and not agent_options.is_of_driven(row) and tool_calls.is_on_host(row, asked)
        if is_own and tool_calls.judged(row, asked):
            return row
    return None


def _end_others(asked: AskedCall, row: PermissionRequest, now: datetime) -> None:
    """A question about the same call that says something else is not asked any more."""
    for one in open_questions(asked.session_id, asked.call_id):
        if one.pk != row.pk:
            with suppress(Conflict, NotFound):
                approvals_of.withdraw(one.request_id, by=RUNNER, may_all=True, reason=ASKED_ANEW, now=now)


def answer_of(request_id: str, options: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, Any] | None:
    """Return how a question was answered, in the agent's own options; None while it waits."""
    row = approvals.find(request_id)
    state = approvals.standing(row, now)
    if state.waiting:
        return None
    context = approvals.context_of(row)
    reason = context.reason if context else None
    if state.allowed:
        added = (context.answer if context else None) or {}
        picked = added.get("suggestions") if isinstance(added, dict) else None
        outcome = agent_options.allowing(options, picked or ())
    elif row.status == PermissionRequest.Status.WITHDRAWN:
        outcome, reason = agent_options.CANCELLED, reason or WITHDRAWN
    else:
        outcome = agent_options.refusing(options)
        reason = reason or (NOBODY if row.status != PermissionRequest.Status.DENIED else None)
    return {"permission_request_id": request_id, "outcome": outcome, "reason": reason}


def by_ruling(
    asked: AskedCall, ruling: Ruling, options: Sequence[Mapping[str, Any]], *, by: Actor, now: datetime
) -> dict[str, Any]:
    """Answer by what policy says, and have it on record, once for a call however often it is asked."""
    with transaction.atomic():
        lock(asked.session_id)
        known = DrivenCall.objects.filter(session_id=asked.session_id, call_id=asked.call_id).first()
        if known is None or known.told.get("ruled") != [ruling.decision, ruling.by]:
            tool_calls.note_ruling(asked, ruling, by=by, now=now)
            if known is not None:
                known.told = {**known.told, "ruled": [ruling.decision, ruling.by]}
                known.save(update_fields=["told"])
    allows = ruling.decision == ALLOW
    outcome: Outcome = agent_options.allowing(options) if allows else agent_options.refusing(options)
    why = None if allows else f"Signalbox ({ruling.by}): {ruling.reason}"
    return {"permission_request_id": None, "outcome": outcome, "reason": why}


def withdraw(
    session_id: str, runner: Runner, call_id: str, *, ask: str | None, why: str, now: datetime
) -> None:
    """The runner says that nobody waits for the answer about this call any more. Raises NotFound and Forbidden."""
    require_holder(session_id, runner)
    withdraw_open(session_id, why[:2_000] or WITHDRAWN, now=now, call_id=call_id, ask=ask)
