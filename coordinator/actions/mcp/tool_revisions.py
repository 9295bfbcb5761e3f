"""The history of tools' definitions: earlier versions, their dates, and who accepted or declined them.

The callers write it in the transaction of the change and of its audit row. A server decides how often its tools change,
so everything is bounded: decisions of people and listed definitions apart, so that a server that changes its definition
back and forth cannot push out who accepted what.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any

from coordinator.identity.actors import Actor
from coordinator.mcp.servers.tools import ToolDefinition, build_definition_content
from coordinator.models import McpTool, McpToolRevision
from coordinator.models.fields import dump_compact_json
from coordinator.models.mcp import RevisionKind

MAX_LISTED = 30  # listed definitions of one tool
MAX_DECISIONS = 30  # of one tool
MAX_TOOL_BYTES = 512 * 1024  # of one tool's definitions, as JSON
MAX_SERVER_ROWS = 5_000
MAX_SERVER_BYTES = 16 * 1024 * 1024  # twice of what a server's present definitions may take
DELETED_AT_ONCE = 500


def record_listed_tool_definition(
    tool: McpTool, definition: ToolDefinition, actor: Actor, now: datetime
) -> None:
    """Note that a server lists another definition of a tool; `tool` still holds the one before."""
    initialize_tool_revision_history(tool)
    create_tool_revision(
        tool, RevisionKind.LISTED, definition.definition_digest, definition.content, by=str(actor), at=now
    )


def record_tool_definition_decision(tool: McpTool, kind: RevisionKind, actor: Actor, now: datetime) -> None:
    """Note that a person accepted or declined a tool's present definition. Call it before `accepted` changes."""
    initialize_tool_revision_history(tool)
    create_tool_revision(tool, kind, tool.definition_hash, None, by=str(actor), at=now)
    delete_excess_tool_revisions(tool.server_id, [tool.name])


def initialize_tool_revision_history(tool: McpTool) -> None:
    """Begin the history of a tool that has none with the definitions that its row holds."""
    if McpToolRevision.objects.filter(server_id=tool.server_id, tool_name=tool.name).exists():
        return
    if tool.accepted_hash != tool.definition_hash and isinstance(tool.accepted, dict):
        since = tool.accepted_at or tool.first_listed_at
        create_tool_revision(tool, RevisionKind.LISTED, tool.accepted_hash, tool.accepted, by="", at=since)
    since = tool.changed_at or tool.first_listed_at
    content = build_definition_content(tool)
    create_tool_revision(tool, RevisionKind.LISTED, tool.definition_hash, content, by="", at=since)


def create_tool_revision(
    tool: McpTool,
    kind: RevisionKind,
    definition_hash: str,
    definition: dict[str, Any] | None,
    *,
    by: str,
    at: datetime,
) -> None:
    McpToolRevision.objects.create(
        server_id=tool.server_id,
        tool_name=tool.name,
        kind=kind,
        definition_hash=definition_hash,
        definition=definition,
        size=len(dump_compact_json(definition).encode()) if definition is not None else 0,
        changed_by=by,
        changed_at=at,
    )


def delete_excess_tool_revisions(server_id: str, tool_names: Collection[str]) -> None:
    """Delete the oldest revisions of these tools, and then of the server, where there are too many."""
    if not tool_names:
        return
    names, rows_of_server, bytes_of_server = set(tool_names), 0, 0
    counts: dict[tuple[str, bool], int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    excess = list[int]()
    rows = McpToolRevision.objects.filter(server_id=server_id).order_by("-pk")
    for pk, name, kind, size in rows.values_list("pk", "tool_name", "kind", "size"):
        is_listed = kind == RevisionKind.LISTED
        counts[name, is_listed] += 1
        sizes[name] += size
        is_excess = name in names and (
            counts[name, is_listed] > (MAX_LISTED if is_listed else MAX_DECISIONS)
            or (sizes[name] > MAX_TOOL_BYTES and size > 0)
        )
        if is_excess or rows_of_server >= MAX_SERVER_ROWS or bytes_of_server + size > MAX_SERVER_BYTES:
            excess.append(pk)
        else:
            rows_of_server, bytes_of_server = rows_of_server + 1, bytes_of_server + size
    for start in range(0, len(excess), DELETED_AT_ONCE):
        McpToolRevision.objects.filter(pk__in=excess[start : start + DELETED_AT_ONCE]).delete()


def delete_tool_revisions(tool: McpTool) -> None:
    """Delete the history of a tool that is forgotten."""
    McpToolRevision.objects.filter(server_id=tool.server_id, tool_name=tool.name).delete()


def list_tool_revisions(server_id: str, tool_name: str) -> list[McpToolRevision]:
    """Return a tool's history, the newest step first."""
    rows = McpToolRevision.objects.filter(server_id=server_id, tool_name=tool_name).order_by("-pk")
    return list(rows[: MAX_LISTED + MAX_DECISIONS])
