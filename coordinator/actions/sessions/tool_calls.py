"""A coding agent's tool calls that policy or a person decides: requested, answered, settled elsewhere.

An agent may show its own prompt while its hook waits here, and does not report when it was answered there. So the
waiting hook's worker looks for traces of that: the call's result, the end of the turn, what the person typed next.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db.models import Q

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.approvals.pending_calls import ANSWERS_AGAIN, pending_call_lifetime
from coordinator.actions.audit import audit
from coordinator.actions.policy import denials
from coordinator.errors import BadRequest, Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.lib import json_bounds
from coordinator.models import Event, PermissionRequest
from coordinator.models.fields import dump_compact_json
from coordinator.models.permissions import RequestStatus
from coordinator.notifications import messages
from coordinator.policy.requests import agent_options, policy_in_force
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.approvals import PermissionSubject
from coordinator.policy.requests.tool_calls import CAN_STOP_TURN, Settled, ToolCallRequest
from coordinator.policy.requests.verdicts import serialize_permission_request
from coordinator.policy.rules.tool_rules import Ruling
from coordinator.secrets.masking import (
    find_masks_in_value,
    map_masks_to_original_secrets,
    mask_secrets_in_value,
    restore_masked_secrets,
)
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.reports import SUBAGENT_END, TURN_END

PERMISSION = "ToolCall"
RUNS_EDITED_INPUT = "runs_edited_input"  # in the metadata of a request of another program that runs one
UNEDITABLE = "uneditable"  # in the metadata of a request whose agent runs no edited input
ELSEWHERE = "Answered in the terminal."
GONE = "The agent disconnected."
DEFERRED = "held"
# A result that came this shortly before the question answers it: the two hooks overtook one another.
OVERTAKEN = timedelta(seconds=2)
LIKELY = 20  # calls of a session among which the one that is asked about is looked for


def copy_request_with_call_id(
    call_request: ToolCallRequest, taken_ids: Collection[str] = ()
) -> ToolCallRequest:
    """Return `asked` with the id of the call it is about, where that can be known, and which of equal calls it is.

    A hook that names no call is about the newest open call alike of which no other such hook waits (`taken_ids`,
    and the requests that are pending). Where there is but one, every such hook is about that: one call,
    delivered twice. Where there are several and each is taken, nobody can say which it is, and it has a slot of its
    own.
    """
    if call_request.call_id is not None:
        starts = filter_tool_start_events(call_request).filter(context__tool_use_id=call_request.call_id)
        event_id = starts.order_by("-id").values_list("id", flat=True).first()
        return replace(call_request, event_id=event_id or call_request.event_id)
    alike = find_equal_open_calls(call_request)
    if not alike:
        return call_request
    other_call_ids = (
        {*taken_ids, *find_call_ids_with_pending_question(call_request)} if len(alike) > 1 else set()
    )
    free = next(((event_id, call_id) for event_id, call_id in alike if call_id not in other_call_ids), None)
    if free is None:
        return replace(call_request, slot=call_request.waiter or None)
    return replace(call_request, event_id=free[0], call_id=free[1], is_guessed=True)


def filter_tool_start_events(call_request: ToolCallRequest) -> Any:
    return Event.objects.filter(
        session_id=call_request.session_id, event_type="pre_tool", tool_name=call_request.tool
    )


def find_equal_open_calls(call_request: ToolCallRequest) -> list[tuple[int, str]]:
    """Return the calls of this turn that have this input, by event and id, newest first.

    Not those that had their result before the question came; one that came with it may have overtaken it.
    """
    rows = filter_tool_start_events(call_request).order_by("-id")
    rows = rows.values_list("id", "context__tool_use_id", "context__subagent", "tool_input")[:LIKELY]
    same_agent_rows = [row for row in rows if row[1] and row[2] == call_request.subagent]
    if not same_agent_rows:
        return []
    wanted_bytes = rules.canonical_json_bytes(mask_secrets_in_value(call_request.tool_input))
    alike = [
        (event_id, call_id)
        for event_id, call_id, _, stored_input in same_agent_rows
        if rules.canonical_json_bytes(stored_input) == wanted_bytes
    ]
    ends = Event.objects.filter(
        session_id=call_request.session_id,
        event_type="post_tool",
        context__tool_use_id__in=[call_id for _, call_id in alike],
        context__instant_us__lt=call_request.since_us - OVERTAKEN // timedelta(microseconds=1),
    )
    over = set(ends.values_list("context__tool_use_id", flat=True))
    turn = Event.objects.filter(turn_end_filter(call_request), session_id=call_request.session_id).order_by(
        "-id"
    )
    turn_start_id = turn.values_list("id", flat=True).first() or 0
    return [
        (event_id, call_id) for event_id, call_id in alike if call_id not in over and event_id > turn_start_id
    ]


def find_call_ids_with_pending_question(call_request: ToolCallRequest) -> set[str]:
    """Return the calls about which a hook of this name has put a question in the session that is pending."""
    pending = PermissionRequest.objects.filter(
        status=RequestStatus.PENDING,
        plugin_id=call_request.program,
        context__session_id=call_request.session_id,
    )
    metadata_rows = [
        data for data in pending.values_list("metadata", flat=True)[:LIKELY] if isinstance(data, dict)
    ]
    return {
        str(data.get("tool_use_id")) for data in metadata_rows if data.get("hook") == call_request.hook_name
    }


def find_index_of_equal_tool_input(inputs: Sequence[Any], call_request: ToolCallRequest) -> int | None:
    """Return the index at which the call's own input first occurs among stored inputs."""
    if not inputs:
        return None
    wanted_bytes = rules.canonical_json_bytes(mask_secrets_in_value(call_request.tool_input))
    return next(
        (
            place
            for place, stored_input in enumerate(inputs)
            if rules.canonical_json_bytes(stored_input) == wanted_bytes
        ),
        None,
    )


