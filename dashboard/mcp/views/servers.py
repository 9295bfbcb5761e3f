"""MCP servers: the list, one server with its tools, and the forms to add, edit and delete one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models import Count, Q
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.text import get_text_list

from coordinator.actions.mcp import mcp_servers
from coordinator.actions.mcp import mcp_tools as tool_actions
from coordinator.actions.policy.tool_rules import try_add_tool_denial_rule
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.errors import Forbidden, NotFound, SignalboxError, UnprocessableRequest
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST, require_safe
from coordinator.mcp.gateway.binding import qualified_tool_name
from coordinator.mcp.gateway.injection_signs import find_injection_signs_in_json
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.isolation.process_isolation import Isolation
from coordinator.mcp.servers import calls, commands, discovery
from coordinator.mcp.servers import tools as mcp_tools
from coordinator.mcp.servers.names import PREFIX, name_in_calls
from coordinator.models import AcceptedOnlyServer, Grant, McpServer, McpTool, McpUpstream
from coordinator.models.mcp import DefaultPolicy
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.grants import access
from coordinator.secrets import mask_command_arguments
from coordinator.sessions.agent_programs import AGENT_TITLES
from dashboard.frame import form_refusals as refusals
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_admin, require_approver, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.mcp import call_charts, definition_history, gateway_parts, limit_parts, sign_in_parts
from dashboard.text import diffs

POLICIES = (
    (DefaultPolicy.OPT_IN.value, "Deny"),
    (DefaultPolicy.OPT_OUT.value, "Allow"),
)
MOST_AGENTS_NAMED = 8  # agents that a page names of those that lose access with a server
NOTHING_NEW = "No changes: all tools are already known."
LEFT_OUT_SHOWN_FOR = timedelta(days=2)  # an audit entry is written once a day as long as tools are rejected
MOST_TOOLS_NAMED = 6  # changed tools that a page names


class McpServerEditForm(forms.Form):
    """The form of a server. Each line is an argument, so that an argument can contain spaces."""

    name = forms.CharField(max_length=200, help_text="As agents call it: mcp__<em>name</em>__tool.")
    command = forms.CharField(max_length=500, help_text="The program, without arguments.")
    args = forms.CharField(
        required=False,
        label="Arguments",
        widget=forms.Textarea({"rows": 4, "spellcheck": "false", "class": "mono"}),
        help_text="One argument per line; spaces are kept. Do not put secrets here: enter credentials on the "
        "server's page.",
    )
    description = forms.CharField(required=False, max_length=2000)
    default_policy = forms.ChoiceField(
        choices=POLICIES, widget=forms.RadioSelect, label="Calls without a grant"
    )
    script_content = forms.CharField(
        required=False,
        label="Script",
        widget=forms.Textarea({"rows": 4, "spellcheck": "false", "class": "mono"}),
        help_text="The server's source code, if it was generated. Signalbox stores it but never runs it.",
    )
    is_active = forms.BooleanField(required=False, label="Active")
    version = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, server: McpServer | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if server is not None:
            del self.fields["name"]
            if server.default_policy not in DefaultPolicy.values:
                stored_choice = (server.default_policy, f"{server.default_policy!r}, as stored: denies")
                self.fields["default_policy"].choices = [stored_choice, *POLICIES]  # type: ignore[attr-defined]

    def mcp_server_columns_to_save(self, server: McpServer | None = None) -> dict[str, Any]:
        """Return the columns for the action. An unchanged unknown default policy is left out."""
        columns = dict(self.cleaned_data)
        columns.pop("version", None)
        columns.pop("name", None)
        columns["args"] = [line.rstrip("\r") for line in columns["args"].split("\n") if line.strip()]
        for name in ("description", "script_content"):
            columns[name] = columns[name] or None
        if server is not None and columns["default_policy"] == server.default_policy:
            del columns["default_policy"]
        return columns


@dataclass(frozen=True, slots=True)
class McpServerRow:
    server: McpServer
    tools: int
    changed: int
    needed_sign_ins: int
    allowed: int
    approval_needed: int
    denied: int

    @property
    def has_unknown_policy(self) -> bool:
        """Whether the stored policy is unknown, so that it denies."""
        return self.server.default_policy not in DefaultPolicy.values


@require_safe
@require_viewer_role
def list_mcp_servers_view(request: HtmxHttpRequest) -> HttpResponse:
    """List all servers with their policy, tools and grants in force."""
    search_text = request.GET.get("q", "").replace("\0", "").strip()
    servers = McpServer.objects.order_by("-is_active", "name")
    for word in search_text.split():
        servers = servers.filter(
            Q(name__icontains=word) | Q(description__icontains=word) | Q(command__icontains=word)
        )
    template = "mcp/_servers.html" if wants_fragment(request) else "mcp/list.html"
    return render(request, template, {"rows": load_mcp_server_rows(list(servers)), "q": search_text})


@require_safe
@require_viewer_role
def list_unknown_mcp_servers_view(request: HtmxHttpRequest) -> HttpResponse:
    """Return the recently called servers that are not registered. The list's page loads them separately."""
    mcp_server_rows = list(McpServer.objects.exclude(name=None).values_list("name", flat=True))
    unknown_server_call_count = calls.count_unknown_server_calls(
        timezone.now() - mcp_tools.SEEN_WITHIN, mcp_server_rows
    )
    template = "mcp/_unknown.html" if wants_fragment(request) else "mcp/unknown.html"
    return render(request, template, {"found": unknown_server_call_count})


