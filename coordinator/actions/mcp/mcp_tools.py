"""Tools of MCP servers: stored from a `tools/list`, and accepted by a person where they changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.mcp import tool_revisions
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import Actor, require_actor_not_api_key
from coordinator.mcp.servers.tools import (
    MOST_TOOLS,
    SkippedTool,
    ToolDefinition,
    ToolListing,
    build_definition_content,
)
from coordinator.models import AuditLog, Grant, McpServer, McpTool
from coordinator.models.fields import dump_compact_json
from coordinator.models.mcp import RevisionKind
from coordinator.secrets.masking import mask_secrets_in_value

MAX_STORED_TOOLS = 2 * MOST_TOOLS  # rows of one server: those that it lists, and those that it listed once
MAX_STORED_BYTES = 8 * 1024 * 1024  # of one server's definitions, as JSON
MAX_NAMES_IN_AUDIT = 100  # of each kind: an audit row is read by people
MAX_LEFT_OUT_NAMED = 20
LEFT_OUT_AGAIN_AFTER = timedelta(days=1)  # until the same is written to the audit log once more


@dataclass(frozen=True, slots=True)
class ToolChanges:
    """The names of tools that a listing shows as new, changed, gone and back again, and those left out of it."""

    new: list[str]
    changed: list[str]
    gone: list[str]
    back: list[str]
    left_out: list[SkippedTool] = field(default_factory=list)
    cut_off: str = ""

    @property
    def has_no_changes(self) -> bool:
        return not (self.new or self.changed or self.gone or self.back)


def store_tool_listing(server_id: str, listing: ToolListing, *, actor: Actor, now: datetime) -> ToolChanges:
    """Store the tools that a server lists; mark those that a complete listing lacks as gone.

    A tool seen for the first time is accepted as it is: it gains nothing that was not granted by name or by server. One
    that changed keeps its accepted definition next to the new one. Tools for which the server has no room left are left
    out, and named with the others that are. Raises NotFound.
    """
    with transaction.atomic():
        if not McpServer.objects.select_for_update().filter(pk=server_id).exists():
            raise NotFound(f"There is no MCP server {server_id}.")
        known_tools = {tool.name: tool for tool in McpTool.objects.filter(server_id=server_id)}
        tool_changes = ToolChanges(
            new=[], changed=[], gone=[], back=[], left_out=list(listing.left_out), cut_off=listing.cut_off
        )
        if listing.complete:
            listed = {definition.name for definition in listing.tools}
            mark_missing_tools_gone(
                known_tools, listed | {tool.name for tool in listing.left_out}, tool_changes, now
            )
        free_count = ToolStorageQuota(server_id, known_tools)
        created = []
        for position, definition in enumerate(listing.tools, 1):
            tool = known_tools.get(definition.name)
            if (reason := free_count.reserve_storage_or_explain(definition, tool)) is not None:
                tool_changes.left_out.append(SkippedTool(position, definition.name, reason))
                continue
            add_tool_name_to_changes(tool_changes, definition, tool)
            if tool is not None and tool.definition_hash != definition.definition_digest:
                tool_revisions.record_listed_tool_definition(tool, definition, actor, now)
            row = assign_listed_definition(
                tool or build_new_tool(server_id, definition, actor, now), definition, now
            )
            if tool is None:
                created.append(row)
            else:
                row.save()
        McpTool.objects.bulk_create(created, batch_size=100)
        tool_revisions.delete_excess_tool_revisions(server_id, tool_changes.changed)
        audit_tool_changes(server_id, tool_changes, actor, now)
        record_omitted_tools(server_id, tool_changes.left_out, listing.cut_off, actor, now)
    return tool_changes


class ToolStorageQuota:
    """How many tools and bytes may still be stored of one server. Asked for each definition in turn."""

    def __init__(self, server_id: str, existing_tools: dict[str, McpTool]) -> None:
        self._server_id = server_id
        self._rows = len(existing_tools)
        self._listed = sum(tool.gone_at is None for tool in existing_tools.values())
        self._bytes = sum(map(stored_tool_definition_size, existing_tools.values()))
        self._forgettable: list[McpTool] | None = None
        self._existing_tools = existing_tools

    def reserve_storage_or_explain(self, definition: ToolDefinition, tool: McpTool | None) -> str | None:
        """Count a definition that is to be stored; return why it is not, else None."""
        is_same = tool is not None and tool.definition_hash == definition.definition_digest
        more_listed = tool is None or tool.gone_at is not None
        more_bytes = 0 if is_same else json_byte_size(definition.content) * (2 if tool is None else 1)
        if more_listed and self._listed >= MOST_TOOLS:
            return f"{definition.name}: the server has {MOST_TOOLS} other tools."
        while (
            tool is None and self._rows >= MAX_STORED_TOOLS
        ) or self._bytes + more_bytes > MAX_STORED_BYTES:
            if not more_bytes or not self.delete_oldest_gone_tool():
                break
        if tool is None and self._rows >= MAX_STORED_TOOLS:
            return f"{definition.name}: {MAX_STORED_TOOLS} tools of the server are stored, with those that are gone."
        if more_bytes and self._bytes + more_bytes > MAX_STORED_BYTES:
            return (
                f"{definition.name}: the server's definitions would take more than {MAX_STORED_BYTES} bytes."
            )
        self._rows += tool is None
        self._listed += more_listed
        self._bytes += more_bytes
        return None

    def delete_oldest_gone_tool(self) -> bool:
        """Delete the tool that has been gone for longest; False where none may be.

        Those stay that somebody granted by name, and those of which a change was never accepted: coming back, they
        would be accepted as they are.
        """
        if self._forgettable is None:
            granted = Grant.objects.filter(server_id=self._server_id).values_list("tool_name", flat=True)
            gone_tools = [
                tool
                for tool in self._existing_tools.values()
                if tool.gone_at is not None and not tool.has_undecided_definition_change
            ]
            granted_tools = set(granted)
            self._forgettable = sorted(
                (tool for tool in gone_tools if tool.name not in granted_tools),
                key=lambda tool: str(tool.gone_at),
                reverse=True,
            )
        if not self._forgettable:
            return False
        tool = self._forgettable.pop()
        if (
            self._existing_tools.get(tool.name) is not tool or tool.gone_at is None
        ):  # it has come back meanwhile
            return self.delete_oldest_gone_tool()
        self._rows -= 1
        self._bytes -= stored_tool_definition_size(tool)
        del self._existing_tools[tool.name]
        tool_revisions.delete_tool_revisions(tool)
        tool.delete()
        return True


def stored_tool_definition_size(tool: McpTool) -> int:
    """Return how many bytes the present and the accepted definition take."""
    return json_byte_size(build_definition_content(tool)) + json_byte_size(tool.accepted)


def json_byte_size(value: Any) -> int:
    return len(dump_compact_json(value))


def mark_unlisted_tools_gone(
    server_id: str, listed: Collection[str], *, listed_by: datetime, actor: Actor, now: datetime
) -> list[str]:
    """Mark as gone what a server lists no more, `listed` being all that it lists; return the names.

    What was listed first, changed or back after `listed_by` stays: some servers list more to one client than to
    another, and are not to be taken to change with each that asks.
    """
    tool_changes = ToolChanges(new=[], changed=[], gone=[], back=[])
    with transaction.atomic():
        lacking = McpTool.objects.select_for_update().filter(
            server_id=server_id, gone_at=None, listed_at__lte=listed_by
        )
        mark_missing_tools_gone({tool.name: tool for tool in lacking}, set(listed), tool_changes, now)
        audit_tool_changes(server_id, tool_changes, actor, now)
    return tool_changes.gone


def audit_tool_changes(server_id: str, changes: ToolChanges, actor: Actor, now: datetime) -> None:
    if changes.has_no_changes:
        return
    names = {"new": changes.new, "changed": changes.changed, "gone": changes.gone, "back": changes.back}
    metadata: dict[str, Any] = {kind: of_kind[:MAX_NAMES_IN_AUDIT] for kind, of_kind in names.items()}
    unnamed = {kind: len(of_kind) - MAX_NAMES_IN_AUDIT for kind, of_kind in names.items()}
    if any(count > 0 for count in unnamed.values()):
        metadata["unnamed"] = {kind: count for kind, count in unnamed.items() if count > 0}
    audit.record_audit_entry(
        "MCP_TOOLS_LISTED", actor=actor, target=server_id, result="success", metadata=metadata, now=now
    )


def record_omitted_tools(
    server_id: str, tools: Sequence[SkippedTool], cut_off: str, actor: Actor, now: datetime
) -> None:
    """Audit which tools were left out and why a list was cut off, unless that is what the log said last."""
    if not tools and not cut_off:
        return
    named_tools = [{"name": tool.name, "reason": tool.reason} for tool in tools[:MAX_LEFT_OUT_NAMED]]
    metadata = mask_secrets_in_value(
        {"count": len(tools), "tools": named_tools} | ({"cut_off": cut_off} if cut_off else {})
    )
    last = find_last_omitted_tools_entry(server_id)
    if last and last.metadata == metadata and last.timestamp > now - LEFT_OUT_AGAIN_AFTER:
        return
    audit.record_audit_entry(
        "MCP_TOOLS_LEFT_OUT", actor=actor, target=server_id, result="failure", metadata=metadata, now=now
    )


def find_last_omitted_tools_entry(server_id: str) -> AuditLog | None:
    """Return the newest audit row that names tools left out of a server's list."""
    rows = AuditLog.objects.filter(event_type="MCP_TOOLS_LEFT_OUT", target_id=server_id)
    return rows.order_by("-pk").first()


