"""Tool collections: the tools of each one, and the URL at which agents find them."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from coordinator.actions.mcp import tool_collections
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST, require_safe
from coordinator.mcp.gateway.call_limits import WHOLE_SERVER
from coordinator.mcp.gateway.tool_search import filter_valid_server_tool_pairs
from coordinator.mcp.servers.names import COLLECTION_PREFIX, ServerTool
from coordinator.models import McpServer, McpTool, ToolCollection
from dashboard.frame import form_refusals as refusals
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_admin, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.mcp.views.shown_tools import (
    MAX_TOOLS_ON_PAGE,
    encode_tool_choice,
    parse_chosen_server_tool_pairs,
)


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """A collection in the list."""

    name: str
    description: str
    tools: int
    servers: int
    address: str


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """A checkbox for a tool, or for all tools of a server."""

    server_id: str
    name: str
    description: str
    is_chosen: bool
    is_missing: bool = False  # chosen, but not registered now

    @property
    def form_value(self) -> str:
        """Return the value of the tool's checkbox."""
        return encode_tool_choice(self.server_id, self.name)


@dataclass(frozen=True, slots=True)
class ServerChoices:
    """The checkboxes of one server: one for all its tools, and one for each."""

    server_id: str
    whole_server: ToolChoice
    tools: list[ToolChoice]

    @property
    def chosen_count(self) -> int:
        """Return how many of the tools are chosen individually."""
        return sum(tool.is_chosen for tool in self.tools)


def mcp_url_of_collection(name: str) -> str:
    """Return the URL of a collection for MCP clients."""
    return f"{settings.AGENT_URL}/mcp/{COLLECTION_PREFIX}{name}"


@require_safe
@require_viewer_role
def list_collections(request: HtmxHttpRequest) -> HttpResponse:
    """List all collections with their URLs."""
    rows = []
    for row in ToolCollection.objects.order_by("name"):
        pairs = filter_valid_server_tool_pairs(row.tools)
        servers = len({server_id for server_id, _ in pairs})
        rows.append(
            CollectionRow(row.name, row.description, len(pairs), servers, mcp_url_of_collection(row.name))
        )
    return render(request, "mcp/collections.html", {"rows": rows})


@require_safe
@require_viewer_role
def show_collection(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Show the tools of a collection, and how an agent connects to it."""
    row = find_collection_or_404(name)
    return render_tool_collection_form(
        request,
        row,
        row.description,
        filter_valid_server_tool_pairs(row.tools),
        tool_collections.compute_collection_version(row),
    )


def find_collection_or_404(name: str) -> ToolCollection:
    row = ToolCollection.objects.filter(pk=name).first()
    if row is None:
        raise Http404(f"There is no collection {name}.")
    return row


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def add_collection_view(request: HtmxHttpRequest) -> HttpResponse:
    """Show the form of a new collection, and create it when it is sent."""
    name, description = request.POST.get("name", "").strip(), request.POST.get("description", "")
    chosen, error = parse_chosen_server_tool_pairs(request.POST.getlist("tool")), ""
    if request.method == "POST" and "filter" not in request.POST:
        try:
            tool_collections.create_tool_collection(
                name,
                description=description,
                tools=chosen,
                actor=person_actor(request.user),
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            error = str(refusal.detail)
        else:
            messages.success(request, f"The collection {name} is added.")
            return redirect("mcp:collection", name)
    return render_tool_collection_form(request, None, description, frozenset(chosen), "", error, name)


@require_POST
@declare_page_of_form_view("mcp:collection")
@require_admin
def save_collection_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Save a collection. The form's filter button only shows other tools and saves nothing."""
    row, description = find_collection_or_404(name), request.POST.get("description", "")
    chosen, error = parse_chosen_server_tool_pairs(request.POST.getlist("tool")), ""
    version = request.POST.get("version", "")
    if "filter" not in request.POST:
        try:
            tool_collections.update_tool_collection(
                name,
                description=description,
                tools=chosen,
                seen_version=version,
                actor=person_actor(request.user),
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            error = str(refusal.detail)
        else:
            messages.success(request, "Saved. Agents see the change when they list their tools again.")
            return redirect("mcp:collection", name)
    return render_tool_collection_form(request, row, description, frozenset(chosen), version, error)


@require_POST
@declare_page_of_form_view("mcp:collection")
@require_admin
def delete_tool_collection_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Delete a collection."""
    with refusals.add_refusal_message_during_block(request):
        tool_collections.delete_tool_collection(
            name,
            seen_version=request.POST.get("version", ""),
            actor=person_actor(request.user),
            now=timezone.now(),
        )
        messages.success(request, f"The collection {name} was deleted. Its address serves nothing any more.")
        return redirect("mcp:collections")
    return redirect("mcp:collection", name)


def render_tool_collection_form(  # noqa: PLR0917 - the fields of the form
    request: HtmxHttpRequest,
    row: ToolCollection | None,
    description: str,
    chosen: frozenset[ServerTool],
    version: str,
    error: str = "",
    name: str = "",
) -> HttpResponse:
    """Render the form of a collection; of a new one if `row` is None."""
    query = request.POST.get("q", "").strip()[:200]
    choices = load_server_and_tool_choices(chosen, query)
    displayed = {(box.server_id, box.name) for group in choices for box in (group.whole_server, *group.tools)}
    context = {
        "row": row,
        "name": name,
        "description": description,
        "version": version,
        "q": query,
        "servers": choices,
        "hidden_tools": [encode_tool_choice(*pair) for pair in sorted(chosen - displayed)],
        "chosen_count": len(chosen),
        "address": mcp_url_of_collection(row.name) if row else "",
        "server_argument": f"{COLLECTION_PREFIX}{row.name}" if row else "",
        "fault": error,
    }
    return render(request, "mcp/collection.html", context, status=422 if error else 200)


def load_server_and_tool_choices(chosen: frozenset[ServerTool], query: str) -> list[ServerChoices]:
    """Return the checkboxes of all servers and of matching tools.

    Args:
        chosen: The chosen tools.
        query: Words that a tool's names or description must all contain; empty for all tools.
    """
    words = query.casefold().split()
    known_tools = McpTool.objects.filter(gone_at=None).order_by("server_id", "name")
    descriptions = {
        (server_id, name): description or ""
        for server_id, name, description in known_tools.values_list("server_id", "name", "description")
    }
    servers = set(McpServer.objects.exclude(name=None).values_list("name", flat=True))
    pairs = {pair for pair in descriptions if pair[0] in servers} | chosen
    pairs |= {(server_id, WHOLE_SERVER) for server_id in servers}
    fitting = [
        (server_id, name)
        for server_id, name in sorted(pairs)
        if all(
            word in f"{server_id} {name} {descriptions.get((server_id, name), '')}".casefold()
            for word in words
        )
    ]
    boxes: dict[str, list[ToolChoice]] = {}
    for pair in fitting[:MAX_TOOLS_ON_PAGE]:
        server_id, name = pair
        is_registered = server_id in servers and (name == WHOLE_SERVER or pair in descriptions)
        box = ToolChoice(server_id, name, descriptions.get(pair, ""), pair in chosen, not is_registered)
        boxes.setdefault(server_id, []).append(box)
    return [
        ServerChoices(
            server_id,
            ToolChoice(
                server_id, WHOLE_SERVER, "", (server_id, WHOLE_SERVER) in chosen, server_id not in servers
            ),
            [tool for tool in tools if tool.name != WHOLE_SERVER],
        )
        for server_id, tools in boxes.items()
    ]