def consume_earlier_answer_to_call(
    call_request: ToolCallRequest, now: datetime, *, actor: Actor
) -> Settled | None:
    """Return what answers the question before it is put to anybody: its result, or a verdict on the same call."""
    if not call_request.is_prompted or call_request.call_id is None:
        return None
    since = call_request.since_us - OVERTAKEN // timedelta(microseconds=1)
    if find_call_result_events(call_request).filter(context__instant_us__gte=since).exists():
        return {"status": "elsewhere", "reason": ELSEWHERE}
    lately = now - ANSWERS_AGAIN
    names_it = Q(metadata__contains=dump_compact_json(call_request.call_id))
    same_call = Q(names_it, context__session_id=call_request.session_id, context__closed_at__gt=lately)
    made_again = Q(
        context__used_by=f"{call_request.session_id} {call_request.call_id}", context__used_at__gt=lately
    )
    requests = PermissionRequest.objects.defer_large_columns().filter(
        same_call | made_again, plugin_id=call_request.program, status__in=rules.DECIDED
    )
    for row in requests.order_by("-id")[:LIKELY]:
        is_same = (
            is_request_about_call(row, call_request)
            and is_verdict_for_call(row, call_request)
            and is_request_by_same_agent(row, call_request)
        )
        if (
            is_same
            and is_request_on_same_host(row, call_request)
            and try_consume_call_verdict(row.request_id, call_request, actor=actor, now=now)
        ):
            return build_hook_verdict(row, now)
    return None


def is_request_about_call(row: PermissionRequest, call_request: ToolCallRequest) -> bool:
    """Return whether the row was asked about the call of this id, or answered it when it was made again."""
    names_call = isinstance(row.metadata, dict) and row.metadata.get("tool_use_id") == call_request.call_id
    return names_call or row.context.used_by == f"{call_request.session_id} {call_request.call_id}"


def is_request_by_same_agent(row: PermissionRequest, call_request: ToolCallRequest) -> bool:
    """Return whether the row was asked for the call's agent, in its folder."""
    context = row.context
    return (context.agent_id, context.folder) == (
        call_request.agent_id,
        mask_secrets_in_value(call_request.folder),
    )


def is_request_on_same_host(row: PermissionRequest, call_request: ToolCallRequest) -> bool:
    """Return whether the row named the host on which the call would run: it may say who decides."""
    return call_request.host is None or row.context.host == call_request.host


def is_verdict_for_call(row: PermissionRequest, call_request: ToolCallRequest) -> bool:
    """Return whether the verdict is on this very call: what was asked for or, where edited, the edited input.

    Anybody with a key can ask by the hook's names, and so with a call's id above something else.
    """
    edited = rules.approved_edited_input(row)
    if edited is None:
        return rules.request_call_digest(row) == build_call_permission_subject(call_request).subject_digest
    # The hook's own text of an edited call's target is not known here; its tool and input are all it consists of.
    edited_subject = PermissionSubject(
        call_request.program, PERMISSION, None, rules.request_subject(row).tool_name, edited
    )
    return (
        edited_subject.subject_digest
        == replace(build_call_permission_subject(call_request), target_resource=None).subject_digest
    )


