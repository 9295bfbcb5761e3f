"""An editable sheet of grant slots: of an agent's tools on a server, or of all agents on a server or a tool.

Each slot is shown with its own choice, the effective verdict and the verdict's source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.http import QueryDict

from coordinator.actions.policy import grants
from coordinator.errors import UnprocessableRequest
from coordinator.lib import instants
from coordinator.mcp.servers import tools as mcp_tools
from coordinator.models import Agent, Grant, McpServer, McpTool
from coordinator.models.agent_names import agent_labels_by_id
from coordinator.policy.grants import access
from coordinator.policy.grants import end_parsing as grant_lengths
from coordinator.policy.grants.access import (
    ALLOW,
    ASK,
    DENY,
    PARTICIPLES,
    GrantRow,
    Verdict,
    topmost_grants_of_slot,
)
from coordinator.policy.grants.edits import INHERIT, GrantEdit, Slot, find_grants_remaining_under_edit
from dashboard.frame.days import find_zone_by_name

CHOICES = ((INHERIT, "Inherit"), (ALLOW, "Allow"), (ASK, "Ask"), (DENY, "Deny"))
MOST_LINES = 600
CHOICE_OF_NO_SHEET = (
    "as it is"  # choice of a slot that was not chosen on a sheet (as in the matrix): any choice changes it
)


@dataclass(frozen=True, slots=True)
class AccessSheetLine:
    """One slot of the sheet: its own choice, the effective verdict, and notes."""

    slot: Slot
    label: str
    choice: str
    row: Grant | None
    verdict: Verdict
    version: str
    title: str = ""
    marks: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def verdict_source(self) -> str:
        return describe_verdict_source(self.verdict)

    @property
    def verdict_after_temporary_grant(self) -> str:
        """The verdict after a temporary grant on top of another one has ended, like "asked"; else empty."""
        if self.row is None or not self.verdict.is_by_grant_overriding_grant or self.verdict.grant is None:
            return ""
        if self.verdict.grant.id != self.row.pk or self.verdict.then is None:
            return ""
        return PARTICIPLES[self.verdict.then.decision]


@dataclass(frozen=True, slots=True)
class GrantEditLine:
    """One edit of a preview.

    `beneath` is the grant that decides again after the edit. `hidden` are grants that the edit ends although
    the sheet does not show them.
    """

    edit: GrantEdit
    beneath: Grant | None
    hidden: list[Grant]


@dataclass(frozen=True, slots=True)
class AccessSheet:
    """The lines of a sheet.

    `capabilities` are rows that decide nothing. `more` is the number of omitted lines.
    """

    lines: list[AccessSheetLine]
    capabilities: list[Grant]
    more: int = 0


def describe_verdict_source(verdict: Verdict) -> str:
    source_words = {
        access.TOOL_GRANT: "grant of this tool",
        access.SERVER_GRANT: "grant of the server",
        access.DEFAULT_POLICY: "call without a grant",
        access.UNKNOWN_SERVER: "unknown server",
    }
    source = source_words[verdict.source]
    if verdict.is_unknown and verdict.source != access.UNKNOWN_SERVER:
        source = f"{source}, unknown server"
    return f"{source}, definition changed" if verdict.changed_at else source


def load_agent_server_sheet(agent_id: str, server_id: str, now: datetime) -> AccessSheet:
    """Return the sheet of one agent on one server: the server's slot first, then that of each tool."""
    tools = mcp_tools.collect_tool_names_by_server([server_id], seen_by=now)[server_id]
    known_tools = {tool.name: tool for tool in McpTool.objects.filter(server_id=server_id)}
    slots: list[Slot] = [(agent_id, server_id, None), *((agent_id, server_id, tool) for tool in tools)]
    labels = {slot: slot[2] or "The whole server" for slot in slots}
    marks: dict[Slot, list[str]] = {
        (agent_id, server_id, name): tool_hint_and_status_labels(known_tools.get(name)) for name in tools
    }
    titles: dict[Slot, str] = {
        (agent_id, server_id, name): known_tools[name].description or ""
        for name in tools
        if name in known_tools
    }
    return load_access_sheet(slots, labels, now, marks=marks, titles=titles)


def load_agent_sheet(agent_id: str, now: datetime) -> AccessSheet:
    servers = list(McpServer.objects.order_by("name").values_list("name", flat=True))
    return load_access_sheet(
        [(agent_id, name, None) for name in servers], {(agent_id, n, None): n for n in servers}, now
    )


def load_server_agents_sheet(server_id: str, tool_name: str | None, now: datetime) -> AccessSheet:
    """Return the sheet with every agent's slot on a server, or on one of its tools."""
    agents, labels = list_agent_ids_including_unknown([server_id]), agent_labels_by_id()
    slots: list[Slot] = [(agent, server_id, tool_name) for agent in agents]
    return load_access_sheet(slots, {slot: labels.get(slot[0], slot[0]) for slot in slots}, now)


