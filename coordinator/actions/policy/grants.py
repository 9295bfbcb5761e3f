"""Creation, change and end of grants. A change set is one transaction, each row of it one audit entry.

A slot is what one agent has on one server or on one of its tools. Its grants lie on top of each other: one that has an
end, or ends with an approval, leaves those that last longer in place, and they decide again once it is over
(policy.grants.edits.find_grants_remaining_under_edit); one without an end replaces all. Nothing is overwritten: a grant
that is replaced or revoked ends now and stays, with its old end in its metadata, so that the past can be
reconstructed. An editor names the version of each slot it has seen, and a save on a stale one is refused with both
versions. Capability rows are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.errors import BadRequest, Conflict, NotFound, SignalboxError, UnprocessableRequest
from coordinator.identity.actors import Actor, require_actor_not_api_key
from coordinator.lib import instants, row_versions
from coordinator.mcp.servers import names as mcp_names
from coordinator.models import Agent, AskingGrant, Grant, McpServer
from coordinator.policy.grants.access import (
    ALLOW,
    ASK,
    DENY,
    SERVER_GRANT,
    TOOL_GRANT,
    topmost_grants_of_slot,
)
from coordinator.policy.grants.edits import (
    INHERIT,
    GrantEdit,
    Slot,
    find_grants_remaining_under_edit,
    grant_columns_for_edit,
)
from coordinator.policy.grants.end_parsing import default_grant_end

LONGEST_TEXT = 2000
MOST_EDITS = 20_000
COLUMNS = ("permission", "granted_by", "granted_at", "expires_at", "justification")


@dataclass(frozen=True, slots=True)
class AppliedEdit:
    """The result of an edit: the rows that ended, the one that is in force since, and those beneath it."""

    edit: GrantEdit
    before: list[dict[str, Any]]
    after: dict[str, Any] | None
    beneath: list[dict[str, Any]] = field(default_factory=list)


class StaleGrantEdit(Conflict):
    """A save on slots that somebody else changed meanwhile. `clashes` pairs each edit with the rows there now."""

    def __init__(self, clashes: Sequence[tuple[GrantEdit, list[Grant]]]) -> None:
        self.clashes = clashes
        super().__init__(
            {
                "message": "Somebody else changed these grants since this page was loaded. Nothing was saved.",
                "clashes": [
                    {"yours": serialize_grant_edit(edit), "theirs": [serialize_grant(row) for row in rows]}
                    for edit, rows in clashes
                ],
            }
        )


def serialize_grant(row: Grant) -> dict[str, Any]:
    """Return a grant in the form of audit rows and conflicts."""
    return {
        "grant_id": row.pk,
        "entry_type": row.entry_type,
        "permission": row.effective_permission,
        "granted_by": row.granted_by,
        "granted_at": format_grant_time(row.granted_at),
        "expires_at": format_grant_time(row.expires_at),
        "justification": row.justification,
    }


def serialize_grant_edit(edit: GrantEdit) -> dict[str, Any]:
    return {
        "agent_id": edit.agent_id,
        "server_id": edit.server_id,
        "tool_name": edit.tool_name,
        "permission": edit.permission,
        "expires_at": format_grant_time(edit.expires_at),
        "justification": edit.justification,
    }


def format_grant_time(value: Any) -> str | None:
    return instants.format_canonical_instant(value) if isinstance(value, datetime) else value


def compute_grant_slot_version(rows: Iterable[Grant]) -> str:
    """Return the version of a slot, from all its rows. The clock alone never changes it."""
    ordered = sorted(rows, key=lambda row: row.pk)
    return row_versions.hash_column_values_as_version([serialize_grant(row) for row in ordered])


def load_grant_slots(agent_ids: Iterable[str], server_ids: Iterable[str]) -> dict[Slot, list[Grant]]:
    """Return every grant of these agents on these servers by slot, oldest first."""
    slot_grants: dict[Slot, list[Grant]] = {}
    rows = Grant.objects.filter(agent_id__in=list(agent_ids), server_id__in=list(server_ids))
    for row in rows.filter(entry_type__in=[TOOL_GRANT, SERVER_GRANT]).order_by("id"):
        slot_grants.setdefault(grant_slot_of_row(row), []).append(row)
    return slot_grants


def grant_slot_of_row(row: Grant) -> Slot:
    # Rows whose kind and tool name contradict each other decide nothing; an edit of their slot ends them too.
    return (row.agent_id, row.server_id, row.tool_name if row.entry_type == TOOL_GRANT else None)


def apply_grant_edits(edits: Sequence[GrantEdit], *, actor: Actor, now: datetime) -> list[AppliedEdit]:
    """Apply all edits or none; return the slots that changed.

    Raises UnprocessableRequest for what may not be stored, NotFound for unknown servers or agents, StaleGrantEdit
    for slots that are not as they were seen, Forbidden for an API key.
    """
    require_grant_editor(actor)
    sound = validate_and_trim_grant_edits(edits, now)
    with transaction.atomic():
        require_and_lock_granted_servers({edit.server_id for edit in sound})
        require_and_lock_granted_agents({edit.agent_id for edit in sound if edit.permission != INHERIT})
        grant_slots = load_grant_slots({edit.agent_id for edit in sound}, {edit.server_id for edit in sound})
        require_current_grant_versions(sound, grant_slots)
        applied = [
            apply_grant_edit_if_changed(edit, grant_slots.get(edit.grant_slot, []), actor, now)
            for edit in sound
        ]
    return [applied_edit for applied_edit in applied if applied_edit is not None]


def require_grant_editor(actor: Actor) -> None:
    require_actor_not_api_key(actor, "An API key cannot change grants. A person must sign in to do it.")


def validate_and_trim_grant_edits(edits: Sequence[GrantEdit], now: datetime) -> list[GrantEdit]:
    """Return the edits with their texts trimmed; raise UnprocessableRequest at the first that may not be stored."""
    if len(edits) > MOST_EDITS:
        raise UnprocessableRequest(f"At most {MOST_EDITS} grants can be changed at once.")
    if len({edit.grant_slot for edit in edits}) != len(edits):
        raise UnprocessableRequest("The same agent, server and tool is named twice. Name it once.")
    for edit in edits:
        validate_grant_edit(edit, now)
    return [replace(edit, justification=(edit.justification or "").strip() or None) for edit in edits]


def validate_grant_edit(edit: GrantEdit, now: datetime) -> None:
    where = f"{edit.agent_id} on {edit.server_id} {edit.tool_name or ''}".rstrip()
    if edit.permission not in (ALLOW, ASK, DENY, INHERIT):
        raise UnprocessableRequest(f"{where}: a grant must be allow, ask, deny or inherit (no grant).")
    if not edit.agent_id.strip() or not edit.server_id.strip() or edit.tool_name == "":
        raise UnprocessableRequest("A grant names an agent, a server and, for a tool grant, a tool.")
    if edit.permission != INHERIT and edit.expires_at is not None and edit.expires_at <= now:
        raise UnprocessableRequest(f"{where}: the end is in the past.")
    if len(edit.justification or "") > LONGEST_TEXT:
        raise UnprocessableRequest(f"{where}: a justification may have at most {LONGEST_TEXT} characters.")


def require_and_lock_granted_servers(names: set[str]) -> None:
    """Hold the servers until the commit: an empty slot has no row that two editors could queue for.

    Everything here takes locks in one order, or PostgreSQL ends one of two as a deadlock: servers by name, agents by
    id, then grants.
    """
    locked = McpServer.objects.select_for_update().filter(name__in=names).order_by("name")
    missing = names - {server.name for server in locked}
    if missing:
        raise NotFound(f"There is no MCP server {join_sorted_names(missing)}. Add it before granting it.")


def require_and_lock_granted_agents(ids: set[str]) -> None:
    """Hold the agents until the commit, before any grant: a new grant's foreign key would wait for them later."""
    locked = Agent.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")
    missing = ids - {agent.pk for agent in locked}
    if missing:
        raise NotFound(f"There is no agent {join_sorted_names(missing)}.")