def add_tool_name_to_changes(changes: ToolChanges, definition: ToolDefinition, tool: McpTool | None) -> None:
    if tool is None:
        changes.new.append(definition.name)
    elif tool.definition_hash != definition.definition_digest:
        changes.changed.append(definition.name)
    if tool is not None and tool.gone_at is not None:
        changes.back.append(definition.name)


def build_new_tool(server_id: str, definition: ToolDefinition, actor: Actor, now: datetime) -> McpTool:
    return McpTool(
        server_id=server_id,
        name=definition.name,
        first_listed_at=now,
        definition_hash=definition.definition_digest,
        accepted_hash=definition.definition_digest,
        accepted=definition.content,
        accepted_by=str(actor),
        accepted_at=now,
    )


def assign_listed_definition(tool: McpTool, definition: ToolDefinition, now: datetime) -> McpTool:
    """Return the row with what the server lists now, not yet saved."""
    if tool.definition_hash != definition.definition_digest:
        tool.changed_at = now
    content = definition.content
    tool.title, tool.description = content.get("title"), content.get("description")
    tool.input_schema, tool.output_schema = content.get("inputSchema"), content.get("outputSchema")
    tool.annotations = content.get("annotations")
    tool.definition_hash, tool.listed_at, tool.gone_at = definition.definition_digest, now, None
    return tool


