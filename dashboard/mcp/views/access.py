"""Access of agents to tools: editable sheets, previews, saving, explanations, access requests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.policy import grants
from coordinator.actions.policy.grants import StaleGrantEdit
from coordinator.errors import SignalboxError, UnprocessableRequest
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST, require_safe
from coordinator.identity.roles import ADMIN
from coordinator.lib import instants
from coordinator.mcp.servers import calls
from coordinator.models import Agent, Event, Grant, McpServer, McpTool, PermissionRequest
from coordinator.models.agent_names import agent_labels_by_id, find_linked_agent, link_reasons_by_agent_name
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.grants import access, access_preview
from coordinator.policy.grants import end_parsing as grant_lengths
from coordinator.policy.grants.access_requests import RequestedAccess
from coordinator.policy.grants.edits import GrantEdit
from dashboard.frame.guards import (
    render_role_refusal,
    require_approver,
    require_policy_editor,
    require_viewer_role,
)
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.mcp import access_sheet
from dashboard.mcp.access_sheet import CHOICES
from dashboard.templatetags.signalbox import count_of

MOST_SHOWN = 200  # verdicts that a preview lists; the others are counted


def read_text_parameter(request: HtmxHttpRequest, name: str) -> str:
    """Return a query or form parameter without spaces around it and without NUL, which databases refuse."""
    source = request.POST if request.method == "POST" else request.GET
    return source.get(name, "").replace("\0", "").strip()


@require_safe
@require_viewer_role
def show_access_sheet(request: HtmxHttpRequest) -> HttpResponse:
    """Show the slots of an agent, a server, a tool, or of one agent on one server."""
    agent, server, tool = (read_text_parameter(request, name) for name in ("agent", "server", "tool"))
    now, sheet = timezone.now(), None
    linked, labels = find_linked_agent(agent), agent_labels_by_id()
    if agent and server:
        sheet = access_sheet.load_agent_server_sheet(agent, server, now)
    elif agent:
        sheet = access_sheet.load_agent_sheet(agent, now)
    elif server:
        sheet = access_sheet.load_server_agents_sheet(server, tool or None, now)
    context = {
        "agent": agent,
        "server": server,
        "tool": tool,
        "sheet": sheet,
        "known_server": McpServer.objects.filter(pk=server).first(),
        "known_agent": Agent.objects.filter(pk=agent).first(),
        "linked": linked,
        "other_names": [name for name in link_reasons_by_agent_name(linked.agent_id) if name != agent]
        if linked
        else [],
        "agent_label": labels.get(agent, agent),
        "agents": [
            (name, labels.get(name, name)) for name in access_sheet.list_agent_ids_including_unknown()
        ],
        "servers": list(McpServer.objects.exclude(name=None).order_by("name").values_list("name", flat=True)),
        "choices": CHOICES,
        "default_end": grant_lengths.DEFAULT,
        "here": request.get_full_path(),
    }
    return render(request, "mcp/sheet.html", context)


@require_POST
@require_approver
def preview_grant_edits_view(request: HtmxHttpRequest) -> HttpResponse:
    """Show what the posted choices would change, with the button that saves them."""
    now = timezone.now()
    try:
        edits = parse_posted_grant_edits(request, now)
        preview = (
            access_preview.load_preview_of_grant_edits(edits, actor=person_actor(request.user), now=now)
            if edits
            else None
        )
    except SignalboxError as refusal:
        return render_grant_refusal(request, refusal)
    context = {
        "edits": edits[:MOST_SHOWN],
        "lines": access_sheet.load_edits_with_covered_grants(edits[:MOST_SHOWN], now),
        "more": max(0, len(edits) - MOST_SHOWN),
        "packed": access_sheet.serialize_grant_edits(edits),
        "preview": preview,
        "agent_labels": agent_labels_by_id(),
        "back": find_return_url(request),
        "number": len(edits),
        "zone": access_sheet.time_zone_of_posted_form(request.POST),
    }
    return render(request, choose_page_or_fragment_template(request, "preview"), context)


@require_safe
@require_approver
def show_exact_grant_end(request: HtmxHttpRequest) -> HttpResponse:
    """Return the exact time that the typed end of a grant or approval means, or why it is invalid.

    The fragment has the field `shown_end`, which posts the shown end with the form.
    """
    now, zone = timezone.now(), access_sheet.time_zone_of_posted_form(request.GET)
    text = request.GET.get("until", "")
    context: dict[str, object] = {"zone": zone, "form_id": request.GET.get("form", "")}
    parse_end = (
        grant_lengths.parse_approval_end
        if "approval" in request.GET
        else grant_lengths.parse_optional_grant_end
    )
    try:
        end = parse_end(text, now, zone)
    except SignalboxError as refusal:
        context["fault"] = refusal.detail
    else:
        context["end"] = end
        context["shown_end"] = grant_lengths.serialize_shown_end(text, end) if end else ""
    return render(request, "mcp/_exact_end.html", context)


def parse_posted_grant_edits(request: HtmxHttpRequest, now: datetime) -> list[GrantEdit]:
    """Return the edits of a sheet, or of cells chosen in the matrix.

    Raises UnprocessableRequest if a server is unknown.
    """
    form = request.POST
    edits = access_sheet.parse_sheet_edits(form, now)
    mcp_server_rows = set(McpServer.objects.exclude(name=None).values_list("name", flat=True))
    if unknown := {edit.server_id for edit in edits} - mcp_server_rows:
        raise UnprocessableRequest(f"There is no MCP server {', '.join(sorted(unknown))}. Add it first.")
    return access_sheet.copy_edits_filling_missing_versions(edits)


@require_POST
@require_policy_editor
def save_grant_edits_view(request: HtmxHttpRequest) -> HttpResponse:
    """Save the previewed changes in one transaction.

    If a slot changed meanwhile, show both versions instead.
    """
    now, edits = timezone.now(), []
    try:
        edits = access_sheet.deserialize_grant_edits(request.POST.get("edits", ""))
        done = grants.apply_grant_edits(edits, actor=person_actor(request.user), now=now)
    except StaleGrantEdit as stale:
        grants.record_refused_grant_edits(edits, stale, actor=person_actor(request.user), now=now)
        context = {"clashes": stale.clashes, "back": find_return_url(request), "count": len(stale.clashes)}
        return render(request, "mcp/clash.html", context, status=409)
    except SignalboxError as refusal:
        grants.record_refused_grant_edits(edits, refusal, actor=person_actor(request.user), now=now)
        return render_grant_refusal(request, refusal)
    message = (
        "There was nothing to change." if not done else f"Saved: {count_of(len(done), 'grant')} changed."
    )
    messages.success(request, message)
    return redirect(find_return_url(request))


def find_return_url(request: HtmxHttpRequest) -> str:
    back = request.POST.get("back", "")
    if url_has_allowed_host_and_scheme(back, allowed_hosts=None) and back.startswith("/ui/"):
        return back
    return reverse("mcp:matrix")


def choose_page_or_fragment_template(request: HtmxHttpRequest, name: str) -> str:
    return f"mcp/_{name}.html" if wants_fragment(request) else f"mcp/{name}.html"


def render_grant_refusal(request: HtmxHttpRequest, refusal: SignalboxError) -> HttpResponse:
    context = {"refusal": str(refusal.detail), "back": find_return_url(request)}
    status = refusal.status if refusal.status in (409, 422) else 422
    return render(request, choose_page_or_fragment_template(request, "refused"), context, status=status)


@require_safe
@require_viewer_role
def explain_access(request: HtmxHttpRequest) -> HttpResponse:
    """Explain why an agent may or may not call a tool: all grants in order, and the one that decided.

    Without a tool it is about the server as a whole: its resources, prompts and sampling.
    """
    agent, server, tool = (read_text_parameter(request, name) for name in ("agent", "server", "tool"))
    now, text_parameter = timezone.now(), read_text_parameter(request, "at")
    at = (
        instants.parse_instant_or_none(text_parameter)
        if "+" in text_parameter or text_parameter.endswith("Z")
        else instants.parse_instant_or_none(f"{text_parameter}:00")
    )
    context: dict[str, object] = {
        "agent": agent,
        "server": server,
        "tool": tool,
        "at": at,
        "now": now,
        "agent_labels": agent_labels_by_id(),
    }
    if agent and server:
        verdict = access.resolve_tool_access(agent, server, tool, now, at=at)
        context |= {
            "verdict": verdict,
            "source": access_sheet.describe_verdict_source(verdict),
            "steps": list_access_decision_steps(
                agent, server, tool, verdict, at or now, past=at is not None and at < now
            ),
            "known_server": McpServer.objects.filter(pk=server).first(),
            "known_tool": McpTool.objects.filter(server_id=server, name=tool).first(),
            "target": f"{agent} {server} {tool}",
            "server_target": f"{agent} {server} *",
            "odd_at": bool(text_parameter) and at is None,
        }
    context |= {
        "agents": access_sheet.list_agent_ids_including_unknown() if not wants_fragment(request) else [],
        "known_agent": Agent.objects.filter(pk=agent).exists(),
        "back": request.htmx.current_url_abs_path if wants_fragment(request) else request.get_full_path(),
        "slot": json.dumps([agent, server, tool, access_sheet.CHOICE_OF_NO_SHEET, None]),
    }
    return render(request, choose_page_or_fragment_template(request, "why"), context)


def list_access_decision_steps(
    agent: str, server: str, tool: str, verdict: access.Verdict, at: datetime, *, past: bool
) -> list[dict[str, object]]:
    """Return the grants of the tool and of the server, marking the kind and the row that decided."""
    slots = grants.load_grant_slots([agent], [server])
    decided = verdict.grant.id if verdict.grant else None
    return [
        {
            "kind": kind,
            "decides": verdict.source == source,
            "rows": [
                {
                    "row": row,
                    "decides": row.pk == decided,
                    "live": access_sheet.build_grant_row_from_model(row).is_live(at, past=past),
                    "faults": access.find_grant_field_problems(row),
                }
                for row in reversed(slots.get((agent, server, name), []))
            ][:20],
        }
        for kind, name, source in (
            ("tool", tool, access.TOOL_GRANT),
            ("server", None, access.SERVER_GRANT),
        )
        if kind == "server" or tool
    ]


@dataclass(frozen=True, slots=True)
class WantedToolCall:
    """The call for which access is requested.

    It is named directly, or by the event of a call (`event`), as timelines link to it.
    """

    agent: str
    server: str
    tool: str
    session: str
    event: int | None


@require_http_methods(["GET", "HEAD", "POST"])
@require_viewer_role
def request_tool_access_view(request: HtmxHttpRequest) -> HttpResponse:
    """Show and send a request for access to a tool. If an approver approves it, the grant is created."""
    wanted_tool_call, error = parse_wanted_tool_call(request), ""
    if request.method == "POST":
        try:
            access_request = create_request_for_wanted_call(request, wanted_tool_call)
        except SignalboxError as refusal:
            error = str(refusal.detail)
        else:
            messages.success(
                request, "The request was sent. If an approver approves it, the grant is created."
            )
            return redirect("approvals:detail", access_request.request_id)
    names_tool = wanted_tool_call.agent and wanted_tool_call.server and wanted_tool_call.tool
    now = timezone.now()
    context = {
        "wanted": wanted_tool_call,
        "fault": error,
        "verdict": access.resolve_tool_access(
            wanted_tool_call.agent, wanted_tool_call.server, wanted_tool_call.tool, now
        )
        if names_tool
        else None,
        "slot": (wanted_tool_call.agent, wanted_tool_call.server, wanted_tool_call.tool),
        "why": read_text_parameter(request, "why"),
        "scope": read_text_parameter(request, "scope") or ("tool" if wanted_tool_call.tool else "server"),
        "agents": access_sheet.list_agent_ids_including_unknown(),
        "servers": list(McpServer.objects.exclude(name=None).order_by("name").values_list("name", flat=True)),
    }
    return render(request, "mcp/ask.html", context, status=422 if error else 200)


def parse_wanted_tool_call(request: HtmxHttpRequest) -> WantedToolCall:
    agent, server, tool, session = (
        read_text_parameter(request, name) for name in ("agent", "server", "tool", "session")
    )
    number = read_text_parameter(request, "event")
    event = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        event = Event.objects.select_related("session").filter(pk=int(number)).first()
    if event is None:
        return WantedToolCall(agent, server, tool, session, None)
    name = event.session.agent_name or ""
    mcp_server_rows = McpServer.objects.exclude(name=None).values_list("name", flat=True)
    called = calls.find_called_server_and_tool(event.tool_name or "", mcp_server_rows) or ("", "")
    linked = find_linked_agent(name)
    return WantedToolCall(
        agent or (linked.agent_id if linked else name),
        server or called[0],
        tool or called[1],
        event.session_id,
        event.pk,
    )


def create_request_for_wanted_call(
    request: HtmxHttpRequest, wanted_call: WantedToolCall
) -> PermissionRequest:
    scope = None if read_text_parameter(request, "scope") == "server" else wanted_call.tool
    if not wanted_call.agent or not wanted_call.server or scope == "":
        raise UnprocessableRequest("Name the agent, the server and the tool.")
    if not Agent.objects.filter(pk=wanted_call.agent).exists():
        raise UnprocessableRequest(f"There is no agent {wanted_call.agent}. An admin must add it first.")
    if not McpServer.objects.filter(pk=wanted_call.server).exists():
        raise UnprocessableRequest(
            f"There is no MCP server {wanted_call.server}. An admin must add it first."
        )
    wish = RequestedAccess(wanted_call.agent, wanted_call.server, scope)
    ask = NewPermissionRequest(
        wish.permission_subject,
        justification=read_text_parameter(request, "why"),
        session_id=wanted_call.session or None,
        agent_id=wanted_call.agent,
        event_id=wanted_call.event,
    )
    return approvals.request_permission(ask, actor=person_actor(request.user), now=timezone.now()).request


@require_safe
@require_viewer_role
def show_grant(request: HtmxHttpRequest, grant_id: int) -> HttpResponse:
    """Show one grant: what it permits, its period, who made it, and how it ended."""
    row, now = get_object_or_404(Grant, pk=grant_id), timezone.now()
    ended = row.metadata.get("ended") if isinstance(row.metadata, dict) else None
    slot = grants.load_slot_grants(row)
    current_rows = [other for other in slot if grants.is_grant_current(other, now)]
    context = {
        "row": row,
        "agent_labels": agent_labels_by_id(),
        "version": grants.compute_grant_slot_version(slot),
        "beneath": [other for other in current_rows if other.pk in access.grant_ids_overridden_by_row(row)],
        "above": [other for other in current_rows if row.pk in access.grant_ids_overridden_by_row(other)],
        "live": access_sheet.build_grant_row_from_model(row).is_live(now),
        "faults": access.find_grant_field_problems(row),
        "ended": ended if isinstance(ended, dict) else None,
        # A grant on top of another one is temporary, so the form's default must not make it permanent.
        "default_end": "1 hour" if access.grant_ids_overridden_by_row(row) else grant_lengths.RENEWAL,
        "target": f"{row.agent_id} {row.server_id} {row.tool_name or '*'}",
        "known_server": McpServer.objects.filter(pk=row.server_id).exists(),
    }
    return render(request, "mcp/grant.html", context)


@require_POST
@require_approver
def revoke_mcp_grant_view(request: HtmxHttpRequest, grant_id: int) -> HttpResponse:
    permission = Grant.objects.filter(pk=grant_id).values_list("permission", flat=True).first()
    if permission not in (None, Grant.Permission.ALLOW) and not deciders.can_user_edit_policy(request.user):
        # Revoking it may permit calls, by a wider grant or by the default policy.
        return render_role_refusal(request, ADMIN, deciders.ADMINS_EDIT)
    try:
        grants.revoke_grant(
            grant_id,
            actor=person_actor(request.user),
            now=timezone.now(),
            reason=read_text_parameter(request, "why")[:2000] or None,
            seen_version=request.POST.get("version") or None,
        )
    except SignalboxError as refusal:
        messages.error(request, refusal_message(refusal))
    else:
        messages.success(request, "Revoked.")
    return redirect(find_return_url(request) if request.POST.get("back") else reverse("mcp:grants"))


@require_POST
@require_policy_editor
def extend_grant_view(request: HtmxHttpRequest, grant_id: int) -> HttpResponse:
    now = timezone.now()
    try:
        done = grants.prolong_grant(
            grant_id,
            until=grant_lengths.parse_optional_grant_end(
                request.POST.get("until", grant_lengths.RENEWAL),
                now,
                access_sheet.time_zone_of_posted_form(request.POST),
                request.POST.get("shown_end", ""),
            ),
            actor=person_actor(request.user),
            now=now,
            reason=read_text_parameter(request, "why") or None,
            seen_version=request.POST.get("version") or None,
        )
    except SignalboxError as refusal:
        messages.error(request, refusal_message(refusal))
        return redirect("mcp:grant", grant_id)
    messages.success(request, "The grant has its new end." if done else "The grant already has this end.")
    after = done[0].after if done else None
    return redirect("mcp:grant", after["grant_id"] if after else grant_id)


def refusal_message(refusal: SignalboxError) -> str:
    return refusal.detail["message"] if isinstance(refusal.detail, dict) else str(refusal.detail)