def join_sorted_names(names: set[str]) -> str:
    return ", ".join(sorted(names))


def require_current_grant_versions(
    edits: Sequence[GrantEdit], current_grants: Mapping[Slot, list[Grant]]
) -> None:
    clashes = [
        (edit, current_grants.get(edit.grant_slot, []))
        for edit in edits
        if edit.seen_version is not None
        and edit.seen_version != compute_grant_slot_version(current_grants.get(edit.grant_slot, []))
    ]
    if clashes:
        raise StaleGrantEdit(clashes)


def apply_grant_edit_if_changed(
    edit: GrantEdit, rows: list[Grant], actor: Actor, now: datetime
) -> AppliedEdit | None:
    current_rows = [row for row in rows if is_grant_current(row, now)]
    beneath = find_grants_remaining_under_edit(edit, current_rows)
    replaced = [row for row in current_rows if row not in beneath]
    if is_grant_unchanged(edit, replaced):
        return None
    before = [serialize_grant(row) for row in replaced]
    after = None if edit.permission == INHERIT else insert_grant(edit, beneath, actor, now)
    for row in replaced:
        end_grant_row(row, actor, now, edit.justification, after)
    applied = AppliedEdit(
        edit, before, serialize_grant(after) if after else None, [serialize_grant(row) for row in beneath]
    )
    record_grant_edit(applied, actor, now)
    return applied


