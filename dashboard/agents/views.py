"""Agents: the list and one agent's page."""

from __future__ import annotations

from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from coordinator.chat import reading as chat
from coordinator.errors import NotFound
from coordinator.identity.declarations import require_safe
from coordinator.models import Agent
from dashboard.agents.rows import count_agents_by_status, load_agent_details, load_agent_rows
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.status_facets import build_status_facets


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def list_agents_page(request: HtmxHttpRequest) -> HttpResponse:
    """List the agents by name, with the number of agents in each state."""
    search_text, state = request.GET.get("q", "")[:200], request.GET.get("status", "")
    agents = Agent.objects.order_by("name", "pk")
    for word in search_text.replace("\0", "").split():
        agents = agents.filter(
            Q(pk__icontains=word)
            | Q(name__icontains=word)
            | Q(description__icontains=word)
            | Q(default_engine_id__icontains=word)
        )
    rows = load_agent_rows(agents, timezone.now())
    context = {
        "statuses": build_status_facets(count_agents_by_status(rows), request.GET),
        "rows": [row for row in rows if state in ("", row.status)],
        "words": search_text,
        "state": state,
    }
    template = "agents/_results.html" if wants_fragment(request) else "agents/list.html"
    return render(request, template, context)


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def show_agent(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    """Show one agent. The fragment is the page's head, which is updated with each heartbeat."""
    try:
        agent = chat.require_chat_agent(agent_id)
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None
    details = load_agent_details(agent, timezone.now())
    context = {"agent": agent, "details": details, "row": details.row}
    template = "agents/_head.html" if wants_fragment(request) else "agents/detail.html"
    return render(request, template, context)
