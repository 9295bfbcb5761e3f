"""The history of a tool's definition, and the changes of the step that a person chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.actions.mcp.tool_revisions import list_tool_revisions
from coordinator.mcp.servers.tools import indented_json_lines
from coordinator.models import McpTool, McpToolRevision
from coordinator.models.mcp import RevisionKind
from dashboard.text import diffs

SHORT_HASH = 8  # characters


@dataclass(frozen=True, slots=True)
class DefinitionStep:
    """One step: a definition that the server listed, or a person's decision about it.

    `before` is the previous definition; None for a decision and for the earliest stored definition.
    """

    revision: McpToolRevision
    before: dict[str, Any] | None = None
    diff: Sequence[diffs.Marked] = ()

    @property
    def is_listed(self) -> bool:
        """Whether the server listed a new definition."""
        return self.revision.kind == RevisionKind.LISTED

    @property
    def is_accepted(self) -> bool:
        """Whether a person accepted the definition."""
        return self.revision.kind == RevisionKind.ACCEPTED

    @property
    def is_earliest(self) -> bool:
        """Whether this is the earliest stored definition."""
        return self.is_listed and self.before is None

    @property
    def short_hash(self) -> str:
        """Return the first characters of the definition's SHA-256."""
        return str(self.revision.definition_hash)[:SHORT_HASH]

    @property
    def is_open(self) -> bool:
        """Whether the step's changes are shown."""
        return bool(self.diff)


def load_tool_history_context(tool: McpTool, chosen: str) -> dict[str, Any]:
    """Return the template context with the tool's history, newest first.

    `chosen` is the id of the open step.
    """
    steps, before = list[DefinitionStep](), None
    for revision in reversed(list_tool_revisions(tool.server_id, tool.name)):
        is_listed = revision.kind == RevisionKind.LISTED
        diff = diff_revision(revision, before) if is_listed and str(revision.pk) == chosen else ()
        steps.append(DefinitionStep(revision, before if is_listed else None, diff))
        if is_listed:
            before = revision.definition if isinstance(revision.definition, dict) else {}
    return {"history": steps[::-1]}


def diff_revision(revision: McpToolRevision, before: dict[str, Any] | None) -> Sequence[diffs.Marked]:
    """Return the diff from `before` to the definition, or all lines if there is no earlier one."""
    lines = indented_json_lines(revision.definition)
    if before is None:
        return [(" ", line) for line in lines]
    return list(diffs.diff_texts_with_context(indented_json_lines(before), lines))
