"""Collections of tools, each served at its own address: created, changed and deleted by administrators."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from coordinator.actions.audit import audit
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, require_actor_not_api_key
from coordinator.lib import row_versions
from coordinator.lib.storable import is_storable_text
from coordinator.mcp.servers.names import ServerTool
from coordinator.models import ToolCollection
from coordinator.secrets.masking import mask_secrets_in_value

MAX_COLLECTION_TOOLS = 2_000
MAX_TOOLS_IN_AUDIT = 50
MAX_NAME_LENGTH = 64
MAX_DESCRIPTION_LENGTH = 2_000
EDITABLE = ("description", "tools")
ONLY_PEOPLE = "An API key cannot change collections. A person must sign in to do it."
_NAME = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{MAX_NAME_LENGTH - 1}}}")


def compute_collection_version(row: ToolCollection) -> str:
    """Return the version that an editor of this collection has seen."""
    return row_versions.hash_row_fields_as_version(row, EDITABLE)


def create_tool_collection(
    name: str, *, description: str, tools: Iterable[ServerTool], actor: Actor, now: datetime
) -> ToolCollection:
    """Make a collection. Raises Forbidden for an API key, UnprocessableRequest, Conflict for a name in use."""
    require_actor_not_api_key(actor, ONLY_PEOPLE)
    if _NAME.fullmatch(name) is None:
        raise UnprocessableRequest(
            f"A name has up to {MAX_NAME_LENGTH} characters: a-z, 0-9, - and _. It begins with a letter or digit."
        )
    row = ToolCollection(name=name, changed_by=str(actor), changed_at=now)
    row.description, row.tools = clean_description_and_tools(description, tools)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            record_collection_change(
                "TOOL_COLLECTION_CREATED",
                name,
                {"after": serialize_collection_for_audit(row)},
                actor=actor,
                now=now,
            )
    except IntegrityError:
        raise Conflict(f"A collection {name!r} already exists.") from None
    return row


def update_tool_collection(
    name: str,
    *,
    description: str,
    tools: Iterable[ServerTool],
    seen_version: str,
    actor: Actor,
    now: datetime,
) -> None:
    """Change what a collection has.

    Raises Forbidden for an API key, NotFound, UnprocessableRequest, Conflict for a version that is not `seen` any more.
    """
    require_actor_not_api_key(actor, ONLY_PEOPLE)
    columns = clean_description_and_tools(description, tools)
    with transaction.atomic():
        row = lock_tool_collection(name, seen_version)
        if (row.description, row.tools) == columns:
            return
        before = serialize_collection_for_audit(row)
        row.description, row.tools = columns
        row.changed_by, row.changed_at = str(actor), now
        row.save()
        metadata = {"before": before, "after": serialize_collection_for_audit(row)}
        record_collection_change("TOOL_COLLECTION_UPDATED", name, metadata, actor=actor, now=now)


def delete_tool_collection(name: str, *, seen_version: str, actor: Actor, now: datetime) -> None:
    """Delete a collection: nothing is served at its address any more.

    Raises Forbidden for an API key, NotFound, Conflict for a version that is not `seen` any more.
    """
    require_actor_not_api_key(actor, ONLY_PEOPLE)
    with transaction.atomic():
        row = lock_tool_collection(name, seen_version)
        metadata = {"before": serialize_collection_for_audit(row)}
        row.delete()
        record_collection_change("TOOL_COLLECTION_DELETED", name, metadata, actor=actor, now=now)


def clean_description_and_tools(description: str, tools: Iterable[ServerTool]) -> tuple[str, list[list[str]]]:
    """Return the description and the tools as the columns hold them. Raises UnprocessableRequest."""
    description = description.strip()
    if len(description) > MAX_DESCRIPTION_LENGTH or not is_storable_text(description):
        raise UnprocessableRequest(f"A description may have at most {MAX_DESCRIPTION_LENGTH:,} characters.")
    pairs = sorted(set(tools))
    if len(pairs) > MAX_COLLECTION_TOOLS:
        raise UnprocessableRequest(f"Choose at most {MAX_COLLECTION_TOOLS:,} tools, or whole servers.")
    if not all(is_storable_text(server_id) and is_storable_text(tool) for server_id, tool in pairs):
        raise UnprocessableRequest("Choose tools from the list.")
    return description, [list(pair) for pair in pairs]


def lock_tool_collection(name: str, seen_version: str) -> ToolCollection:
    row = ToolCollection.objects.select_for_update().filter(pk=name).first()
    if row is None:
        raise NotFound(f"There is no collection {name!r}.")
    row_versions.require_current_version(
        compute_collection_version(row), seen_version, f"The collection {name}"
    )
    return row


def serialize_collection_for_audit(row: ToolCollection) -> dict[str, Any]:
    tools = row.tools if isinstance(row.tools, list) else []
    return {"description": row.description, "count": len(tools), "tools": tools[:MAX_TOOLS_IN_AUDIT]}


def record_collection_change(
    event_type: str, name: str, metadata: dict[str, Any], *, actor: Actor, now: datetime
) -> None:
    audit.record_audit_entry(
        event_type,
        actor=actor,
        target=name,
        result="success",
        metadata=mask_secrets_in_value(metadata),
        now=now,
    )