def is_grant_current(row: Grant, now: datetime) -> bool:
    """Return whether a row is still in the way: in force, or odd and so neither over nor in force."""
    return row.expires_at is None or not isinstance(row.expires_at, datetime) or row.expires_at > now


def is_grant_unchanged(edit: GrantEdit, replaced: list[Grant]) -> bool:
    if edit.permission == INHERIT:
        return not replaced
    if len(replaced) != 1:
        return False
    row = replaced[0]
    return (row.entry_type, row.tool_name, row.effective_permission, row.expires_at, row.justification) == (
        edit.tool_or_server_grant_type,
        edit.tool_name,
        edit.permission,
        edit.expires_at,
        edit.justification,
    )


def insert_grant(edit: GrantEdit, beneath: Sequence[Grant], actor: Actor, now: datetime) -> Grant:
    values = grant_columns_for_edit(edit, actor, now, beneath)
    requires_approval = values.pop("asks")
    row: Grant = Grant.objects.create(**values)
    if requires_approval:
        AskingGrant.objects.create(grant=row)
        row.asks = True
    return row


def end_grant_row(
    row: Grant, actor: Actor, now: datetime, reason: str | None, successor: Grant | None
) -> None:
    """End a row now and keep in its metadata what ended it, and when it would have ended by itself."""
    ended: dict[str, Any] = {
        "at": instants.format_canonical_instant(now),
        "by": str(actor),
        "was_until": format_grant_time(row.expires_at),
    }
    if successor is not None:
        ended["replaced_by"] = successor.pk
    elif reason:
        ended["reason"] = reason
    metadata = row.metadata if isinstance(row.metadata, dict) else {}
    row.metadata, row.expires_at = {**metadata, "ended": ended}, now
    row.save(update_fields=["metadata", "expires_at"])


def record_grant_edit(applied: AppliedEdit, actor: Actor, now: datetime) -> None:
    edit = applied.edit
    metadata: dict[str, Any] = {"before": applied.before, "after": applied.after}
    if applied.beneath:
        metadata["beneath"] = applied.beneath
    event = (
        "GRANT_REVOKED" if applied.after is None else "GRANT_REPLACED" if applied.before else "GRANT_CREATED"
    )
    audit.record_audit_entry(
        event,
        actor=actor,
        target=f"{edit.agent_id} {edit.server_id} {edit.tool_name or '*'}",
        permission=edit.permission,
        result="success",
        reason=edit.justification,
        metadata=metadata,
        now=now,
    )


