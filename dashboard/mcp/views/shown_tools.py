"""Which tools the gateway lists to an agent's model, and how much context each choice takes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from coordinator.actions.mcp import shown_tools
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.gateway.tool_search import (
    SEARCH_TOOLS,
    estimate_tokens_of_definition,
    filter_valid_server_tool_pairs,
    load_tool_listing_setting,
)
from coordinator.mcp.gateway.visibility import load_visible_tool_rows
from coordinator.mcp.servers.names import name_in_calls
from coordinator.models import AgentToolListing, McpServer, McpUpstream
from coordinator.models.agent_names import agent_labels_by_id
from coordinator.models.mcp import ListedTools
from dashboard.frame import form_refusals as refusals
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_admin, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.mcp.access_sheet import list_agent_ids_including_unknown

MAX_TOOLS_ON_PAGE = 2_000
ABOUT = {
    ListedTools.ALL: "The definitions of all tools that the agent may call or ask for.",
    ListedTools.CHOSEN: "The definitions of the tools that you mark below, as far as the agent may call them.",
    ListedTools.SEARCH: "Two tools: find_tools returns definitions that fit a question, call_tool calls one of them.",
}


@dataclass(frozen=True, slots=True)
class VisibleTool:
    """A tool that the agent may see, with its definition's size in tokens."""

    server_id: str
    name: str
    description: str
    tokens: int

    @property
    def form_value(self) -> str:
        """Return the value of the tool's checkbox."""
        return encode_tool_choice(self.server_id, self.name)


@dataclass(frozen=True, slots=True)
class ListingChoice:
    """One way of listing tools, with its number of tools and tokens."""

    value: str
    label: str
    about: str
    tools: int
    tokens: int
    saved: int


def find_tools_served_to_agent(agent_id: str) -> list[VisibleTool]:
    """Return the tools that the gateway serves to the agent, by server and name."""
    local = set(McpServer.objects.filter(command="").values_list("name", flat=True))
    local -= set(McpUpstream.objects.exclude(url=None).exclude(url="").values_list("pk", flat=True))
    columns = ("title", "description", "input_schema", "output_schema", "annotations", "definition_hash")
    rows = load_visible_tool_rows(
        GatewayCaller(agent_id), timezone.now(), *columns, "short_for", "short_description"
    )
    return [build_visible_tool(*row) for row in rows if row[0] not in local]


def build_visible_tool(  # noqa: PLR0917 - the columns of a row
    server_id: str,
    name: str,
    title: str | None,
    description: str | None,
    input_schema: Any,
    output_schema: Any,
    annotations: Any,
    definition_hash: str,
    short_for: str | None,
    short_description: str | None,
) -> VisibleTool:
    shown_text = (
        short_description if short_description is not None and short_for == definition_hash else description
    )
    definition = {
        "name": f"{name_in_calls(server_id)}__{name}",
        "title": title,
        "description": shown_text,
        "inputSchema": input_schema or {"type": "object"},
        "outputSchema": output_schema,
        "annotations": annotations,
    }
    tokens = estimate_tokens_of_definition(
        {key: value for key, value in definition.items() if value is not None}
    )
    return VisibleTool(server_id, name, shown_text or "", tokens)


def build_listing_choices_with_sizes(
    tools: list[VisibleTool], chosen: set[tuple[str, str]]
) -> list[ListingChoice]:
    every = sum(tool.tokens for tool in tools)
    chosen_tokens = [tool.tokens for tool in tools if (tool.server_id, tool.name) in chosen]
    sizes = {
        ListedTools.ALL: (len(tools), every),
        ListedTools.CHOSEN: (len(chosen_tokens), sum(chosen_tokens)),
        ListedTools.SEARCH: (len(SEARCH_TOOLS), sum(map(estimate_tokens_of_definition, SEARCH_TOOLS))),
    }
    return [
        ListingChoice(listed.value, str(listed.label), ABOUT[listed], number, tokens, max(0, every - tokens))
        for listed, (number, tokens) in sizes.items()
    ]


