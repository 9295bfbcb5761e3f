"""Grants: given, changed, ended. A change set is one transaction, each row of it one audit entry.

A slot is what one agent has on one server or on one of its tools; at most one grant of it is in force. Nothing
is overwritten: a grant that is replaced or revoked ends now and stays, with its old end in its metadata, so that
the past can be told. An editor names the version of each slot it has seen, and a save on a stale one is refused
with both versions. Capability rows are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import transaction

from coordinator import instants, versions
from coordinator.access import ALLOW, DENY, SERVER_GRANT, TOOL_GRANT, GrantRow, Policy
from coordinator.actions import audit
from coordinator.actors import Actor
from coordinator.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, SignalboxError
from coordinator.models import Agent, Grant, McpServer

INHERIT = "inherit"
LONGEST_TEXT = 2000
MOST_EDITS = 20_000
COLUMNS = ("permission", "granted_by", "granted_at", "expires_at", "justification")

Slot = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Edit:
    """What one slot shall say. `inherit` ends what it says; `seen` is the version its editor looked at."""

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
        """The kind of row that says it."""
        return TOOL_GRANT if self.tool_name else SERVER_GRANT


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of an edit: the rows that ended and the one that is in force since, each as it is told."""

    edit: Edit
    before: list[dict[str, Any]]
    after: dict[str, Any] | None


class StaleEdit(Conflict):
    """A save on slots that somebody else changed meanwhile. `clashes` pairs each edit with the rows there now."""

    def __init__(self, clashes: Sequence[tuple[Edit, list[Grant]]]) -> None:
        self.clashes = clashes
        super().__init__(
            {
                "message": "Somebody else changed these grants since this page was loaded. Nothing was saved.",
                "clashes": [
                    {"yours": _told_edit(edit), "theirs": [told(row) for row in rows]}
                    for edit, rows in clashes
                ],
            }
        )


def told(row: Grant) -> dict[str, Any]:
    """Return a grant as audit rows and conflicts tell it."""
    return {
        "grant_id": row.pk,
        "entry_type": row.entry_type,
        "permission": row.permission,
        "granted_by": row.granted_by,
        "granted_at": _text(row.granted_at),
        "expires_at": _text(row.expires_at),
        "justification": row.justification,
    }


def _told_edit(edit: Edit) -> dict[str, Any]:
    return {
        "agent_id": edit.agent_id,
        "server_id": edit.server_id,
        "tool_name": edit.tool_name,
        "permission": edit.permission,
        "expires_at": _text(edit.expires_at),
        "justification": edit.justification,
    }


def _text(value: Any) -> str | None:
    return instants.canonical(value) if isinstance(value, datetime) else value


# --- versions ---------------------------------------------------------------------------------------------


def version_of(rows: Iterable[Grant]) -> str:
    """Return the version of a slot, from all its rows. The clock alone never changes it."""
    ordered = sorted(rows, key=lambda row: row.pk)
    return versions.of_values([told(row) for row in ordered])


def slots_of(agent_ids: Iterable[str], server_ids: Iterable[str]) -> dict[Slot, list[Grant]]:
    """Return every grant of these agents on these servers by slot, oldest first."""
    found: dict[Slot, list[Grant]] = {}
    rows = Grant.objects.filter(agent_id__in=list(agent_ids), server_id__in=list(server_ids))
    for row in rows.filter(entry_type__in=[TOOL_GRANT, SERVER_GRANT]).order_by("id"):
        found.setdefault(_slot_of(row), []).append(row)
    return found


def _slot_of(row: Grant) -> Slot:
    # Rows whose kind and tool name contradict each other decide nothing; an edit of their slot ends them too.
    return (row.agent_id, row.server_id, row.tool_name if row.entry_type == TOOL_GRANT else None)


# --- applying ---------------------------------------------------------------------------------------------


def apply(edits: Sequence[Edit], *, by: Actor, now: datetime) -> list[Applied]:
    """Make every slot say what its edit says, all or none; return what changed (a slot that said so already is not).

    Raises Invalid for what may not be stored, NotFound for unknown servers or agents, StaleEdit for slots that
    are not as they were seen, Forbidden for an API key.
    """
    _require_person(by)
    sound = _sound(edits, now)
    with transaction.atomic():
        _lock_servers({edit.server_id for edit in sound})
        _require_agents({edit.agent_id for edit in sound if edit.permission != INHERIT})
        standing = slots_of({edit.agent_id for edit in sound}, {edit.server_id for edit in sound})
        _require_seen(sound, standing)
        applied = [_apply(edit, standing.get(edit.slot, []), by, now) for edit in sound]
    return [one for one in applied if one is not None]