def record_refused_grant_edits(
    edits: Sequence[GrantEdit], refusal: SignalboxError, *, actor: Actor, now: datetime
) -> None:
    """Write down an attempt that came to nothing; endpoints call it once the attempt is rolled back."""
    detail = refusal.detail["message"] if isinstance(refusal.detail, dict) else str(refusal.detail)
    audit.record_audit_entry(
        "GRANTS_REFUSED",
        actor=actor,
        target=None
        if len(edits) != 1
        else f"{edits[0].agent_id} {edits[0].server_id} {edits[0].tool_name or '*'}",
        result="failure",
        reason=detail,
        metadata={"wanted": [serialize_grant_edit(edit) for edit in edits[:50]], "count": len(edits)},
        now=now,
    )


def revoke_grant(
    grant_id: int, *, actor: Actor, now: datetime, reason: str | None = None, seen_version: str | None = None
) -> Grant:
    """End one grant now. Raises NotFound, Conflict if it has already ended, StaleGrantEdit, Forbidden."""
    require_grant_editor(actor)
    with transaction.atomic():
        row = lock_grant(grant_id, seen_version, now)
        before = serialize_grant(row)
        end_grant_row(row, actor, now, reason, None)
        record_grant_edit(
            AppliedEdit(build_grant_edit(row, INHERIT, None, reason), [before], None), actor, now
        )
    return row


def prolong_grant(
    grant_id: int,
    *,
    until: datetime | None,
    actor: Actor,
    now: datetime,
    reason: str | None = None,
    seen_version: str | None = None,
) -> list[AppliedEdit]:
    """Replace one grant by the same with another end (None: no end). An expired one is renewed.

    `seen` is the version of the slot. Raises NotFound, UnprocessableRequest, StaleGrantEdit, Forbidden, and Conflict
    where another grant of the slot decides now, or also denies or asks: that one must not be ended or covered as a side
    effect.
    """
    with transaction.atomic():
        row = lock_grant(grant_id, seen_version)
        current_rows = [other for other in load_slot_grants(row) if is_grant_current(other, now)]
        top = topmost_grants_of_slot(current_rows)
        if current_rows and row not in top:
            state = "lies on top of this one" if row in current_rows else "was given after this one ended"
            newest = current_rows[-1]
            raise Conflict(
                f"Grant {newest.pk} ({newest.effective_permission}) {state}. Change or revoke that one first."
            )
        if stricter_grants := [
            other for other in top if other != row and other.effective_permission != ALLOW
        ]:
            stricter = stricter_grants[-1]
            notice = f"Grant {stricter.pk} ({stricter.effective_permission}) counts beside this one."
            raise Conflict(f"{notice} Change or revoke that one first.")
        edit = build_grant_edit(
            row, row.effective_permission, until, (reason or "").strip() or row.justification
        )
        return apply_grant_edits([edit], actor=actor, now=now)


def lock_grant(grant_id: int, seen_version: str | None, now: datetime | None = None) -> Grant:
    """Return the row to be changed, held after its server and agent; with `now`, raise Conflict where it is over."""
    grant_query = Grant.objects.filter(pk=grant_id)
    # Either may be gone: another program may have left the grant behind.
    list(McpServer.objects.select_for_update().filter(name__in=grant_query.values("server_id")))
    list(Agent.objects.select_for_update(no_key=True).filter(pk__in=grant_query.values("agent_id")))
    row: Grant | None = Grant.objects.select_for_update().filter(pk=grant_id).first()
    if row is None or row.entry_type not in (TOOL_GRANT, SERVER_GRANT):
        raise NotFound("This grant no longer exists.")
    rows = load_slot_grants(row)
    if seen_version is not None and seen_version != compute_grant_slot_version(rows):
        raise StaleGrantEdit([(build_grant_edit(row, INHERIT, None, None), rows)])
    if now is not None and not is_grant_current(row, now):
        raise Conflict("This grant has already ended.")
    return row


