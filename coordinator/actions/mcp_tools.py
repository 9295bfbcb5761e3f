"""Tools of MCP servers: taken over from a `tools/list`, and accepted by a person where they changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from coordinator.actions import audit
from coordinator.errors import Conflict, Forbidden, NotFound
from coordinator.identity.actors import Actor
from coordinator.mcp.tools import Definition, ToolListing, content_of
from coordinator.models import McpServer, McpTool


@dataclass(frozen=True, slots=True)
class ToolChanges:
    """The names of tools that a listing shows as new, changed, gone and back again."""

    new: list[str]
    changed: list[str]
    gone: list[str]
    back: list[str]

    @property
    def is_nothing(self) -> bool:
        return not (self.new or self.changed or self.gone or self.back)


def store_listing(server_id: str, listing: ToolListing, *, by: Actor, now: datetime) -> ToolChanges:
    """Store the tools that a server lists; what a complete listing lacks is marked as gone.

    A tool seen for the first time is accepted as it is: it gains nothing that was not granted by name or by
    server. One that changed keeps its accepted definition beside the new one. Raises NotFound.
    """
    with transaction.atomic():
        if not McpServer.objects.select_for_update().filter(pk=server_id).exists():
            raise NotFound(f"There is no MCP server {server_id}.")
        known = {tool.name: tool for tool in McpTool.objects.filter(server_id=server_id)}
        taken = ToolChanges(new=[], changed=[], gone=[], back=[])
        for definition in listing.tools:
            tool = known.get(definition.name)
            _note(taken, definition, tool)
            _store(tool or _new(server_id, definition, by, now), definition, now)
        if listing.complete:
            _mark_gone(known, {definition.name for definition in listing.tools}, taken, now)
        _record(server_id, taken, by, now)
    return taken


def note_gone(
    server_id: str, listed: Collection[str], *, listed_by: datetime, by: Actor, now: datetime
) -> list[str]:
    """Mark as gone what a server lists no more, `listed` being all that it lists; return the names.

    What was listed first, changed or back after `listed_by` stays: some servers list more to one client than to
    another, and are not to be taken to change with each that asks.
    """
    taken = ToolChanges(new=[], changed=[], gone=[], back=[])
    with transaction.atomic():
        lacking = McpTool.objects.select_for_update().filter(
            server_id=server_id, gone_at=None, listed_at__lte=listed_by
        )
        _mark_gone({tool.name: tool for tool in lacking}, set(listed), taken, now)
        _record(server_id, taken, by, now)
    return taken.gone


def _record(server_id: str, taken: ToolChanges, by: Actor, now: datetime) -> None:
    if taken.is_nothing:
        return
    metadata = {"new": taken.new, "changed": taken.changed, "gone": taken.gone, "back": taken.back}
    audit.record("MCP_TOOLS_LISTED", actor=by, target=server_id, result="success", metadata=metadata, now=now)


def _note(taken: ToolChanges, definition: Definition, tool: McpTool | None) -> None:
    if tool is None:
        taken.new.append(definition.name)
    elif tool.definition_hash != definition.digest:
        taken.changed.append(definition.name)
    if tool is not None and tool.gone_at is not None:
        taken.back.append(definition.name)


def _new(server_id: str, definition: Definition, by: Actor, now: datetime) -> McpTool:
    return McpTool(
        server_id=server_id,
        name=definition.name,
        first_listed_at=now,
        definition_hash=definition.digest,
        accepted_hash=definition.digest,
        accepted=definition.content,
        accepted_by=str(by),
        accepted_at=now,
    )


def _store(tool: McpTool, definition: Definition, now: datetime) -> None:
    if tool.definition_hash != definition.digest:
        tool.changed_at = now
    content = definition.content
    tool.title, tool.description = content.get("title"), content.get("description")
    tool.input_schema, tool.output_schema = content.get("inputSchema"), content.get("outputSchema")
    tool.annotations = content.get("annotations")
    tool.definition_hash, tool.listed_at, tool.gone_at = definition.digest, now, None
    tool.save()


def _mark_gone(known: dict[str, McpTool], listed: set[str], taken: ToolChanges, now: datetime) -> None:
    for name, tool in known.items():
        if name not in listed and tool.gone_at is None:
            tool.gone_at = now
            tool.save(update_fields=["gone_at"])
            taken.gone.append(name)


def accept(
    server_id: str, names: Sequence[str], *, by: Actor, now: datetime, seen: str | None = None
) -> list[McpTool]:
    """Accept changed definitions as they are now; `seen` is the hash of the (single) one that was looked at.

    Raises NotFound, Conflict where a definition changed again since, Forbidden for an API key.
    """
    if by.kind == "key":
        raise Forbidden("An API key cannot accept a changed tool. A person must sign in to do it.")
    with transaction.atomic():
        tools = list(McpTool.objects.select_for_update().filter(server_id=server_id, name__in=names))
        if len(tools) != len(set(names)):
            raise NotFound("This tool no longer exists.")
        if seen is not None and any(tool.definition_hash != seen for tool in tools):
            raise Conflict(
                "The definition has changed again since you loaded the page. Reload the page and look at it again."
            )
        changed = [tool for tool in tools if tool.is_changed]
        for tool in changed:
            _accept_one(tool, by, now)
    return changed


def _accept_one(tool: McpTool, by: Actor, now: datetime) -> None:
    before, after = tool.accepted, content_of(tool)
    tool.accepted_hash, tool.accepted = tool.definition_hash, after
    tool.accepted_by, tool.accepted_at = str(by), now
    tool.save(update_fields=["accepted_hash", "accepted", "accepted_by", "accepted_at"])
    audit.record(
        "MCP_TOOL_ACCEPTED",
        actor=by,
        target=f"{tool.server_id} {tool.name}",
        result="success",
        metadata={"before": before, "after": after},
        now=now,
    )
