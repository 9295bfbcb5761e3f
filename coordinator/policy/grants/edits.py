"""Edits of grants, and the policy that they would make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coordinator.identity.actors import Actor
from coordinator.models import Grant
from coordinator.policy.grants.access import (
    ALLOW,
    ASK,
    DENY,
    ON_TOP_OF,
    SERVER_GRANT,
    TOOL_GRANT,
    AccessPolicy,
    GrantLike,
    GrantRow,
    topmost_grants_of_slot,
)

INHERIT = "inherit"
UNSAVED_ID = 2**63 - 1  # of a row that a preview makes: newer than all

Slot = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class GrantEdit:
    """The new permission of one slot: allow, ask, deny, or `inherit`, which ends its grants.

    `seen_version` is the version that the editor saw. `gives_way` marks a grant that ends with something else than the
    clock, such as the approval that made it: like one with an end, it overrides current rows
    (find_grants_remaining_under_edit).
    """

    agent_id: str
    server_id: str
    tool_name: str | None
    permission: str
    expires_at: datetime | None = None
    justification: str | None = None
    seen_version: str | None = None
    gives_way: bool = False

    @property
    def grant_slot(self) -> Slot:
        """The agent, the server and the tool (None: the whole server)."""
        return (self.agent_id, self.server_id, self.tool_name)

    @property
    def tool_or_server_grant_type(self) -> str:
        return TOOL_GRANT if self.tool_name else SERVER_GRANT


def build_policy_after_edits(
    policy: AccessPolicy, edits: Iterable[GrantEdit], *, actor: Actor, now: datetime
) -> AccessPolicy:
    """Return a copy of `policy` as it will be once `edits` are saved, for a preview; nothing is written."""
    slots = {pair: dict(rows) for pair, rows in policy.slots.items()}
    for edit in edits:
        tools = slots.setdefault((edit.agent_id, edit.server_id), {})
        beneath = find_grants_remaining_under_edit(
            edit, [row for row in tools.pop(edit.tool_name, []) if row.is_live(now)]
        )
        if edit.permission != INHERIT:
            columns = grant_columns_for_edit(edit, actor, now, beneath)
            tools[edit.tool_name] = [*beneath, GrantRow(id=UNSAVED_ID, **columns)]
    return AccessPolicy(policy.servers, slots, policy.changed, policy.accepted_only)


def find_grants_remaining_under_edit(edit: GrantEdit, current_rows: Sequence[GrantLike]) -> list[GrantLike]:
    """Return those of a slot's rows that stay in force beneath the edit's own; the others end.

    Under a grant that has an end everything stays that lasts longer, and under one that gives way everything: nobody
    knows how soon that is over. Only where the topmost row says the same already does the edit change that one's end,
    and it does not stay.
    """
    if edit.permission == INHERIT or (edit.expires_at is None and not edit.gives_way):
        return []
    top = {row.id for row in topmost_grants_of_slot(current_rows)}
    return [
        row
        for row in current_rows
        if can_grant_outlast_edit(row, edit)
        and not (row.id in top and row.effective_permission == edit.permission)
    ]


def can_grant_outlast_edit(row: GrantRow | Grant, edit: GrantEdit) -> bool:
    """Return whether the current row may still count when the edit's own is over."""
    if row.expires_at is None:
        return True
    if not isinstance(row.expires_at, datetime):
        return row.effective_permission != ALLOW
    return edit.gives_way or (edit.expires_at is not None and row.expires_at > edit.expires_at)


def grant_columns_for_edit(
    edit: GrantEdit, actor: Actor, now: datetime, beneath: Sequence[GrantRow | Grant] = ()
) -> dict[str, Any]:
    """Return what the row that `edit` makes on top of `beneath` holds, and whether it asks (models.AskingGrant)."""
    return {
        "entry_type": edit.tool_or_server_grant_type,
        "agent_id": edit.agent_id,
        "server_id": edit.server_id,
        "tool_name": edit.tool_name,
        "permission": DENY if edit.permission == ASK else edit.permission,
        "granted_by": str(actor),
        "granted_at": now,
        "expires_at": edit.expires_at,
        "justification": edit.justification,
        "asks": edit.permission == ASK,
        "metadata": {ON_TOP_OF: [row.id for row in beneath]} if beneath else None,
    }