def load_slot_grants(row: Grant) -> list[Grant]:
    """Return every grant of the slot that the row is of, oldest first."""
    return load_grant_slots([row.agent_id], [row.server_id]).get(grant_slot_of_row(row), [])


def build_grant_edit(
    row: Grant, permission: str, until: datetime | None, justification: str | None
) -> GrantEdit:
    """Return the edit that makes the row's slot say `permission`."""
    return GrantEdit(row.agent_id, row.server_id, grant_slot_of_row(row)[2], permission, until, justification)


def delete_grants_of_agent_or_server(
    *, actor: Actor, now: datetime, reason: str, agent_id: str | None = None, server_id: str | None = None
) -> int:
    """Delete every row of an agent or a server that is being deleted, each with its audit row; return how many.

    They are deleted, not ended: a later agent or server of that name must find nothing. Call it in the
    transaction of the deletion.
    """
    rows = Grant.objects.all()
    rows = rows.filter(agent_id=agent_id) if agent_id is not None else rows.filter(server_id=server_id)
    for row in rows.order_by("id"):
        if row.entry_type == "capability" or is_grant_current(row, now):
            record_grant_edit(
                AppliedEdit(build_grant_edit(row, INHERIT, None, reason), [serialize_grant(row)], None),
                actor,
                now,
            )
    deleted: int = rows.delete()[0]
    return deleted


def replace_grants_of_server(
    server_id: str, entries: Sequence[Mapping[str, Any]], *, actor: Actor, now: datetime
) -> list[AppliedEdit]:
    """Make `entries` what a server's grants say, for every agent; capability rows stay.

    `entries` are rows as other programs write them; who gave them and when is not theirs to say. Several entries of one
    slot lie on top of each other, the one that lasts longest at the bottom. A slot that no entry names ends; one whose
    only entry has an end keeps what lasts longer beneath it. Raises BadRequest for an entry of another server or kind,
    and what `apply_grant_edits` raises.
    """
    wanted_edits: dict[Slot, list[GrantEdit]] = {}
    for edit in (parse_grant_entry(server_id, entry) for entry in entries):
        wanted_edits.setdefault(edit.grant_slot, []).append(edit)
    with transaction.atomic():
        require_grant_editor(actor)
        require_and_lock_granted_servers({server_id})
        current_grants: dict[Slot, list[Grant]] = {}
        rows = Grant.objects.filter(server_id=server_id).exclude(entry_type="capability")
        for row in rows.order_by("id"):
            if is_grant_current(row, now):
                current_grants.setdefault(grant_slot_of_row(row), []).append(row)
        layers = [
            order_grant_layers(edits)
            for slot, edits in wanted_edits.items()
            if count_grant_slot_contents(edits) != count_grant_slot_contents(current_grants.get(slot, []))
        ]
        layers += [[GrantEdit(*slot, INHERIT)] for slot in current_grants.keys() - wanted_edits.keys()]
        depth = max(map(len, layers), default=0)
        rounds = [[edits[level] for edits in layers if level < len(edits)] for level in range(depth)]
        return [applied for edits in rounds for applied in apply_grant_edits(edits, actor=actor, now=now)]


def order_grant_layers(edits: list[GrantEdit]) -> list[GrantEdit]:
    """Return the entries of one slot from the bottom up; raise BadRequest where two end at the same time."""
    if len({edit.expires_at for edit in edits}) != len(edits):
        raise BadRequest("The same agent and tool is named twice.")
    return sorted(edits, key=lambda edit: edit.expires_at or datetime.max.replace(tzinfo=UTC), reverse=True)


