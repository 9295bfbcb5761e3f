"""An administrator's choice of the tools, and their descriptions, that the gateway shows an agent's model."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, require_actor_not_api_key
from coordinator.lib.storable import is_storable_text
from coordinator.models import AgentToolListing, McpTool
from coordinator.models.mcp import ListedTools
from coordinator.secrets.masking import mask_secrets_in_value

MAX_CHOSEN_TOOLS = 2_000
MAX_TOOLS_IN_AUDIT = 50
MAX_AGENT_ID_LENGTH = 200
MAX_SHORT_DESCRIPTION = 2_000  # characters
ONLY_PEOPLE = "An API key cannot change which tools an agent is shown. A person must sign in to do it."


def set_tools_visible_to_agent(
    agent_id: str, listed: str, chosen: Collection[tuple[str, str]], *, actor: Actor, now: datetime
) -> None:
    """Have the gateway show an agent's model all tools, these, or the two by which it searches for them.

    Raises Forbidden for an API key, UnprocessableRequest for no tools or too many.
    """
    require_actor_not_api_key(actor, ONLY_PEOPLE)
    if not agent_id.strip() or len(agent_id) > MAX_AGENT_ID_LENGTH or not is_storable_text(agent_id):
        raise UnprocessableRequest("Choose an agent.")
    if listed not in ListedTools.values:
        raise UnprocessableRequest("Choose what the agent's model is shown.")
    tools = [list(tool) for tool in sorted(set(chosen))] if listed == ListedTools.CHOSEN else []
    if listed == ListedTools.CHOSEN and not 0 < len(tools) <= MAX_CHOSEN_TOOLS:
        raise UnprocessableRequest(f"Choose at least one tool, and at most {MAX_CHOSEN_TOOLS:,}.")
    with transaction.atomic():
        row = AgentToolListing.objects.select_for_update().filter(pk=agent_id).first()
        before = (row.listed, row.tools) if row is not None else (ListedTools.ALL.value, [])
        if before == (listed, tools):
            return
        AgentToolListing.objects.update_or_create(
            agent_id=agent_id,
            defaults={"listed": listed, "tools": tools, "changed_by": str(actor), "changed_at": now},
        )
        metadata = {
            "before": describe_visible_tools_for_audit(*before),
            "after": describe_visible_tools_for_audit(listed, tools),
        }
        audit.record_audit_entry(
            "AGENT_TOOLS_SHOWN",
            actor=actor,
            target=agent_id,
            result="success",
            metadata=mask_secrets_in_value(metadata),
            now=now,
        )


def describe_visible_tools_for_audit(listed: str, tools: Any) -> dict[str, Any]:
    chosen = tools if isinstance(tools, list) else []
    return {"listed": listed, "count": len(chosen), "tools": chosen[:MAX_TOOLS_IN_AUDIT]}


def set_tool_description_override(
    server_id: str, tool_name: str, text: str, *, seen_version: str, actor: Actor, now: datetime
) -> None:
    """Show agents a description in place of the server's own while the definition is `seen`; none for an empty text.

    Raises Forbidden for an API key, NotFound, Conflict, UnprocessableRequest.
    """
    require_actor_not_api_key(actor, ONLY_PEOPLE)
    text = text.strip()
    if len(text) > MAX_SHORT_DESCRIPTION or not is_storable_text(text):
        raise UnprocessableRequest(f"A description may have at most {MAX_SHORT_DESCRIPTION:,} characters.")
    with transaction.atomic():
        tool = McpTool.objects.select_for_update().filter(server_id=server_id, name=tool_name).first()
        if tool is None:
            raise NotFound("This tool no longer exists.")
        if tool.definition_hash != seen_version:
            raise Conflict("The tool's definition has changed since the page was loaded. Read it again.")
        before = tool.short_description if tool.has_current_short_description else None
        if before == (text or None):
            return
        tool.short_description, tool.short_for = (text, seen_version) if text else (None, None)
        tool.short_by = str(actor) if text else None
        tool.save(update_fields=["short_description", "short_for", "short_by"])
        metadata = mask_secrets_in_value({"tool": tool_name, "before": before, "after": text or None})
        audit.record_audit_entry(
            "MCP_TOOL_DESCRIBED", actor=actor, target=server_id, result="success", metadata=metadata, now=now
        )
