"""The list of all grants, of all servers and agents."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django_tables2 import RequestConfig

from coordinator.identity.declarations import require_safe
from coordinator.models import Grant, McpServer
from coordinator.models.agent_names import agent_labels_by_id
from coordinator.models.mcp import GrantWord
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.mcp.filters import STATE_CHOICES, UNUSED, GrantFilter, filter_grants_by_state
from dashboard.mcp.tables import GrantTable

PAGE = 50


@require_safe
@require_viewer_role
def list_grants(request: HtmxHttpRequest) -> HttpResponse:
    """List grants with their giver, reason and end; by default those in force."""
    now, query = timezone.now(), request.GET.copy()
    query.setdefault("standing", "standing")
    everything = Grant.objects.exclude(entry_type="capability")
    narrowed = GrantFilter(query, queryset=everything)
    servers = set(McpServer.objects.exclude(name=None).values_list("name", flat=True))
    table = GrantTable(
        narrowed.qs,
        now=now,
        servers=servers,
        agent_labels=agent_labels_by_id(),
        back=request.get_full_path(),
    )
    RequestConfig(request, paginate={"per_page": PAGE}).configure(table)
    numbers = {
        grant_state: filter_grants_by_state(everything, grant_state, now).count()
        for grant_state in ("soon", "odd")
    }
    context = {
        "table": table,
        "filter": narrowed,
        "query": query,
        "standings": [
            (value, build_choice_label_with_count(label, numbers.get(value, 0)))
            for value, label in STATE_CHOICES
        ],
        "permissions": GrantWord.choices,
        "unused": UNUSED,
        "servers": sorted(servers),
        "filtered": any(query.get(name) for name in ("q", "server", "agent", "by", "permission", "unused"))
        or query["standing"] != "standing",
        "any": everything.exists(),
    }
    return render(request, "mcp/_grants.html" if wants_fragment(request) else "mcp/grants.html", context)


def build_choice_label_with_count(label: str, number: int) -> str:
    """Return a choice's label with its number of results, if there are any."""
    return f"{label} ({number})" if number else label
