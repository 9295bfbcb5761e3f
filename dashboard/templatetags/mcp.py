"""Template tags of the pages about MCP: slots as form fields, links to the page "why?", names of tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from django.template import Library
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from coordinator.policy.grants import end_parsing
from coordinator.policy.grants.access_preview import VerdictChange
from coordinator.policy.grants.edits import Slot
from dashboard.mcp.access_sheet import AccessSheetLine

register = Library()
NAMED = 8


@register.filter
def access_slot_form_value(line: AccessSheetLine) -> str:
    """Return a line of the access sheet as a form value: its slot, its current choice and its version."""
    return json.dumps([*line.slot, line.choice, line.version])


@register.simple_tag
def why_url(slot: Slot) -> str:
    """Return the URL of the page "why?" for an agent, a server and a tool."""
    agent, server, tool = slot
    return f"{reverse('mcp:why')}?{urlencode({'agent': agent, 'server': server, 'tool': tool or ''})}"


@register.filter
def tool_names(verdict_changes: Sequence[VerdictChange]) -> str:
    """Return the first few tools by name and how many more there are."""
    names = ", ".join(f"{turn.server_id} {turn.tool_name}" for turn in verdict_changes[:NAMED])
    return names if len(verdict_changes) <= NAMED else f"{names} and {len(verdict_changes) - NAMED} more"


@register.simple_tag
def suggested_ends() -> tuple[str, ...]:
    """Return the suggestions for the end of a grant."""
    return end_parsing.SUGGESTED_ENDS


@register.simple_tag
def grant_duration_presets() -> tuple[str, ...]:
    """Return the durations of a grant that have a button."""
    return end_parsing.QUICK_LENGTHS


@register.simple_tag
def render_grant_end(end: datetime, zone: ZoneInfo) -> SafeString:
    """Render when a grant ends in the time zone `zone`: `Fri 27 Nov 2026, 18:00 (Europe/Zurich)`."""
    return format_html(
        '<time datetime="{}" data-clock="fixed">{}</time> ({})',
        end.isoformat(),
        f"{end.astimezone(zone):%a %-d %b %Y, %H:%M}",
        zone.key,
    )


@register.filter
def milliseconds(value: float | None) -> str:
    """Return an upper bound in milliseconds for display; a dash for None."""
    if value is None:
        return "\N{EN DASH}"
    return (
        "> 60 s"
        if value == float("inf")
        else f"\u2264 {value:g} ms"
        if value < 1_000
        else f"\u2264 {value / 1000:g} s"
    )