def _require_person(by: Actor) -> None:
    if by.kind == "key":
        raise Forbidden("An API key gives no grants: a signed-in person does.")


def _sound(edits: Sequence[Edit], now: datetime) -> list[Edit]:
    """Return the edits with their texts trimmed; raise Invalid at the first that may not be stored."""
    if len(edits) > MOST_EDITS:
        raise Invalid(f"At most {MOST_EDITS} grants can be changed at once.")
    if len({edit.slot for edit in edits}) != len(edits):
        raise Invalid("The same agent, server and tool is named twice: say only one thing about it.")
    for edit in edits:
        _require_sound(edit, now)
    return [replace(edit, justification=(edit.justification or "").strip() or None) for edit in edits]


def _require_sound(edit: Edit, now: datetime) -> None:
    where = f"{edit.agent_id} on {edit.server_id} {edit.tool_name or ''}".rstrip()
    if edit.permission not in (ALLOW, DENY, INHERIT):
        raise Invalid(f"{where}: a grant allows or denies, or is taken back (inherit).")
    if not edit.agent_id.strip() or not edit.server_id.strip() or edit.tool_name == "":
        raise Invalid("A grant names an agent, a server and, for a tool grant, a tool.")
    if edit.permission != INHERIT and edit.expires_at is not None and edit.expires_at <= now:
        raise Invalid(f"{where}: the end lies in the past.")
    if len(edit.justification or "") > LONGEST_TEXT:
        raise Invalid(f"{where}: a justification has at most {LONGEST_TEXT} characters.")


def _lock_servers(names: set[str]) -> None:
    """Hold the servers until the commit: an empty slot has no row that two editors could queue for."""
    locked = McpServer.objects.select_for_update().filter(name__in=names).order_by("name")
    missing = names - {server.name for server in locked}
    if missing:
        raise NotFound(f"There is no MCP server {_listed(missing)}. Add it before granting it.")


def _require_agents(ids: set[str]) -> None:
    missing = ids - set(Agent.objects.filter(pk__in=ids).values_list("pk", flat=True))
    if missing:
        raise NotFound(f"There is no agent {_listed(missing)}.")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _require_seen(edits: Sequence[Edit], standing: Mapping[Slot, list[Grant]]) -> None:
    clashes = [
        (edit, standing.get(edit.slot, []))
        for edit in edits
        if edit.seen is not None and edit.seen != version_of(standing.get(edit.slot, []))
    ]
    if clashes:
        raise StaleEdit(clashes)


def _apply(edit: Edit, rows: list[Grant], by: Actor, now: datetime) -> Applied | None:
    standing = [row for row in rows if stands(row, now)]
    if _says_so_already(edit, standing):
        return None
    before = [told(row) for row in standing]
    after = None if edit.permission == INHERIT else _insert(edit, by, now)
    for row in standing:
        _end(row, by, now, edit.justification, after)
    applied = Applied(edit, before, told(after) if after else None)
    _record(applied, by, now)
    return applied


def stands(row: Grant, now: datetime) -> bool:
    """Whether a row is still in the way: in force, or odd and so neither over nor in force."""
    return row.expires_at is None or not isinstance(row.expires_at, datetime) or row.expires_at > now


def _says_so_already(edit: Edit, standing: list[Grant]) -> bool:
    if edit.permission == INHERIT:
        return not standing
    if len(standing) != 1:
        return False
    row = standing[0]
    return (row.entry_type, row.tool_name, row.permission, row.expires_at, row.justification) == (
        edit.entry_type,
        edit.tool_name,
        edit.permission,
        edit.expires_at,
        edit.justification,
    )


def _insert(edit: Edit, by: Actor, now: datetime) -> Grant:
    return Grant.objects.create(**_columns(edit, by, now))


def _columns(edit: Edit, by: Actor, now: datetime) -> dict[str, Any]:
    """Return what the row that `edit` makes holds."""
    return {
        "entry_type": edit.entry_type,
        "agent_id": edit.agent_id,
        "server_id": edit.server_id,
        "tool_name": edit.tool_name,
        "permission": edit.permission,
        "granted_by": str(by),
        "granted_at": now,
        "expires_at": edit.expires_at,
        "justification": edit.justification,
    }


