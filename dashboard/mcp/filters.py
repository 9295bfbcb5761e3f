"""Filters of the list of grants: by state, by words, and by whether a grant was used lately."""

from __future__ import annotations

from datetime import datetime, timedelta

import django_filters
from django.db.models import Q, QuerySet
from django.utils import timezone

from coordinator.mcp.servers import calls
from coordinator.models import Agent, Grant, McpServer
from coordinator.models.mcp import EntryType, GrantPermission

SOON = timedelta(days=7)
STATE_CHOICES = (
    ("standing", "In force"),
    ("soon", "Ending within 7 days"),
    ("over", "Ended"),
    ("odd", "With problems"),
    ("all", "All"),
)
UNUSED = (("7", "Unused for 7 days"), ("30", "Unused for 30 days"), ("90", "Unused for 90 days"))
Rows = QuerySet[Grant]


class GrantFilter(django_filters.FilterSet):  # type: ignore[misc] # the library has no types
    q = django_filters.CharFilter(method="filter_grants_by_search_words")
    standing = django_filters.ChoiceFilter(choices=STATE_CHOICES, method="filter_by_grant_state")
    server = django_filters.CharFilter(field_name="server_id")
    agent = django_filters.CharFilter(field_name="agent_id")
    by = django_filters.CharFilter(field_name="granted_by")
    permission = django_filters.CharFilter(method="filter_grants_by_permission")
    unused = django_filters.ChoiceFilter(choices=UNUSED, method="filter_unused_grants")

    def filter_grants_by_search_words(self, rows: Rows, _name: str, text: str) -> Rows:
        for word in text.replace("\0", "").split():
            rows = rows.filter(
                Q(agent_id__icontains=word)
                | Q(agent_id__in=Agent.objects.filter(name__icontains=word).values("pk"))
                | Q(server_id__icontains=word)
                | Q(tool_name__icontains=word)
                | Q(granted_by__icontains=word)
                | Q(justification__icontains=word)
            )
        return rows

    def filter_grants_by_permission(self, rows: Rows, _name: str, word: str) -> Rows:
        return rows.filter_by_effective_permission(word)  # type: ignore[attr-defined,no-any-return]

    def filter_by_grant_state(self, rows: Rows, _name: str, state: str) -> Rows:
        return filter_grants_by_state(rows, state, timezone.now())

    def filter_unused_grants(self, rows: Rows, _name: str, days: str) -> Rows:
        """Keep allowing grants that are older than `days` days and covered no recorded call since then."""
        now = timezone.now()
        start = now - timedelta(days=int(days))
        servers = list(McpServer.objects.exclude(name=None).values_list("name", flat=True))
        used = {
            (agent, call_count.server_id, call_count.tool_name)
            for call_count in calls.list_tool_call_counts_since(start, servers)
            for agent in (call_count.agent_id, call_count.agent_name)
        }
        pairs = {(agent, server) for agent, server, _ in used}
        rows = rows.not_ended(now).filter(permission=GrantPermission.ALLOW, granted_at__lt=start)  # type: ignore[attr-defined]
        unused = [
            row.pk
            for row in rows
            if (row.agent_id, row.server_id, row.tool_name) not in used
            and (row.tool_name or (row.agent_id, row.server_id) not in pairs)
        ]
        return rows.filter(pk__in=unused)


def filter_grants_by_state(rows: Rows, state: str, now: datetime) -> Rows:
    """Return the rows with this state at `now`; all rows for an unknown state."""
    live = rows.not_ended(now)  # type: ignore[attr-defined]
    rows_by_state: dict[str, Rows] = {
        "standing": live,
        "soon": live.filter(expires_at__lte=now + SOON),
        "over": rows.already_ended(now),  # type: ignore[attr-defined]
        "odd": rows.filter(
            ~Q(permission__in=GrantPermission.values)
            | Q(expires_at__isnull=False, expires_at__instant__isnull=True)
            | Q(granted_at__instant__isnull=True)
            | Q(entry_type=EntryType.SERVER_GRANT, tool_name__isnull=False)
            | (Q(entry_type=EntryType.TOOL_GRANT) & (Q(tool_name__isnull=True) | Q(tool_name="")))
            | ~Q(server_id__in=McpServer.objects.values("name"))
        ),
    }
    return rows_by_state.get(state, rows)