def mark_missing_tools_gone(
    existing_tools: dict[str, McpTool], listed: set[str], changes: ToolChanges, now: datetime
) -> None:
    for name, tool in existing_tools.items():
        if name not in listed and tool.gone_at is None:
            tool.gone_at = now
            tool.save(update_fields=["gone_at"])
            changes.gone.append(name)


def accept_tool_changes(
    server_id: str, names: Sequence[str], *, actor: Actor, now: datetime, seen_version: str | None = None
) -> list[McpTool]:
    """Accept changed definitions as they are now; `seen` is the hash of the (single) one that was looked at.

    Raises NotFound, Conflict where a definition changed again since, Forbidden for an API key.
    """
    with transaction.atomic():
        tools = lock_tools_at_seen_version(server_id, names, actor, seen_version)
        changed = [tool for tool in tools if tool.definition_hash != tool.accepted_hash]
        for tool in changed:
            accept_tool_change(tool, actor, now)
    return changed


def decline_change_keep_accepted_definition(
    server_id: str, name: str, *, seen_version: str, actor: Actor, now: datetime
) -> McpTool:
    """Have agents shown the accepted definition for as long as the server lists the one with the digest `seen`.

    Raises NotFound, Conflict where the definition changed again since or is the accepted one, Forbidden for an API key.
    """
    with transaction.atomic():
        [tool] = lock_tools_at_seen_version(server_id, [name], actor, seen_version)
        if tool.definition_hash == tool.accepted_hash:
            raise Conflict("The server lists the accepted definition again. There is nothing to decline.")
        tool.declined_hash, tool.declined_by, tool.declined_at = seen_version, str(actor), now
        tool.save(update_fields=["declined_hash", "declined_by", "declined_at"])
        tool_revisions.record_tool_definition_decision(tool, RevisionKind.DECLINED, actor, now)
        audit.record_audit_entry(
            "MCP_TOOL_DECLINED",
            actor=actor,
            target=f"{tool.server_id} {tool.name}",
            result="success",
            metadata={"kept": tool.accepted, "declined": build_definition_content(tool)},
            now=now,
        )
    return tool


def lock_tools_at_seen_version(
    server_id: str, names: Sequence[str], actor: Actor, seen_version: str | None
) -> list[McpTool]:
    """Return the tools, locked. Raises NotFound, Conflict where one is not the seen one, Forbidden for an API key."""
    require_actor_not_api_key(
        actor, "An API key cannot accept or decline a changed tool. A person must sign in to do it."
    )
    tools = list(McpTool.objects.select_for_update().filter(server_id=server_id, name__in=names))
    if len(tools) != len(set(names)):
        raise NotFound("This tool no longer exists.")
    if seen_version is not None and any(tool.definition_hash != seen_version for tool in tools):
        raise Conflict(
            "The definition has changed again since you loaded the page. Reload the page and look at it again."
        )
    return tools


def accept_tool_change(tool: McpTool, actor: Actor, now: datetime) -> None:
    before, after = tool.accepted, build_definition_content(tool)
    tool_revisions.record_tool_definition_decision(tool, RevisionKind.ACCEPTED, actor, now)
    tool.accepted_hash, tool.accepted = tool.definition_hash, after
    tool.accepted_by, tool.accepted_at = str(actor), now
    tool.save(update_fields=["accepted_hash", "accepted", "accepted_by", "accepted_at"])
    audit.record_audit_entry(
        "MCP_TOOL_ACCEPTED",
        actor=actor,
        target=f"{tool.server_id} {tool.name}",
        result="success",
        metadata={"before": before, "after": after},
        now=now,
    )