def _end(row: Grant, by: Actor, now: datetime, reason: str | None, successor: Grant | None) -> None:
    """End a row now and keep in its metadata what ended it, and when it would have ended by itself."""
    ended: dict[str, Any] = {"at": instants.canonical(now), "by": str(by), "was_until": _text(row.expires_at)}
    if successor is not None:
        ended["replaced_by"] = successor.pk
    elif reason:
        ended["reason"] = reason
    metadata = row.metadata if isinstance(row.metadata, dict) else {}
    row.metadata, row.expires_at = {**metadata, "ended": ended}, now
    row.save(update_fields=["metadata", "expires_at"])


def _record(applied: Applied, by: Actor, now: datetime) -> None:
    edit = applied.edit
    event = (
        "GRANT_REVOKED" if applied.after is None else "GRANT_REPLACED" if applied.before else "GRANT_CREATED"
    )
    audit.record(
        event,
        actor=by,
        target=f"{edit.agent_id} {edit.server_id} {edit.tool_name or '*'}",
        permission=edit.permission,
        result="success",
        reason=edit.justification,
        metadata={"before": applied.before, "after": applied.after},
        now=now,
    )


def record_refusal(edits: Sequence[Edit], refusal: SignalboxError, *, by: Actor, now: datetime) -> None:
    """Write down an attempt that came to nothing; doors call it once the attempt is rolled back."""
    detail = refusal.detail["message"] if isinstance(refusal.detail, dict) else str(refusal.detail)
    audit.record(
        "GRANTS_REFUSED",
        actor=by,
        target=None
        if len(edits) != 1
        else f"{edits[0].agent_id} {edits[0].server_id} {edits[0].tool_name or '*'}",
        result="failure",
        reason=detail,
        metadata={"wanted": [_told_edit(edit) for edit in edits[:50]], "count": len(edits)},
        now=now,
    )


# --- one row, from a list of grants -----------------------------------------------------------------------


def revoke(
    grant_id: int, *, by: Actor, now: datetime, reason: str | None = None, seen: str | None = None
) -> Grant:
    """End one grant now. Raises NotFound, Conflict where it is over already, StaleEdit, Forbidden."""
    _require_person(by)
    with transaction.atomic():
        row = _locked(grant_id, seen, now)
        before = told(row)
        _end(row, by, now, reason, None)
        _record(Applied(_edit_of(row, INHERIT, None, reason), [before], None), by, now)
    return row


def extend(
    grant_id: int,
    *,
    until: datetime | None,
    by: Actor,
    now: datetime,
    reason: str | None = None,
    seen: str | None = None,
) -> list[Applied]:
    """Replace one grant by the same with another end (None: no end). An expired one is given anew.

    Raises NotFound, Invalid, StaleEdit, Forbidden.
    """
    with transaction.atomic():
        row = _locked(grant_id, seen)
        edit = _edit_of(row, row.permission, until, (reason or "").strip() or row.justification)
        return apply([edit], by=by, now=now)


def _locked(grant_id: int, seen: str | None, now: datetime | None = None) -> Grant:
    """Return the row to be changed; with `now`, raise Conflict where it is over by then."""
    row = Grant.objects.select_for_update().filter(pk=grant_id).first()
    if row is None or row.entry_type not in (TOOL_GRANT, SERVER_GRANT):
        raise NotFound("There is no such grant any more.")
    if seen is not None and seen != version_of([row]):
        raise StaleEdit([(_edit_of(row, INHERIT, None, None), [row])])
    if now is not None and not stands(row, now):
        raise Conflict("This grant is over already.")
    return row


def _edit_of(row: Grant, permission: str, until: datetime | None, justification: str | None) -> Edit:
    """Return the edit that makes the row's slot say `permission`."""
    return Edit(row.agent_id, row.server_id, _slot_of(row)[2], permission, until, justification)


# --- what other parts do to grants ------------------------------------------------------------------------


def end_all(
    *, by: Actor, now: datetime, reason: str, agent_id: str | None = None, server_id: str | None = None
) -> int:
    """Delete every row of an agent or a server that is being deleted, each with its audit row; return how many.

    They are deleted, not ended: a later agent or server of that name must find nothing. Call it in the
    transaction of the deletion.
    """
    rows = Grant.objects.all()
    rows = rows.filter(agent_id=agent_id) if agent_id is not None else rows.filter(server_id=server_id)
    for row in rows.order_by("id"):
        if row.entry_type == "capability" or stands(row, now):
            _record(Applied(_edit_of(row, INHERIT, None, reason), [told(row)], None), by, now)
    deleted, _ = rows.delete()
    return deleted


