"""Asking a person for access to a tool: how such a request is written, and how it is read again."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.models import PermissionRequest
from coordinator.policy.requests.approvals import PermissionSubject, request_context, request_subject

PERMISSION_TYPE = "McpAccess"


@dataclass(frozen=True, slots=True)
class RequestedAccess:
    """What is asked for: one tool of a server, or (None) all of it."""

    agent_id: str
    server_id: str
    tool_name: str | None

    @property
    def permission_subject(self) -> PermissionSubject:
        return PermissionSubject(
            plugin_id=self.agent_id,  # who asks, as cards say it
            permission_type=PERMISSION_TYPE,
            target_resource=f"{self.tool_name or 'every tool'} of {self.server_id}",
            tool_name=self.tool_name,
            # In addition to the text, what the grant is made from; who asks for whom is part of what is approved.
            tool_input={"agent_id": self.agent_id, "server_id": self.server_id, "tool_name": self.tool_name},
        )


def parse_access_request_or_none(request: PermissionRequest) -> RequestedAccess | None:
    """Return what a request for access asks for; None for any other request.

    The requester writes both the text on the card and the input that the grant is made from. Where the two do not
    say the same, or an agent's request is for another agent, it is no such request: approving it grants nothing.
    """
    if request.permission_type != PERMISSION_TYPE:  # lists do not load an input for nothing
        return None
    context = request_context(request)
    tool_input = context.tool_input if context is not None else None
    if not isinstance(tool_input, dict):
        return None
    agent_id, server_id, tool_name = (tool_input.get(name) for name in ("agent_id", "server_id", "tool_name"))
    if not isinstance(agent_id, str) or not isinstance(server_id, str):
        return None
    wish = RequestedAccess(
        agent_id, server_id, tool_name if isinstance(tool_name, str) and tool_name else None
    )
    if context is None or context.agent_id not in (None, agent_id):
        return None
    return wish if wish.permission_subject.subject_digest == request_subject(request).subject_digest else None