def build_call_permission_subject(call_request: ToolCallRequest) -> PermissionSubject:
    return PermissionSubject(
        call_request.program,
        PERMISSION,
        call_request.target and call_request.target[:2_000],
        call_request.tool,
        call_request.tool_input,
    )


def request_tool_approval(
    call_request: ToolCallRequest,
    ruling: Ruling,
    *,
    actor: Actor,
    deadline: datetime | None,
    outlasts: bool = False,
    sent_as: str | None = None,
    waited_by: str | None = None,
    now: datetime,
) -> PermissionRequest:
    """Put the call to people and return its request, with its context.

    The hook waits until `deadline`, for ever where there is none. Where the request `outlasts` it, people may decide
    for longer, and it may be one that was made before, about this call, and is decided by now. A repeated request with
    the same `sent_as` is the same request, whatever has become of it. `waited_by` is the process in which the hook
    waits.
    """
    request = approvals.request_permission(
        NewPermissionRequest(
            subject=build_call_permission_subject(call_request),
            justification=build_call_justification(call_request, ruling),
            metadata={
                **call_request.details,
                "hook": call_request.hook_name,
                "tool_use_id": call_request.call_id,
                "subagent": call_request.subagent,
                "rule": ruling.by or None,
                "permission_suggestions": list(call_request.offered),
                **({} if call_request.is_editable else {UNEDITABLE: True}),
                **({CAN_STOP_TURN: True} if call_request.can_stop_turn else {}),
            },
            session_id=call_request.session_id,
            agent_id=call_request.agent_id,
            event_id=call_request.event_id,
            deadline=max(deadline or now, now + pending_call_lifetime()) if outlasts else deadline,
            idempotency_key=sent_as,
            folder=call_request.folder,
            host=call_request.host,
            outlasts=outlasts,
            waits_until=deadline if outlasts else None,
            slot=call_request.slot or call_request.call_id,
            waited_by=waited_by and f"{waited_by} {call_request.call_id or ''}".strip(),
        ),
        actor=actor,
        now=now,
    )
    return request.request


def build_call_justification(call_request: ToolCallRequest, ruling: Ruling) -> str:
    described = call_request.described or (call_request.tool_input or {}).get("description")
    parts = [described] if isinstance(described, str) and described.strip() else []
    if ruling.by:
        parts.append(f"{ruling.by.capitalize()}: {ruling.reason}")
    asker = (
        f"Sub-agent {call_request.subagent}"
        if call_request.subagent
        else AGENT_TITLES.get(call_request.program, call_request.program)
    )
    return " · ".join(parts)[:4_000] or f"{asker} asks before it uses {call_request.tool}."


def find_call_question_answer(
    request_id: str, call_request: ToolCallRequest, now: datetime
) -> Settled | None:
    """Return how the question was answered, here or at the terminal; None while nobody has."""
    row = rules.require_permission_request(request_id)
    if not rules.current_request_state(row, now).waiting:
        return build_hook_verdict(row, now)
    return {"status": "elsewhere", "reason": ELSEWHERE} if has_session_moved_past_call(call_request) else None


def build_hook_verdict(row: PermissionRequest, now: datetime) -> Settled:
    """Return the verdict for the waiting hook, which runs an edited input in place of its own."""
    context = rules.request_context(row)
    allowed = rules.current_request_state(row, now).allowed
    return serialize_permission_request(row, now) | {
        "allowed": allowed,
        "answer": context.answer if context else None,
    }


def find_call_result_events(call_request: ToolCallRequest) -> Any:
    ends = Event.objects.filter(session_id=call_request.session_id, event_type="post_tool")
    if call_request.call_id is not None:
        return ends.filter(context__tool_use_id=call_request.call_id)
    return ends.filter(tool_name=call_request.tool, context__instant_us__gt=call_request.since_us)


def has_session_moved_past_call(call_request: ToolCallRequest) -> bool:
    """Return whether the session went on as it does once the question is answered, or asked by nobody any more."""
    ends = find_call_result_events(call_request)
    if call_request.call_id is not None:
        if ends.exists():
            return True
    elif (
        find_index_of_equal_tool_input(ends.values_list("tool_input", flat=True)[:LIKELY], call_request)
        is not None
    ):
        return True
    later = Event.objects.filter(
        session_id=call_request.session_id, context__instant_us__gt=call_request.since_us
    )
    return later.filter(turn_end_filter(call_request)).exists()


def turn_end_filter(call_request: ToolCallRequest) -> Q:
    """Return the events after which no call of the turn waits at the terminal any more."""
    over = Q(event_type="session_stop")
    if call_request.subagent is None:
        return over | Q(event_type=TURN_END) | Q(event_type="message", role="user", context__subagent=None)
    return over | Q(event_type=SUBAGENT_END, context__subagent=call_request.subagent)


