"""Questions of MCP servers during a call: put to people, and answered with what a person filled in.

Such a question (`elicitation/create`) is a permission request like an agent's own question. The worker that has the
call's stream to the server waits for the decision, which any worker may write. A client that can ask its own person is
asked, too. Of the two answers the first counts: both close the same row by a compare-and-swap.

Only an answer that a person gave to what their card showed is an `accept`. Any other end of the question is `decline`
or `cancel`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from django.db import transaction

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.approvals.answering import decrypt_stored_answers
from coordinator.actions.audit import audit
from coordinator.actions.mcp.gateway_calls import DENIED, approval_url, max_call_duration
from coordinator.actions.policy import denials
from coordinator.errors import Conflict, Forbidden, NotFound
from coordinator.identity.actors import Actor
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway import workers
from coordinator.mcp.gateway.binding import PERMISSION, arguments_as_rule_text, qualified_method_name
from coordinator.mcp.gateway.elicitation import FORM_FIELDS
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.models import GatewayCall, PermissionContext, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests import policy_in_force
from coordinator.policy.requests.approvals import PermissionSubject
from coordinator.policy.requests.question_requests import build_sealed_address_metadata
from coordinator.policy.requests.questions import (
    ANSWERED,
    ELICITATION,
    AddressRequest,
    AgentQuestions,
    build_elicitation_content,
    copy_without_secret_answers,
    parse_elicitation_or_none,
)
from coordinator.policy.requests.tool_calls import GATEWAY
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import DENY, Ruling

ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"
ANSWERED_BY_CLIENT = "Answered in the agent's own program."
ElicitationResult = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ElicitationRequest:
    """What a server asks: in which call, of whose session, with which params. By `key` its client's answer finds it."""

    key: str
    server: UpstreamServer
    params: Mapping[str, Any]
    tool: str
    call_id: str
    timeline_call_id: str
    actor: Actor
    caller: GatewayCaller
    session_id: str | None
    event_id: int | None = None
    client: str = ""

    @property
    def tool_input(self) -> dict[str, Any]:
        """Return what the card shows: the question, and the server that asks it."""
        elicited = {name: value for name, value in self.params.items() if name in FORM_FIELDS}
        return elicited | {"server": self.server.name}


@dataclass(frozen=True, slots=True)
class OpenElicitation:
    """A question that was put to people. Only with `is_findable` can its client's answer be matched to it."""

    pk: int
    request_id: str
    link: str  # of its card
    is_findable: bool


def build_elicitation_key(
    gateway_session: str, server_id: str, upstream_session: str | None, number: Any
) -> str:
    """Return by what a server's question to one client is found again: its id is unique in the server's session."""
    return rules.hash_json_parts("elicitation", gateway_session, server_id, upstream_session, number)


def open_elicitation_unless_denied(
    elicitation: ElicitationRequest, *, until: datetime, now: datetime
) -> OpenElicitation | None:
    """Put the question before people; None where a rule denies that, which is audited.

    The call in whose middle it is asked may be under way until it is answered. Raises what
    `approvals.request_permission` does.
    """
    ruling = deciding.judge_by_rules(
        tool_rules.load_saved_tool_rules(),
        elicitation.server,
        qualified_method_name(elicitation.server.name, ELICITATION),
        arguments_as_rule_text(elicitation.tool_input),
        elicitation.caller,
    )
    if ruling.decision == DENY:
        audit_denied_elicitation(elicitation, ruling, now)
        return None
    with transaction.atomic():
        is_findable = (
            approvals.find_request_by_idempotency_key(elicitation.key, actor=elicitation.actor) is None
        )
        # An earlier question of the same id stays what it was: no answer counts twice.
        key = elicitation.key if is_findable else uuid.uuid4().hex
        row = approvals.request_permission(
            NewPermissionRequest(
                subject=PermissionSubject(GATEWAY, PERMISSION, None, ELICITATION, elicitation.tool_input),
                justification=f"{elicitation.server.name} asks while its tool {elicitation.tool} runs.",
                metadata={
                    "hook": ELICITATION,
                    "server": elicitation.server.name,
                    "tool": elicitation.tool,
                    "tool_use_id": elicitation.timeline_call_id,
                    "client": elicitation.client or None,
                }
                | build_sealed_address_metadata(elicitation.params),
                session_id=elicitation.session_id,
                agent_id=elicitation.caller.agent_id,
                event_id=elicitation.event_id,
                deadline=until,
                idempotency_key=key,
                slot=key,
                waited_by=f"{workers.get_own_worker_name()} {elicitation.timeline_call_id}",
            ),
            actor=elicitation.actor,
            now=now,
        ).request
        GatewayCall.objects.filter(pk=elicitation.call_id, state=CallState.RUNNING).update(
            run_until=until + max_call_duration(elicitation.server)
        )
    return OpenElicitation(row.pk, row.request_id, approval_url(row), is_findable)