def load_mcp_server_rows(servers: list[McpServer]) -> list[McpServerRow]:
    listed = McpTool.objects.filter(gone_at=None).values_list("server_id", "definition_hash", "accepted_hash")
    tools: dict[str, list[bool]] = {}
    for server_id, present, accepted in listed:
        tools.setdefault(server_id, []).append(present != accepted)
    grant_rows = (
        Grant.objects.not_ended(timezone.now())
        .exclude(entry_type="capability")
        .values_list("server_id")
        .annotate(
            allowed=Count("pk", filter=Q(permission="allow")),
            approval_needed=Count("asking"),
            rows=Count("pk"),
        )
    )
    grant_counts = {
        server_id: (allowed, ask_count, rows - allowed - ask_count)
        for server_id, allowed, ask_count, rows in grant_rows
    }
    needed_sign_ins = sign_in_parts.count_needed_sign_ins_by_server()
    return [
        McpServerRow(
            server,
            len(tools.get(server.name, [])),
            sum(tools.get(server.name, [])),
            needed_sign_ins.get(server.name, 0),
            *grant_counts.get(server.name, (0, 0, 0)),
        )
        for server in servers
    ]


@dataclass(frozen=True, slots=True)
class McpToolRow:
    """One tool of a server: its registration, its grants, and how often it was called."""

    name: str
    tool: McpTool | None
    summary: access.ToolSummary
    calls: int


def find_mcp_server_or_404(name: str) -> McpServer:
    """Return the server, or raise Http404."""
    server = McpServer.objects.filter(pk=name).first()
    if server is None:
        raise Http404(f"There is no MCP server {name}.")
    return server