def find_edited_input_call_id(program: str, session_id: str, tool: str, tool_input: Any) -> str | None:
    """Return the id of the newest call without a result that a person edited into this one; None where there is none.

    For a result that names no call: its input is not the one with which the call began.
    """
    approved = PermissionRequest.objects.defer_large_columns().filter(
        plugin_id=program,
        context__session_id=session_id,
        context__tool_name=tool,
        context__answer__contains='"updated_input"',
        status=RequestStatus.APPROVED,
    )
    wanted_bytes = rules.canonical_json_bytes(mask_secrets_in_value(tool_input))
    for row in approved.order_by("-id")[:LIKELY]:
        edited = rules.approved_edited_input(row)
        if edited is None or rules.canonical_json_bytes(edited) != wanted_bytes:
            continue
        call_id = row.metadata.get("tool_use_id") if isinstance(row.metadata, dict) else None
        if isinstance(call_id, str):
            ends = Event.objects.filter(session_id=session_id, event_type="post_tool")
            return None if ends.filter(context__tool_use_id=call_id).exists() else call_id
    return None


def try_consume_call_verdict(
    request_id: str, call_request: ToolCallRequest, *, actor: Actor, now: datetime
) -> bool:
    """Take the verdict for this call; False where another call has it, or nobody may have it any more.

    A hook that names no call is this call's second delivery where only one such call is open, and else a waiter of its
    own: of two equal calls one yes runs one.
    """
    is_certain = not call_request.waiter or (call_request.call_id is not None and not call_request.is_guessed)
    if not is_certain:
        is_certain = [call_id for _, call_id in find_equal_open_calls(call_request)] == [call_request.call_id]
    return approvals.try_consume_request_verdict(
        request_id,
        actor=actor,
        call=build_call_permission_subject(call_request).subject_digest,
        session_id=call_request.session_id,
        call_id=call_request.call_id,
        waiter=None if is_certain else call_request.waiter,
        now=now,
    )


def defer_tool_call(request_id: str, *, actor: Actor, reason: str, now: datetime) -> Settled | None:
    """Record that the agent is asked to wait; None where no person can decide the request any more.

    `until` is when asking ends, `link` where a person decides.
    """
    row = approvals.mark_request_deferred_or_none(request_id, actor=actor, reason=reason, now=now)
    if row is None:
        return None
    return {
        "status": DEFERRED,
        "why": reason,
        "request_id": row.request_id,
        "link": messages.approval_page_url(row, to_agent=True),
        "until": row.expires_at,
    }


def withdraw_call_question_if_open(
    request_id: str, *, actor: Actor, reason: str, unless_deferred: bool, now: datetime
) -> None:
    """Close the card of a question that nobody asks any more; harmless where it is closed already."""
    try:
        approvals.withdraw_request(
            request_id, actor=actor, unless_deferred=unless_deferred, reason=reason, now=now
        )
    except (Conflict, NotFound):
        return


@dataclass(frozen=True, slots=True)
class ApprovalAdditions:
    """A person's additions to the approval of a call.

    `edited` is the whole input as JSON, or, with `edited_field`, the text of that one field; None where nobody changed
    it. `picked` are the digests (`compute_offered_rule_digest`) of offered rules to be saved.
    """

    edited: str | None = None
    edited_field: str = ""
    picked: Collection[str] = ()


def decide_call_with_additions(
    request_id: str, *, verdict: Literal["approved", "denied"], additions: ApprovalAdditions, **decision: Any
) -> PermissionRequest:
    """Decide a call, with the input that it runs with and the offered rules to be saved.

    Raises UnprocessableRequest for an edited input that is none, BadRequest for a rule that was not offered, and what
    approvals.decide_request raises, which takes the rest of `decision`.
    """
    return approvals.decide_request(
        request_id,
        verdict=verdict,
        added=functools.partial(validate_edited_input_and_picked_rules, additions),
        adds_rules=bool(additions.picked),
        **decision,
    )


def is_call_editable(row: PermissionRequest) -> bool:
    """Return whether the asking agent would run an edited input."""
    metadata = row.metadata if isinstance(row.metadata, dict) else {}
    runs_edited_input = row.plugin_id in AGENT_TITLES or metadata.get(RUNS_EDITED_INPUT) is True
    return runs_edited_input and not metadata.get(UNEDITABLE)