def audit_denied_elicitation(elicitation: ElicitationRequest, ruling: Ruling, now: datetime) -> None:
    if denials.should_skip_denial_of_key_over_quota(DENIED, elicitation.actor, now):
        return
    audit.record_audit_entry(
        DENIED,
        actor=elicitation.actor,
        target=elicitation.session_id,
        permission=qualified_method_name(elicitation.server.name, ELICITATION),
        result="denied",
        reason=ruling.reason,
        metadata={
            "by": ruling.by,
            "agent_id": elicitation.caller.agent_id,
            **policy_in_force.ruling_source_as_json(ruling),
        },
        now=now,
    )


def find_elicitation_result(
    request_id: str, params: Mapping[str, Any], now: datetime
) -> ElicitationResult | None:
    """Return what the server is sent; None while nobody has decided, an empty one where its client answers it.

    The form is filled in from the server's own params: of the stored ones secrets may be masked.
    """
    row = rules.require_permission_request(request_id)
    state = rules.current_request_state(row, now)
    if state.waiting:
        return None
    context = rules.request_context(row)
    if row.status == PermissionRequest.Status.DENIED:
        return {"action": DECLINE}
    if row.status == PermissionRequest.Status.WITHDRAWN and context is not None:
        return {} if context.reason == ANSWERED_BY_CLIENT else {"action": CANCEL}
    stored = rules.approval_additions_by_name(row).get(ANSWERED)
    if row.status != PermissionRequest.Status.APPROVED or stored is None:
        return {"action": CANCEL}
    return build_accept_or_cancel_result(params, stored)


def build_accept_or_cancel_result(params: Mapping[str, Any], stored: Any) -> ElicitationResult:
    elicited = parse_elicitation_or_none(dict(params))
    if isinstance(elicited, AddressRequest):
        return {"action": ACCEPT}
    try:
        content = (
            build_elicitation_content(elicited, decrypt_stored_answers(stored))
            if isinstance(elicited, AgentQuestions)
            else None
        )
    except ValueError:  # the installation's secret key has changed
        content = None
    return {"action": CANCEL} if content is None else {"action": ACCEPT, "content": content}


def delete_sent_elicitation_secrets(request_id: str) -> None:
    """Forget the secrets of an answer that its server has got."""
    context = PermissionContext.objects.filter(request__request_id=request_id).first()
    if context is not None and isinstance(context.answer, dict):
        answer = copy_without_secret_answers(context.answer)
        if answer != context.answer:
            PermissionContext.objects.filter(request__request_id=request_id).update(answer=answer)


def withdraw_elicitation(request_id: str, actor: Actor, reason: str, now: datetime) -> None:
    """Close the card of a question that nobody asks any more; harmless where it is closed already."""
    with suppress(Conflict, Forbidden, NotFound):
        approvals.withdraw_request(request_id, actor=actor, reason=reason, now=now)


class ClientAnswer(Enum):
    """The outcome of a client's response to a server's question."""

    UNKNOWN = "unknown"  # it answers another request, or one of which no card was made
    FIRST = "first"  # it goes to the server: its card is closed by now
    LATE = "late"  # the question is over
    LEFT_OPEN = "left open"  # the client decided nothing, so a person may still answer the card


def close_elicitation_on_client_answer(key: str, result: Any, actor: Actor, now: datetime) -> ClientAnswer:
    """Close the card of a question that a client answers, unless it was faster closed otherwise.

    What answers another request of a server goes on only once that request was approved and passed on. Programs
    without a person before them cancel, or answer with an error. That leaves the card open.
    """
    row = approvals.find_request_by_idempotency_key(key, actor=actor)
    if row is None:
        return ClientAnswer.UNKNOWN
    if rules.request_subject(row).tool_name != ELICITATION:  # a request that policy asks about
        is_passed_on = row.context.used_at is not None and rules.current_request_state(row, now).allowed
        return ClientAnswer.UNKNOWN if is_passed_on else ClientAnswer.LATE
    if not rules.current_request_state(row, now).waiting:
        return ClientAnswer.LATE
    action = result.get("action") if isinstance(result, dict) else None
    if action not in {ACCEPT, DECLINE}:
        return ClientAnswer.LEFT_OPEN
    try:
        approvals.withdraw_request(row.request_id, actor=actor, reason=ANSWERED_BY_CLIENT, now=now)
    except (Conflict, NotFound):
        return ClientAnswer.LATE
    return ClientAnswer.FIRST