def count_grant_slot_contents(rows: Iterable[Grant | GrantEdit]) -> Counter[tuple[str, Any, str | None]]:
    """Return what a slot's rows or edits say, whatever their order."""
    return Counter(
        (
            row.permission if isinstance(row, GrantEdit) else row.effective_permission,
            row.expires_at,
            (row.justification or "").strip() or None,
        )
        for row in rows
    )


def parse_grant_entry(server_id: str, entry: Mapping[str, Any]) -> GrantEdit:
    kind, tool = entry.get("entry_type"), entry.get("tool_name")
    if entry.get("server_id") != server_id:
        raise BadRequest(f"Every entry must be of the server {server_id}.")
    if kind not in (SERVER_GRANT, TOOL_GRANT):
        raise BadRequest(
            "An entry must be a server_grant or a tool_grant. Capabilities cannot be written here."
        )
    if (kind == TOOL_GRANT) != bool(tool):
        raise BadRequest("A tool_grant must name a tool, a server_grant must not.")
    end = entry.get("expires_at")
    until = instants.parse_instant_or_none(end) if isinstance(end, str) else None
    if end is not None and until is None:
        raise BadRequest(f"{end!r} is not a time at which a grant can end.")
    return GrantEdit(
        str(entry.get("agent_id") or ""),
        server_id,
        tool or None,
        str(entry.get("permission", ALLOW)),
        until,
        entry.get("justification"),
    )


PLACEHOLDER_COMMAND = "config-loaded"


def set_servers_allowed_to_agent(
    agent_id: str, server_ids: Sequence[str], *, actor: Actor, now: datetime
) -> list[AppliedEdit]:
    """Let an agent use exactly these servers as a whole; its denials and its tool grants stay as they are.

    A server that has no row yet gets one as other programs write it: its command is in a configuration file.
    """
    require_grant_editor(actor)
    with transaction.atomic():
        add_placeholder_servers(server_ids, actor, now)
        rows = Grant.objects.filter(agent_id=agent_id, entry_type=SERVER_GRANT, tool_name__isnull=True)
        current_rows = [row for row in rows.order_by("id") if is_grant_current(row, now)]
        allowed = {row.server_id for row in current_rows if row.effective_permission == ALLOW}
        denying = {
            row.server_id for row in topmost_grants_of_slot(current_rows) if row.effective_permission != ALLOW
        }
        if clash := denying & set(server_ids):
            raise Conflict(
                f"{agent_id} is denied {join_sorted_names(clash)}, or must ask for each call. Remove that grant first."
            )
        edits = [
            GrantEdit(agent_id, name, None, ALLOW, default_grant_end(now))
            for name in dict.fromkeys(server_ids)
            if name not in allowed
        ]
        applied = apply_grant_edits(edits, actor=actor, now=now)
        # Only what allows ends: a denial or "ask" beneath it, or on top of it, stays.
        for row in current_rows:
            if row.effective_permission == ALLOW and row.server_id not in server_ids:
                revoked = revoke_grant(row.pk, actor=actor, now=now)
                edit = build_grant_edit(revoked, INHERIT, None, None)
                applied.append(AppliedEdit(edit, [serialize_grant(row)], None))
        return applied


def add_placeholder_servers(names: Iterable[str], actor: Actor, now: datetime) -> None:
    for name in sorted(set(names) - set(McpServer.objects.values_list("name", flat=True))):
        if not name.strip():
            raise UnprocessableRequest("A server needs a name.")
        mcp_names.refuse_reserved_gateway_name(name)
        McpServer.objects.create(name=name, command=PLACEHOLDER_COMMAND, created_at=now)
        metadata = {"after": {"command": PLACEHOLDER_COMMAND}}
        audit.record_audit_entry(
            "MCP_SERVER_CREATED", actor=actor, target=name, result="success", metadata=metadata, now=now
        )