def replace_for_server(
    server_id: str, entries: Sequence[Mapping[str, Any]], *, by: Actor, now: datetime
) -> list[Applied]:
    """Make `entries` all that a server's grants say, for every agent; capability rows stay.

    `entries` are rows as other programs write them; who gave them and when is not theirs to say. Raises
    BadRequest for an entry of another server or kind, and what `apply` raises.
    """
    wanted = {edit.slot: edit for edit in (_edit_from(server_id, entry) for entry in entries)}
    if len(wanted) != len(entries):
        raise BadRequest("The same agent and tool is named twice.")
    with transaction.atomic():
        rows = Grant.objects.filter(server_id=server_id).exclude(entry_type="capability")
        gone = {_slot_of(row) for row in rows if stands(row, now)} - wanted.keys()
        return apply([*wanted.values(), *(Edit(*slot, INHERIT) for slot in gone)], by=by, now=now)


def _edit_from(server_id: str, entry: Mapping[str, Any]) -> Edit:
    kind, tool = entry.get("entry_type"), entry.get("tool_name")
    if entry.get("server_id") != server_id:
        raise BadRequest(f"Every entry must be of the server {server_id}.")
    if kind not in (SERVER_GRANT, TOOL_GRANT):
        raise BadRequest("An entry is a server_grant or a tool_grant; capability rows are not written here.")
    if (kind == TOOL_GRANT) != bool(tool):
        raise BadRequest("A tool_grant names a tool, a server_grant names none.")
    end = entry.get("expires_at")
    until = instants.parse(end) if isinstance(end, str) else None
    if end is not None and until is None:
        raise BadRequest(f"{end!r} is no instant that could be the end of a grant.")
    return Edit(
        str(entry.get("agent_id") or ""),
        server_id,
        tool or None,
        str(entry.get("permission", ALLOW)),
        until,
        entry.get("justification"),
    )


PLACEHOLDER_COMMAND = "config-loaded"


def set_servers(agent_id: str, server_ids: Sequence[str], *, by: Actor, now: datetime) -> list[Applied]:
    """Let an agent use exactly these servers as a whole; its denials and its tool grants stay as they are.

    A server that has no row yet gets one as other programs write it: its command is in a configuration file.
    """
    _require_person(by)
    with transaction.atomic():
        _add_placeholders(server_ids, by, now)
        rows = Grant.objects.filter(agent_id=agent_id, entry_type=SERVER_GRANT, tool_name__isnull=True)
        allowed = {row.server_id for row in rows if stands(row, now) and row.permission == ALLOW}
        denied = {row.server_id for row in rows if stands(row, now) and row.permission != ALLOW}
        if clash := denied & set(server_ids):
            raise Conflict(f"{agent_id} is denied {_listed(clash)}: take that back first.")
        edits = [
            Edit(agent_id, name, None, ALLOW) for name in dict.fromkeys(server_ids) if name not in allowed
        ]
        edits += [Edit(agent_id, name, None, INHERIT) for name in sorted(allowed - set(server_ids))]
        return apply(edits, by=by, now=now)


def _add_placeholders(names: Iterable[str], by: Actor, now: datetime) -> None:
    for name in sorted(set(names) - set(McpServer.objects.values_list("name", flat=True))):
        if not name.strip():
            raise Invalid("A server needs a name.")
        McpServer.objects.create(name=name, command=PLACEHOLDER_COMMAND, created_at=now)
        metadata = {"after": {"command": PLACEHOLDER_COMMAND}}
        audit.record(
            "MCP_SERVER_CREATED", actor=by, target=name, result="success", metadata=metadata, now=now
        )


# --- looking ahead ----------------------------------------------------------------------------------------


def policy_after(policy: Policy, edits: Iterable[Edit], *, by: Actor, now: datetime) -> Policy:
    """Return a copy of `policy` as it will be once `edits` are saved, for a preview; nothing is written."""
    slots = {pair: dict(rows) for pair, rows in policy.slots.items()}
    for edit in edits:
        tools = slots.setdefault((edit.agent_id, edit.server_id), {})
        tools.pop(edit.tool_name, None)
        if edit.permission != INHERIT:
            tools[edit.tool_name] = [GrantRow(id=0, **_columns(edit, by, now))]
    return Policy(policy.servers, slots, policy.changed)