def compute_offered_rule_digest(offered: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal, by which a card names a rule that it offers."""
    return rules.hash_json_parts("rule", offered)


def validate_edited_input_and_picked_rules(
    additions: ApprovalAdditions, row: PermissionRequest
) -> dict[str, Any]:
    added: dict[str, Any] = {}
    requested_input = rules.request_subject(row).tool_input
    edited_input = parse_edited_tool_input(requested_input, additions)
    if edited_input is not None and rules.canonical_json_bytes(edited_input) != rules.canonical_json_bytes(
        requested_input
    ):
        if find_masks_in_value(edited_input) - find_masks_in_value(requested_input):
            raise UnprocessableRequest(
                "A masked secret was changed or does not belong to this call. Leave it unchanged or remove it."
            )
        added["updated_input"] = edited_input
    picked = select_picked_rules(row, additions.picked)
    if picked:
        added["suggestions"] = picked
    is_agent = row.plugin_id in AGENT_TITLES or agent_options.is_driven_agent_request(row)
    if not is_agent and (picked or (added and not is_call_editable(row))):
        raise BadRequest(
            "Only calls of coding agents and of programs that run an edited input can be edited. "
            "Approve or deny this request as it is."
        )
    if "updated_input" in added and not is_call_editable(row):
        raise BadRequest("This call cannot be edited. Deny it instead and say in the reason what to change.")
    if added and rules.required_approver_count(row) > 1:
        raise BadRequest(
            "Two people must approve this request unchanged, so you cannot edit it or add rules."
        )
    return added


def select_picked_rules(row: PermissionRequest, picked: Collection[str]) -> list[dict[str, Any]]:
    """Return the offered rules that were picked, by their content: what is not offered to this asker it cannot get."""
    offered = {
        compute_offered_rule_digest(offered_rule): offered_rule
        for offered_rule in rules.find_offered_rules(row)
    }
    if set(picked) - set(offered):
        raise BadRequest("This rule was not offered.")
    return [rule for name, rule in offered.items() if name in picked]


def parse_edited_tool_input(requested_input: Any, additions: ApprovalAdditions) -> dict[str, Any] | None:
    if additions.edited is None:
        return None
    # As browsers send line breaks.
    field, text = additions.edited_field, additions.edited.replace("\r\n", "\n")
    if field:
        if not isinstance(requested_input, dict) or not isinstance(requested_input.get(field), str):
            raise UnprocessableRequest(f"The input has no text {field!r} to edit.")
        if not text.strip():
            raise UnprocessableRequest("The edited input is empty. Deny the request instead.")
        return {**requested_input, field: text}
    try:
        value = json_bounds.load_bounded_json(text)
    except ValueError as problem:
        raise UnprocessableRequest(f"The edited input is not JSON: {problem}.") from None
    if not isinstance(value, dict):
        raise UnprocessableRequest("The edited input must be a JSON object.")
    return value


def restore_masked_answer_secrets(answer: Settled, call_request: ToolCallRequest) -> Settled | None:
    """Return an answer with the call's own secrets where the card showed masks, as the agent needs it.

    Only the agent's waiting hook still knows them. None where one is left over: a mask must not be run.
    """
    added = answer.get("answer")
    if not added:
        return answer
    added = restore_masked_secrets(
        added, map_masks_to_original_secrets(call_request.tool_input, list(call_request.offered))
    )
    return (
        None
        if find_masks_in_value(added)
        - find_masks_in_value([call_request.tool_input, list(call_request.offered)])
        else answer | {"answer": added}
    )


def audit_policy_ruling(
    call_request: ToolCallRequest, ruling: Ruling, *, actor: Actor, now: datetime
) -> None:
    """Write into the audit log what policy answered without asking anybody."""
    event = "TOOL_CALL_ALLOWED" if ruling.decision == "allow" else "TOOL_CALL_DENIED"
    if ruling.decision != "allow" and denials.should_skip_denial_of_key_over_quota(event, actor, now):
        return
    audit.record_audit_entry(
        event,
        actor=actor,
        target=call_request.session_id,
        permission=call_request.tool,
        result="allowed" if ruling.decision == "allow" else "denied",
        reason=ruling.reason,
        metadata={
            "by": ruling.by,
            "agent_id": call_request.agent_id,
            "tool_use_id": call_request.call_id,
            "about": mask_secrets_in_value(call_request.about[:2_000], judged=True),
            **policy_in_force.ruling_source_as_json(ruling),
        },
        now=now,
    )


def expire_due_permission_requests(now: datetime) -> None:
    """Write down that deadlines have passed."""
    approvals.expire_due_requests(now)