@require_http_methods(["GET", "HEAD"])
@require_viewer_role
def show_listed_tools(request: HtmxHttpRequest) -> HttpResponse:
    """Show which tools an agent's model gets, and how much of its context each choice would take."""
    agent_id = request.GET.get("agent", "").replace("\0", "").strip()
    shown_tools = load_tool_listing_setting(agent_id)
    return render_listed_tools(request, agent_id, shown_tools.listed.value, set(shown_tools.chosen))


def render_listed_tools(
    request: HtmxHttpRequest, agent_id: str, listed: str, chosen: set[tuple[str, str]], error: str = ""
) -> HttpResponse:
    tools = find_tools_served_to_agent(agent_id) if agent_id else []
    servers: dict[str, list[VisibleTool]] = {}
    for tool in tools[:MAX_TOOLS_ON_PAGE]:
        servers.setdefault(tool.server_id, []).append(tool)
    choices, labels = build_listing_choices_with_sizes(tools, chosen), agent_labels_by_id()
    context = {
        "agent": agent_id,
        "agent_label": labels.get(agent_id, agent_id),
        "agents": [(name, labels.get(name, name)) for name in list_agent_ids_including_unknown()],
        "listed": listed,
        "choices": choices,
        "current": next((choice for choice in choices if choice.value == listed), None),
        "servers": [
            (server_id, of_server, sum((tool.server_id, tool.name) in chosen for tool in of_server))
            for server_id, of_server in servers.items()
        ],
        "chosen": {encode_tool_choice(*pair) for pair in chosen},
        "more": max(0, len(tools) - MAX_TOOLS_ON_PAGE),
        "row": AgentToolListing.objects.filter(pk=agent_id).first(),
        "fault": error,
    }
    return render(request, "mcp/shown.html", context, status=422 if error else 200)


@require_POST
@require_admin
def save_listed_tools(request: HtmxHttpRequest) -> HttpResponse:
    """Save which tools an agent's model gets."""
    agent_id, listed = request.POST.get("agent", ""), request.POST.get("listed", "")
    chosen = parse_chosen_server_tool_pairs(request.POST.getlist("tool"))
    try:
        shown_tools.set_tools_visible_to_agent(
            agent_id, listed, chosen, actor=person_actor(request.user), now=timezone.now()
        )
    except SignalboxError as refusal:
        return render_listed_tools(request, agent_id.replace("\0", ""), listed, chosen, str(refusal.detail))
    messages.success(request, "Saved. The agent sees the change when it lists its tools again.")
    return redirect(f"{reverse('mcp:shown')}?{urlencode({'agent': agent_id})}")


def parse_chosen_server_tool_pairs(values: list[str]) -> set[tuple[str, str]]:
    """Return the servers and tools of a form; invalid values are ignored."""
    pairs = []
    for value in values[: 2 * shown_tools.MAX_CHOSEN_TOOLS]:
        with contextlib.suppress(ValueError, RecursionError):
            pairs.append(json.loads(value))
    return set(filter_valid_server_tool_pairs(pairs))


def encode_tool_choice(server_id: str, name: str) -> str:
    """Return a server and a tool as a form value, which `parse_chosen_server_tool_pairs` reads."""
    return json.dumps([server_id, name])


@require_POST
@declare_page_of_form_view("mcp:list")
@require_admin
def save_short_tool_description_view(request: HtmxHttpRequest) -> HttpResponse:
    """Save a short description that agents get instead of a tool's own."""
    server, tool = request.POST.get("server", ""), request.POST.get("tool", "")
    text = request.POST.get("description", "")
    with refusals.add_refusal_message_during_block(request):
        shown_tools.set_tool_description_override(
            server,
            tool,
            text,
            seen_version=request.POST.get("seen", ""),
            actor=person_actor(request.user),
            now=timezone.now(),
        )
        messages.success(
            request,
            "Agents are shown this description."
            if text.strip()
            else "Agents are shown the server's description.",
        )
    return redirect(f"{reverse('mcp:tool')}?{urlencode({'server': server, 'tool': tool})}")
