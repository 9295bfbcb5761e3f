"""Approval of MCP servers' requests to their clients (for the model, for folders) where policy asks a person.

Such a request is a permission request, bound to its exact parameters and to the policy that asks. The worker that has
the stream on which the server asked waits for the decision, which any worker may write. An approval lets one request
through, by a compare-and-swap; any other end of the wait lets none through.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.mcp.gateway_calls import max_call_duration
from coordinator.identity.actors import Actor
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway import servers, workers
from coordinator.mcp.gateway.binding import (
    CallBinding,
    hash_raw_call_arguments,
    hash_ruling_as_policy_version,
)
from coordinator.mcp.gateway.mcp_request_headlines import describe_mcp_request
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.models import GatewayCall, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.policy.requests import approvals as rules
from coordinator.policy.rules.tool_rules import ASK, DENY, Ruling

POLICY_CHANGED = "The policy changed since a person was asked."
ENDED = "The approval was used, or has ended."
DENIED_BY_PERSON = "A person denied it."
NOT_APPROVED = "Nobody approved it."


@dataclass(frozen=True, slots=True)
class ServerRequestQuestion:
    """What a server asks of a client, and of whose. By `key` the client's answer finds it.

    `call_id` is that of the request in its timeline, `within` that of the call in whose middle it came.
    """

    key: str
    server: UpstreamServer
    method: str
    params: Mapping[str, Any]
    shown_params: Mapping[str, Any]  # what patterns of rules see
    raw_params: bytes
    call_id: str
    within: str
    tool: str
    actor: Actor
    key_id: int
    caller: GatewayCaller
    session_id: str
    event_id: int | None = None
    client: str = ""

    def build_call_binding(self, ruling: Ruling) -> CallBinding:
        """Return what an approval is bound to."""
        return CallBinding(
            self.actor,
            self.key_id,
            self.caller.agent_id,
            self.server.name,
            self.method,
            dict(self.params),
            hash_raw_call_arguments(self.raw_params),
            "",
            hash_ruling_as_policy_version(ruling),
            is_read=True,
        )


def request_approval_of_server_request(
    question: ServerRequestQuestion, ruling: Ruling, *, until: datetime, now: datetime
) -> PermissionRequest:
    """Put a server's request before people; return the request that answers it.

    The call in whose middle it came may be under way until then. Raises what `approvals.request_permission` does.
    """
    binding = question.build_call_binding(ruling)
    sentences = [
        describe_mcp_request(question.server.name, question.method, question.params),
        f"It asks while its tool {question.tool} runs." if question.tool else "",
        f"{ruling.by.capitalize()}: {ruling.reason}" if ruling.by else "",
    ]
    with transaction.atomic():
        # An earlier request of the same id stays what it was: no answer counts twice.
        is_free = approvals.find_request_by_idempotency_key(question.key, actor=question.actor) is None
        key = question.key if is_free else uuid.uuid4().hex
        row = approvals.request_permission(
            NewPermissionRequest(
                subject=binding.approval_subject,
                justification=" · ".join(filter(None, sentences))[:4_000],
                metadata={
                    "server": question.server.name,
                    "tool": question.method,
                    "tool_use_id": question.call_id,
                    "arguments_sha256": binding.arguments_digest,
                    "policy_version": binding.policy_version,
                    "rule": ruling.by or None,
                    "client": question.client or None,
                },
                session_id=question.session_id,
                agent_id=question.caller.agent_id,
                event_id=question.event_id,
                deadline=until,
                idempotency_key=key,
                slot=key,
                waited_by=f"{workers.get_own_worker_name()} {question.call_id}",
            ),
            actor=question.actor,
            now=now,
        ).request
        GatewayCall.objects.filter(pk=question.within, state=CallState.RUNNING).update(
            run_until=until + max_call_duration(question.server)
        )
    return row


def consume_server_approval_or_explain(
    question: ServerRequestQuestion, question_ruling: Ruling, request_id: str, now: datetime
) -> str:
    """Take the approval for this request; return why it may not pass, or nothing where it may, once.

    `question_ruling` is the ruling by which a person was asked.
    """
    row = rules.require_permission_request(request_id)
    if row.status == PermissionRequest.Status.DENIED:
        return DENIED_BY_PERSON
    if not rules.current_request_state(row, now).allowed:
        return NOT_APPROVED
    with transaction.atomic():
        server = servers.load_upstream_server(question.server.name)
        if server is None:
            return "The server is not registered any more."
        ruling = deciding.judge_server_request_from_database(
            server, question.method, question.caller, question.shown_params, now
        )
        if ruling.decision == DENY:
            return f"{ruling.reason.rstrip('.')}."
        question_version = hash_ruling_as_policy_version(question_ruling)
        if ruling.decision == ASK and hash_ruling_as_policy_version(ruling) != question_version:
            return POLICY_CHANGED
        is_taken = approvals.try_consume_request_verdict(
            request_id,
            actor=question.actor,
            call=question.build_call_binding(question_ruling).approval_subject.subject_digest,
            session_id=question.session_id,
            call_id=question.call_id,
            now=now,
        )
    return "" if is_taken else ENDED