def list_agent_ids_including_unknown(server_ids: Iterable[str] | None = None) -> list[str]:
    """Return the ids of all agents, and of unknown agents that have grants.

    With `server_ids`, only grants of these servers count.
    """
    grant_rows = Grant.objects.exclude(entry_type="capability").values_list("agent_id", flat=True).distinct()
    if server_ids is not None:
        grant_rows = grant_rows.filter(server_id__in=list(server_ids))
    return sorted({*Agent.objects.values_list("pk", flat=True), *grant_rows} - {None})


def tool_hint_and_status_labels(tool: McpTool | None) -> list[str]:
    if tool is None:
        return ["not listed"]
    annotations = tool.annotations if isinstance(tool.annotations, dict) else {}
    hints = (
        ("destructiveHint", "destructive"),
        ("readOnlyHint", "read only"),
        ("openWorldHint", "open world"),
    )
    marks = [word for name, word in hints if annotations.get(name) is True]
    return [
        *marks,
        *(["changed"] if tool.has_undecided_definition_change else []),
        *(["gone"] if tool.gone_at else []),
    ]


def load_access_sheet(
    slots: list[Slot],
    labels: Mapping[Slot, str],
    now: datetime,
    *,
    marks: Mapping[Slot, list[str]] | None = None,
    titles: Mapping[Slot, str] | None = None,
) -> AccessSheet:
    shown_slots = slots[:MOST_LINES]
    agents, servers = {slot[0] for slot in shown_slots}, {slot[1] for slot in shown_slots}
    policy = access.load_policy_for_agents(agents, servers, now)
    grant_slots = grants.load_grant_slots(agents, servers)
    lines = [
        build_sheet_line(
            slot,
            labels[slot],
            grant_slots.get(slot, []),
            # No tool has an empty name, so this is the verdict for tools without a grant of their own.
            policy.decide_tool_access(slot[0], slot[1], slot[2] or "", now),
            now,
            title=(titles or {}).get(slot, ""),
            marks=(marks or {}).get(slot, []),
        )
        for slot in shown_slots
    ]
    capabilities = Grant.objects.filter(entry_type="capability", agent_id__in=agents, server_id__in=servers)
    return AccessSheet(lines, list(capabilities[:50]), len(slots) - len(shown_slots))


def build_sheet_line(
    slot: Slot,
    label: str,
    rows: list[Grant],
    verdict: Verdict,
    now: datetime,
    *,
    title: str,
    marks: list[str],
) -> AccessSheetLine:
    live = topmost_grants_of_slot(
        [
            row
            for row in rows
            if build_grant_row_from_model(row).is_live(now) and is_grant_entry_type_consistent(row)
        ]
    )
    own = verdict.grant if verdict.grant is not None and verdict.grant.tool_name == slot[2] else None
    row = next((grant_row for grant_row in live if own is not None and grant_row.pk == own.id), None)
    choice = INHERIT if row is None else build_grant_row_from_model(row).decision_while_live
    problems = [
        fault
        for one in rows
        if one in live or not is_expired_grant(one, now)
        for fault in access.find_grant_field_problems(one)
    ]
    if len(live) > 1:
        wins = {DENY: "a denial wins", ASK: "a grant that asks wins"}.get(choice, "the newest wins")
        problems.append(f"{len(live)} grants apply here; {wins}")
    return AccessSheetLine(
        slot,
        label,
        choice,
        row,
        verdict,
        grants.compute_grant_slot_version(rows),
        title,
        marks,
        list(dict.fromkeys(problems)),
    )


def is_grant_entry_type_consistent(row: Grant) -> bool:
    return (row.entry_type == access.TOOL_GRANT) == bool(row.tool_name)


def is_expired_grant(row: Grant, now: datetime) -> bool:
    return isinstance(row.expires_at, datetime) and row.expires_at <= now


def build_grant_row_from_model(row: Grant) -> GrantRow:
    return GrantRow(*(getattr(row, name if name != "id" else "pk") for name in GrantRow._fields))


def parse_sheet_edits(form: QueryDict, now: datetime) -> list[GrantEdit]:
    """Return the edits of a posted sheet: the slots whose choice changed or that are renewed.

    Form fields:
    - `slot`: JSON of the agent, server, tool, the choice when the page was loaded, and the version.
    - `choice-N`: the new choice of slot N.
    - `renew-N`: renew the grant of slot N.
    - `until-N`: the end of slot N, if it differs from `until`, the end of all.
    - `length`: from a button that names a duration; overrides `until`.
    - `shown_end`: what the form showed as the end that `until` means.
    """
    zone = time_zone_of_posted_form(form)
    common_end = form.get("length") or form.get("until", grant_lengths.DEFAULT)
    reason = form.get("why", "")
    edits = []
    for row_number, text in enumerate(form.getlist("slot")):
        agent_id, server_id, tool_name, current, seen_version = parse_posted_slot(text)
        choice = form.get(f"choice-{row_number}", form.get("choice", current))
        renewed = f"renew-{row_number}" in form and choice != INHERIT
        if choice != current or renewed:
            end_text = form.get(f"until-{row_number}", "").strip() or common_end
            end = (
                None
                if choice == INHERIT
                else grant_lengths.parse_optional_grant_end(end_text, now, zone, form.get("shown_end", ""))
            )
            edits.append(GrantEdit(agent_id, server_id, tool_name, choice, end, reason, seen_version))
    return edits