@require_safe
@require_viewer_role
def show_mcp_server(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Show a server: its settings, its tools, and the grants of each tool."""
    server, now = find_mcp_server_or_404(name), timezone.now()
    called: dict[str, int] = {}
    for call_count in calls.list_tool_call_counts_since(now - mcp_tools.SEEN_WITHIN, [name]):
        called[call_count.tool_name] = called.get(call_count.tool_name, 0) + call_count.count
    known_tools = {tool.name: tool for tool in McpTool.objects.filter(server_id=name)}
    lines = access.summarize_grants_of_server_tools(name, now, called)
    rows = [
        McpToolRow(line.tool, known_tools.get(line.tool), line, called.get(line.tool, 0)) for line in lines
    ]
    args = server.args if isinstance(server.args, list) else []
    changed = [row for row in rows if row.tool and row.tool.has_undecided_definition_change]
    context = {
        "server": server,
        "rows": rows,
        "args": mask_command_arguments(map(str, args)),
        "called": f"{PREFIX}{name_in_calls(name)}__",
        "unknown_servers": get_text_list(
            [AGENT_TITLES[dialect.name] for dialect in DIALECTS.values() if not dialect.has_mcp_server_names],
            "and",
        ),
        "odd_args": None if isinstance(server.args, list) else server.args,
        "odd_policy": server.default_policy not in DefaultPolicy.values,
        **gateway_parts.build_server_gateway_context(server, now),
        **sign_in_parts.build_sign_in_context(server, request.user),
        **limit_parts.build_limits_context(name, "", now),
        "accepted_only": AcceptedOnlyServer.objects.filter(pk=name).exists(),
        "changed": changed,
        "changed_named": changed[:MOST_TOOLS_NAMED],
        "changed_unnamed": len(changed[MOST_TOOLS_NAMED:]),
        "left_out": build_rejected_tools_context(name, now),
        "can_discover": server.command in settings.DISCOVERY_COMMANDS,
        "grants": Grant.objects.not_ended(now)
        .filter(server_id=name)
        .exclude(entry_type="capability")
        .count(),
    }
    template = "mcp/_server.html" if wants_fragment(request) else "mcp/server.html"
    return render(request, template, context)


def build_rejected_tools_context(server_id: str, now: datetime) -> dict[str, Any] | None:
    """Return the tools that were rejected from the server's list in the last two days, with reasons.

    None if there were none.
    """
    entry = tool_actions.find_last_omitted_tools_entry(server_id)
    if entry is None or not isinstance(entry.metadata, dict) or entry.timestamp < now - LEFT_OUT_SHOWN_FOR:
        return None
    tools = entry.metadata.get("tools", [])
    return {
        "tools": tools,
        "more": entry.metadata.get("count", 0) - len(tools),
        "cut_off": entry.metadata.get("cut_off", ""),
        "at": entry.timestamp,
    }


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def add_mcp_server_view(request: HtmxHttpRequest) -> HttpResponse:
    initial = {"default_policy": "opt-in", "is_active": True, "name": request.GET.get("name", "")}
    form = McpServerEditForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        try:
            name = form.cleaned_data["name"]
            mcp_servers.create_mcp_server(
                name,
                actor=person_actor(request.user),
                now=timezone.now(),
                **form.mcp_server_columns_to_save(),
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            messages.success(request, f"{name} is added. Next, discover its tools.")
            return redirect("mcp:server", name)
    return render(request, "mcp/edit.html", {"form": form}, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def edit_mcp_server(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Edit a server. If another person changed it meanwhile, nothing is saved and the form says so."""
    server = find_mcp_server_or_404(name)
    form = McpServerEditForm(request.POST or None, initial=build_server_form_initial(server), server=server)
    if request.method == "POST" and form.is_valid():
        try:
            mcp_servers.update_mcp_server(
                name,
                form.mcp_server_columns_to_save(server),
                actor=person_actor(request.user),
                seen_version=form.cleaned_data["version"] or None,
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            messages.success(request, "Saved.")
            return redirect("mcp:server", name)
    context = {"form": form, "server": server}
    return render(request, "mcp/edit.html", context, status=422 if form.errors else 200)


def build_server_form_initial(server: McpServer) -> dict[str, Any]:
    args = server.args if isinstance(server.args, list) else []
    return {
        "command": server.command,
        "args": "\n".join(map(str, args)),
        "description": server.description,
        "default_policy": server.default_policy,
        "script_content": server.script_content,
        "is_active": server.is_active,
        "version": mcp_servers.compute_server_version(server),
    }


@require_POST
@declare_page_of_form_view("mcp:server")
@require_admin
def enable_or_disable_mcp_server(request: HtmxHttpRequest, name: str) -> HttpResponse:
    active = request.POST.get("active") == "on"
    try:
        mcp_servers.update_mcp_server(
            name, {"is_active": active}, actor=person_actor(request.user), now=timezone.now()
        )
    except SignalboxError as refusal:
        messages.error(request, str(refusal.detail))
    return redirect("mcp:server", name)


@require_POST
@declare_page_of_form_view("mcp:server")
@require_approver
def set_accepted_tools_only_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Set whether agents get changed tools of the server only after a person has accepted the change."""
    is_wanted = request.POST.get("accepted_only") == "on"
    with refusals.add_refusal_message_during_block(request):
        mcp_servers.set_accepted_tools_only(
            name, is_wanted, actor=person_actor(request.user), now=timezone.now()
        )
    return redirect("mcp:server", name)


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def delete_mcp_server_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Show what is deleted with a server, and delete it when the person confirms."""
    server = find_mcp_server_or_404(name)
    if request.method == "POST":
        try:
            version = request.POST.get("version") or None
            reason = request.POST.get("reason", "").strip()[:2000] or None
            mcp_servers.delete_server_with_grants(
                name,
                actor=person_actor(request.user),
                reason=reason,
                seen_version=version,
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            messages.error(request, str(refusal.detail))
            return redirect("mcp:server", name)
        messages.success(request, f"{name} was deleted with its tools and grants.")
        return redirect("mcp:list")
    grants = Grant.objects.not_ended(timezone.now()).filter(server_id=name).order_by("agent_id", "id")
    agents = sorted({row.agent_id for row in grants if row.permission == "allow"})
    context = {
        "server": server,
        "version": mcp_servers.compute_server_version(server),
        "taken": mcp_servers.count_server_dependents_by_kind([name]),
        "agents": agents,
        "agents_named": agents[:MOST_AGENTS_NAMED],
        "agents_unnamed": len(agents[MOST_AGENTS_NAMED:]),
    }
    return render(request, "mcp/delete.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def import_pasted_tools(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Import the tools of a pasted `tools/list` result."""
    server, error, text = find_mcp_server_or_404(name), "", request.POST.get("listing", "")
    if request.method == "POST":
        try:
            listing = mcp_tools.parse_pasted_tool_listing(text)
            tool_listing = tool_actions.store_tool_listing(
                name, listing, actor=person_actor(request.user), now=timezone.now()
            )
        except SignalboxError as refusal:
            error = str(refusal.detail)
        else:
            messages.success(request, describe_tool_changes(tool_listing))
            return redirect("mcp:server", name)
    context = {"server": server, "fault": error, "text": text}
    return render(request, "mcp/paste.html", context, status=422 if error else 200)


@require_POST
@declare_page_of_form_view("mcp:server")
@require_admin
def start_server_and_import_tools(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Start a stdio server briefly and import the tools that it lists."""
    server = find_mcp_server_or_404(name)
    with refusals.add_refusal_message_during_block(request):
        if not isinstance(server.args, list):
            raise UnprocessableRequest("The server's arguments are not a list. Edit them first.")
        listing = discovery.start_server_and_list_tools(
            server.command, [str(arg) for arg in server.args], stored_isolation_or_default(server)
        )
        tool_listing = tool_actions.store_tool_listing(
            name, listing, actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(request, describe_tool_changes(tool_listing))
    return redirect("mcp:server", name)


def stored_isolation_or_default(server: McpServer) -> Isolation:
    """Return the isolation that an admin set; the default if another program changed the command since."""
    upstream = McpUpstream.objects.filter(pk=server.name).first()
    is_accepted = upstream is not None and commands.has_admin_accepted_command(server, upstream)
    return isolation.build_isolation(upstream if is_accepted else None)


def describe_tool_changes(changes: tool_actions.ToolChanges) -> str:
    left_out = ""
    if changes.left_out:
        names = [tool.name for tool in changes.left_out[:MOST_TOOLS_NAMED]]
        more = len(changes.left_out) - len(names)
        left_out = f" Left out: {', '.join(names)}{f' and {more} more' if more else ''}."
    left_out += f" {changes.cut_off}" if changes.cut_off else ""
    if changes.has_no_changes:
        return f"No changes: all other tools are already known.{left_out}" if left_out else NOTHING_NEW
    parts = (
        ("new", changes.new),
        ("changed", changes.changed),
        ("gone", changes.gone),
        ("back again", changes.back),
    )
    return f"Tools imported: {', '.join(f'{len(names)} {word}' for word, names in parts if names)}.{left_out}"


def deny_tool_and_add_message(request: HtmxHttpRequest, server: str, tool: str, now: datetime) -> None:
    """Save a rule that denies the tool to all agents. Raises NotFound, Forbidden and UnprocessableRequest."""
    if not McpTool.objects.filter(server_id=server, name=tool).exists():
        raise NotFound("This tool no longer exists.")
    if not deciders.can_user_edit_policy(request.user):
        raise Forbidden(deciders.ADMINS_EDIT)
    reason = f"{tool} of {server} changed after somebody accepted it."
    is_new = try_add_tool_denial_rule(
        qualified_tool_name(server, tool), reason, actor=person_actor(request.user), now=now
    )
    messages.success(
        request,
        f"A rule denies {tool} to every agent."
        if is_new
        else f"A rule denied {tool} to every agent already.",
    )


@require_safe
@require_viewer_role
def show_mcp_tool(request: HtmxHttpRequest) -> HttpResponse:
    """Show one tool: its definition and, if it changed, the difference from the accepted one."""
    server, tool = request.GET.get("server", ""), request.GET.get("tool", "")
    row = McpTool.objects.filter(server_id=server, name=tool).first()
    if row is None:
        raise Http404(f"{server} lists no tool {tool}.")
    context = {
        "server": find_mcp_server_or_404(server),
        "tool": row,
        "definition": json.dumps(mcp_tools.build_definition_content(row), indent=2, ensure_ascii=False),
        "deny_changed": settings.DENY_CHANGED_TOOLS,
        **limit_parts.build_limits_context(server, tool, timezone.now()),
        "charts": call_charts.load_call_charts_or_none(server, timezone.now(), tool),
        "last_error": call_charts.find_last_error_by_tool({tool: qualified_tool_name(server, tool)}).get(
            tool
        ),
        "marks": find_injection_signs_in_json(mcp_tools.build_definition_content(row)),
        "accepted_only": AcceptedOnlyServer.objects.filter(pk=server).exists(),
        "difference": diff_tool_definitions(row)
        if row.has_undecided_definition_change or row.is_current_definition_declined
        else [],
        **definition_history.load_tool_history_context(row, request.GET.get("revision", "")),
    }
    return render(request, "mcp/tool.html", context)


def diff_tool_definitions(tool: McpTool) -> list[diffs.Marked]:
    """Return the diff from the accepted to the current definition, with the signs `-`, `+` or a space."""
    before, after = mcp_tools.accepted_and_current_definition_lines(tool)
    marked = diffs.diff_all_lines_or_none(before, after)
    return [*(("-", line) for line in before), *(("+", line) for line in after)] if marked is None else marked


@require_POST
@declare_page_of_form_view("mcp:list")
@require_approver
def decide_changed_tool(request: HtmxHttpRequest) -> HttpResponse:
    """Accept a changed definition, keep serving the accepted one, or deny the tool to all agents."""
    server, tool = request.POST.get("server", ""), request.POST.get("tool", "")
    choice, seen_digest = request.POST.get("do", "accept"), request.POST.get("seen", "")
    by, now = person_actor(request.user), timezone.now()
    with refusals.add_refusal_message_during_block(request):
        if choice == "accept":
            tool_actions.accept_tool_changes(
                server, [tool], actor=by, now=now, seen_version=seen_digest or None
            )
            messages.success(request, f"The new definition of {tool} is accepted.")
        elif choice == "keep":
            tool_actions.decline_change_keep_accepted_definition(
                server, tool, seen_version=seen_digest, actor=by, now=now
            )
            messages.success(request, f"Agents are shown the accepted definition of {tool}.")
        elif choice == "deny":
            deny_tool_and_add_message(request, server, tool, now)
        else:
            messages.error(request, "Choose what becomes of the changed tool.")
    return redirect(f"{reverse('mcp:tool')}?{urlencode({'server': server, 'tool': tool})}")
