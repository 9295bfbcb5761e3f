"""Edits of grants, and the policy that they would make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coordinator.identity.actors import Actor
from coordinator.policy.access import ASK, DENY, SERVER_GRANT, TOOL_GRANT, GrantRow, Policy

INHERIT = "inherit"

Slot = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Edit:
    """What one slot shall say: allow, ask, deny, or `inherit`, which ends what it says.

    `seen` is the version its editor looked at.
    """

    agent_id: str
    server_id: str
    tool_name: str | None
    permission: str
    expires_at: datetime | None = None
    justification: str | None = None
    seen: str | None = None

    @property
    def slot(self) -> Slot:
        """The agent, the server and the tool (None: the whole server)."""
        return (self.agent_id, self.server_id, self.tool_name)

    @property
    def entry_type(self) -> str:
        return TOOL_GRANT if self.tool_name else SERVER_GRANT


def policy_after(policy: Policy, edits: Iterable[Edit], *, by: Actor, now: datetime) -> Policy:
    """Return a copy of `policy` as it will be once `edits` are saved, for a preview; nothing is written."""
    slots = {pair: dict(rows) for pair, rows in policy.slots.items()}
    for edit in edits:
        tools = slots.setdefault((edit.agent_id, edit.server_id), {})
        tools.pop(edit.tool_name, None)
        if edit.permission != INHERIT:
            tools[edit.tool_name] = [GrantRow(id=0, **columns_of(edit, by, now))]
    return Policy(policy.servers, slots, policy.changed, policy.accepted_only)


def columns_of(edit: Edit, by: Actor, now: datetime) -> dict[str, Any]:
    """Return what the row that `edit` makes holds, and whether it asks (models.AskingGrant)."""
    return {
        "entry_type": edit.entry_type,
        "agent_id": edit.agent_id,
        "server_id": edit.server_id,
        "tool_name": edit.tool_name,
        "permission": DENY if edit.permission == ASK else edit.permission,
        "granted_by": str(by),
        "granted_at": now,
        "expires_at": edit.expires_at,
        "justification": edit.justification,
        "asks": edit.permission == ASK,
    }