def time_zone_of_posted_form(form: Mapping[str, Any]) -> ZoneInfo:
    """Return the time zone that the browser sent with a form; UTC if it sent none."""
    return find_zone_by_name(str(form.get("zone") or "UTC")) or ZoneInfo("UTC")


def parse_posted_slot(text: str) -> tuple[str, str, str | None, str, str | None]:
    try:
        agent_id, server_id, tool_name, current, seen_version = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise UnprocessableRequest("This form could not be read. Reload the page.") from None
    if not all(isinstance(part, str) for part in (agent_id, server_id, current)) or not all(
        part is None or isinstance(part, str) for part in (tool_name, seen_version)
    ):
        raise UnprocessableRequest("This form could not be read. Reload the page.")
    return agent_id, server_id, tool_name or None, current, seen_version


def load_edits_with_covered_grants(edits: list[GrantEdit], now: datetime) -> list[GrantEditLine]:
    """Return each edit with the grants that it covers or ends (see GrantEditLine)."""
    slots = grants.load_grant_slots({edit.agent_id for edit in edits}, {edit.server_id for edit in edits})
    lines = []
    for edit in edits:
        live = [
            row
            for row in slots.get(edit.grant_slot, [])
            if build_grant_row_from_model(row).is_live(now) and is_grant_entry_type_consistent(row)
        ]
        beneath, top = find_grants_remaining_under_edit(edit, live), topmost_grants_of_slot(live)
        hidden = [row for row in live if row not in beneath and row not in top]
        lines.append(GrantEditLine(edit, deciding_grant_or_none(beneath, now), hidden))
    return lines


def deciding_grant_or_none(live: Iterable[Grant], at: datetime) -> Grant | None:
    """Return which of a slot's live grants decides; None where there is none."""
    grants_by_id = {grant.pk: grant for grant in live}
    rows = [build_grant_row_from_model(grant) for grant in grants_by_id.values()]
    if not rows:
        return None
    verdict = access.decide_by_grants_or_none(rows, rows[0].entry_type, rows[0].server_id, at, False)
    return None if verdict is None or verdict.grant is None else grants_by_id[verdict.grant.id]


def serialize_grant_edits(edits: Iterable[GrantEdit]) -> str:
    return json.dumps([grant_edit_as_json_list(edit) for edit in edits], separators=(",", ":"))


def grant_edit_as_json_list(edit: GrantEdit) -> list[Any]:
    until = instants.format_canonical_instant(edit.expires_at) if edit.expires_at else None
    return [*edit.grant_slot, edit.permission, until, edit.justification, edit.seen_version]


def deserialize_grant_edits(text: str) -> list[GrantEdit]:
    """Return the edits that serialize_grant_edits wrote. Raises UnprocessableRequest."""
    try:
        rows = json.loads(text)
        edits = [
            GrantEdit(
                str(a),
                str(s),
                t,
                str(p),
                instants.parse_instant_or_none(u) if u is not None else None,
                reason,
                seen_version,
            )
            for a, s, t, p, u, reason, seen_version in rows
        ]
    except (ValueError, TypeError, RecursionError):
        raise UnprocessableRequest("These changes could not be read. Go back and start again.") from None
    for edit, row in zip(edits, rows, strict=True):
        texts = (edit.tool_name, edit.justification, edit.seen_version)
        if not all(part is None or isinstance(part, str) for part in texts) or (
            row[4] and not edit.expires_at
        ):
            raise UnprocessableRequest("These changes could not be read. Go back and start again.")
    return edits


def copy_edits_filling_missing_versions(edits: list[GrantEdit]) -> list[GrantEdit]:
    """Return the edits, with the current version of the slot added to those without a version.

    Edits of cells that were chosen in the matrix have no version.
    """
    grant_slots = grants.load_grant_slots(
        {edit.agent_id for edit in edits}, {edit.server_id for edit in edits}
    )
    return [
        edit
        if edit.seen_version is not None
        else GrantEdit(
            edit.agent_id,
            edit.server_id,
            edit.tool_name,
            edit.permission,
            edit.expires_at,
            edit.justification,
            grants.compute_grant_slot_version(grant_slots.get(edit.grant_slot, [])),
        )
        for edit in edits
    ]
