"""Who may call what: sheets to edit, the preview of a change set, saving it, "why?", and asking for access."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from coordinator.actions import approvals, grants
from coordinator.actions.approvals import NewRequest
from coordinator.actions.grants import StaleEdit
from coordinator.errors import Invalid, SignalboxError
from coordinator.identity.actors import person
from coordinator.identity.roles import ADMIN
from coordinator.lib import instants
from coordinator.mcp import calls
from coordinator.models import Agent, Event, Grant, McpServer, McpTool, PermissionRequest
from coordinator.policy import access, access_preview, deciders, grant_lengths
from coordinator.policy.access_requests import WantedAccess
from coordinator.policy.edits import Edit
from dashboard.frame.guards import approver, policy_editor, refuse, viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.mcp import access_sheet
from dashboard.mcp.access_sheet import CHOICES
from dashboard.templatetags.signalbox import count_of

MOST_SHOWN = 200  # verdicts that a preview names one by one; the rest is counted


def _word(request: HtmxHttpRequest, name: str) -> str:
    """Return a query or form parameter as the database can take it."""
    source = request.POST if request.method == "POST" else request.GET
    return source.get(name, "").replace("\0", "").strip()


@require_safe
@viewer
def sheet(request: HtmxHttpRequest) -> HttpResponse:
    """Show the slots of an agent, a server, a tool, or of one agent on one server."""
    agent, server, tool = (_word(request, name) for name in ("agent", "server", "tool"))
    now, found = timezone.now(), None
    if agent and server:
        found = access_sheet.of_agent_on_server(agent, server, now)
    elif agent:
        found = access_sheet.of_agent(agent, now)
    elif server:
        found = access_sheet.of_server(server, tool or None, now)
    context = {
        "agent": agent,
        "server": server,
        "tool": tool,
        "sheet": found,
        "known_server": McpServer.objects.filter(pk=server).first(),
        "known_agent": Agent.objects.filter(pk=agent).first(),
        "agents": access_sheet.agent_ids(),
        "servers": list(McpServer.objects.exclude(name=None).order_by("name").values_list("name", flat=True)),
        "choices": CHOICES,
        "validities": grant_lengths.choices(grant_lengths.DEFAULT),
        "here": request.get_full_path(),
    }
    return render(request, "mcp/sheet.html", context)


@require_POST
@approver
def preview(request: HtmxHttpRequest) -> HttpResponse:
    """Show what the posted choices would change, with the button that saves them."""
    now = timezone.now()
    try:
        edits = _posted(request, now)
        shown = access_preview.preview(edits, by=person(request.user), now=now) if edits else None
    except SignalboxError as refusal:
        return _refused(request, refusal)
    context = {
        "edits": edits[:MOST_SHOWN],
        "lines": access_sheet.edit_lines(edits[:MOST_SHOWN], now),
        "more": max(0, len(edits) - MOST_SHOWN),
        "packed": access_sheet.packed(edits),
        "preview": shown,
        "back": _back(request),
        "number": len(edits),
    }
    return render(request, _part(request, "preview"), context)


def _posted(request: HtmxHttpRequest, now: datetime) -> list[Edit]:
    """Return the edits of a sheet, or of cells chosen in the matrix; servers that nobody knows are left out."""
    form = request.POST
    edits = access_sheet.edits_of(form, now)
    known = set(McpServer.objects.exclude(name=None).values_list("name", flat=True))
    if unknown := {edit.server_id for edit in edits} - known:
        raise Invalid(f"There is no MCP server {', '.join(sorted(unknown))}. Add it first.")
    return access_sheet.with_versions(edits)


@require_POST
@policy_editor
def save(request: HtmxHttpRequest) -> HttpResponse:
    """Save a previewed change set, all or nothing; a stale one is shown with both versions."""
    now, edits = timezone.now(), []
    try:
        edits = access_sheet.unpacked(request.POST.get("edits", ""))
        done = grants.apply(edits, by=person(request.user), now=now)
    except StaleEdit as stale:
        grants.record_refusal(edits, stale, by=person(request.user), now=now)
        context = {"clashes": stale.clashes, "back": _back(request), "count": len(stale.clashes)}
        return render(request, "mcp/clash.html", context, status=409)
    except SignalboxError as refusal:
        grants.record_refusal(edits, refusal, by=person(request.user), now=now)
        return _refused(request, refusal)
    words = "There was nothing to change." if not done else f"Saved: {count_of(len(done), 'grant')} changed."
    messages.success(request, words)
    return redirect(_back(request))


def _back(request: HtmxHttpRequest) -> str:
    back = request.POST.get("back", "")
    if url_has_allowed_host_and_scheme(back, allowed_hosts=None) and back.startswith("/ui/"):
        return back
    return reverse("mcp:matrix")


def _part(request: HtmxHttpRequest, name: str) -> str:
    return f"mcp/_{name}.html" if wants_fragment(request) else f"mcp/{name}.html"


def _refused(request: HtmxHttpRequest, refusal: SignalboxError) -> HttpResponse:
    context = {"refusal": str(refusal.detail), "back": _back(request)}
    status = refusal.status if refusal.status in (409, 422) else 422
    return render(request, _part(request, "refused"), context, status=status)


@require_safe
@viewer
def why(request: HtmxHttpRequest) -> HttpResponse:
    """Answer why an agent may or may not call a tool: every rule in its order, and the one that decided."""
    agent, server, tool = (_word(request, name) for name in ("agent", "server", "tool"))
    now, asked = timezone.now(), _word(request, "at")
    at = instants.parse(asked) if "+" in asked or asked.endswith("Z") else instants.parse(f"{asked}:00")
    context: dict[str, object] = {"agent": agent, "server": server, "tool": tool, "at": at, "now": now}
    if agent and server and tool:
        verdict = access.resolve(agent, server, tool, now, at=at)
        context |= {
            "verdict": verdict,
            "source": access_sheet.source_words(verdict),
            "steps": _steps(agent, server, tool, verdict, at or now, past=at is not None and at < now),
            "known_server": McpServer.objects.filter(pk=server).first(),
            "known_tool": McpTool.objects.filter(server_id=server, name=tool).first(),
            "target": f"{agent} {server} {tool}",
            "server_target": f"{agent} {server} *",
            "odd_at": bool(asked) and at is None,
        }
    context |= {"agents": access_sheet.agent_ids() if not wants_fragment(request) else []}
    return render(request, _part(request, "why"), context)


def _steps(
    agent: str, server: str, tool: str, verdict: access.Verdict, at: datetime, *, past: bool
) -> list[dict[str, object]]:
    """Return both kinds of grants with their rows; the row that decided is the verdict's own."""
    slots = grants.slots_of([agent], [server])
    decided = verdict.grant.id if verdict.grant else None
    return [
        {
            "kind": kind,
            "decides": verdict.source == source,
            "rows": [
                {
                    "row": row,
                    "decides": row.pk == decided,
                    "live": access_sheet.as_row(row).is_live(at, past=past),
                    "faults": access.faults_of(row),
                }
                for row in reversed(slots.get((agent, server, name), []))
            ][:20],
        }
        for kind, name, source in (
            ("tool", tool, access.TOOL_GRANT),
            ("server", None, access.SERVER_GRANT),
        )
    ]


@dataclass(frozen=True, slots=True)
class WantedCall:
    """What the page is asked about: by name, or by the event of a call (`event`), as timelines link to it."""

    agent: str
    server: str
    tool: str
    session: str
    event: int | None


@require_http_methods(["GET", "HEAD", "POST"])
@viewer
def ask(request: HtmxHttpRequest) -> HttpResponse:
    """Ask an approver for access to a tool, with everything filled in; approving creates the grant."""
    wanted, fault = _wanted(request), ""
    if request.method == "POST":
        try:
            asked = _request_access(request, wanted)
        except SignalboxError as refusal:
            fault = str(refusal.detail)
        else:
            messages.success(
                request, "The request was sent. If an approver approves it, the grant is created."
            )
            return redirect("approvals:detail", asked.request_id)
    named = wanted.agent and wanted.server and wanted.tool
    now = timezone.now()
    context = {
        "wanted": wanted,
        "fault": fault,
        "verdict": access.resolve(wanted.agent, wanted.server, wanted.tool, now) if named else None,
        "slot": (wanted.agent, wanted.server, wanted.tool),
        "why": _word(request, "why"),
        "scope": _word(request, "scope") or ("tool" if wanted.tool else "server"),
        "agents": access_sheet.agent_ids(),
        "servers": list(McpServer.objects.exclude(name=None).order_by("name").values_list("name", flat=True)),
    }
    return render(request, "mcp/ask.html", context, status=422 if fault else 200)


def _wanted(request: HtmxHttpRequest) -> WantedCall:
    agent, server, tool, session = (_word(request, name) for name in ("agent", "server", "tool", "session"))
    number = _word(request, "event")
    event = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        event = Event.objects.select_related("session").filter(pk=int(number)).first()
    if event is None:
        return WantedCall(agent, server, tool, session, None)
    name = event.session.agent_name or ""
    known = McpServer.objects.exclude(name=None).values_list("name", flat=True)
    called = calls.server_and_tool(event.tool_name or "", known) or ("", "")
    return WantedCall(
        agent or calls.agent_id_of(name, set(Agent.objects.values_list("pk", flat=True))) or name,
        server or called[0],
        tool or called[1],
        event.session_id,
        event.pk,
    )


def _request_access(request: HtmxHttpRequest, wanted: WantedCall) -> PermissionRequest:
    scope = None if _word(request, "scope") == "server" else wanted.tool
    if not wanted.agent or not wanted.server or scope == "":
        raise Invalid("Name the agent, the server and the tool.")
    if not Agent.objects.filter(pk=wanted.agent).exists():
        raise Invalid(f"There is no agent {wanted.agent}. An admin must add it first.")
    if not McpServer.objects.filter(pk=wanted.server).exists():
        raise Invalid(f"There is no MCP server {wanted.server}. An admin must add it first.")
    wish = WantedAccess(wanted.agent, wanted.server, scope)
    ask = NewRequest(
        wish.subject,
        justification=_word(request, "why"),
        session_id=wanted.session or None,
        agent_id=wanted.agent,
        event_id=wanted.event,
    )
    return approvals.request(ask, by=person(request.user), now=timezone.now()).request


@require_safe
@viewer
def grant_detail(request: HtmxHttpRequest, grant_id: int) -> HttpResponse:
    """Show one grant: what it says, since when, until when, who said so, and what became of it."""
    row, now = get_object_or_404(Grant, pk=grant_id), timezone.now()
    ended = row.metadata.get("ended") if isinstance(row.metadata, dict) else None
    slot = grants.rows_of_slot(row)
    standing = [other for other in slot if grants.stands(other, now)]
    context = {
        "row": row,
        "version": grants.version_of(slot),
        "beneath": [other for other in standing if other.pk in access.ids_beneath(row)],
        "above": [other for other in standing if row.pk in access.ids_beneath(other)],
        "live": access_sheet.as_row(row).is_live(now),
        "faults": access.faults_of(row),
        "ended": ended if isinstance(ended, dict) else None,
        # A grant on top of another is not made permanent by leaving the form as it is.
        "validities": grant_lengths.choices("1h" if access.ids_beneath(row) else grant_lengths.RENEWAL),
        "target": f"{row.agent_id} {row.server_id} {row.tool_name or '*'}",
        "known_server": McpServer.objects.filter(pk=row.server_id).exists(),
    }
    return render(request, "mcp/grant.html", context)


@require_POST
@approver
def revoke(request: HtmxHttpRequest, grant_id: int) -> HttpResponse:
    says = Grant.objects.filter(pk=grant_id).values_list("permission", flat=True).first()
    if says not in (None, Grant.Permission.ALLOW) and not deciders.may_edit_policy(request.user):
        # Without it, a wider grant or the default may allow.
        return refuse(request, ADMIN, deciders.ADMINS_EDIT)
    try:
        grants.revoke(
            grant_id,
            by=person(request.user),
            now=timezone.now(),
            reason=_word(request, "why")[:2000] or None,
            seen=request.POST.get("version") or None,
        )
    except SignalboxError as refusal:
        messages.error(request, _said(refusal))
    else:
        messages.success(request, "Revoked.")
    return redirect(_back(request) if request.POST.get("back") else reverse("mcp:grants"))


@require_POST
@policy_editor
def extend(request: HtmxHttpRequest, grant_id: int) -> HttpResponse:
    now = timezone.now()
    try:
        done = grants.extend(
            grant_id,
            until=grant_lengths.until_of(request.POST.get("until", grant_lengths.RENEWAL), now),
            by=person(request.user),
            now=now,
            reason=_word(request, "why") or None,
            seen=request.POST.get("version") or None,
        )
    except SignalboxError as refusal:
        messages.error(request, _said(refusal))
        return redirect("mcp:grant", grant_id)
    messages.success(request, "The grant has its new end." if done else "The grant already has this end.")
    after = done[0].after if done else None
    return redirect("mcp:grant", after["grant_id"] if after else grant_id)


def _said(refusal: SignalboxError) -> str:
    return refusal.detail["message"] if isinstance(refusal.detail, dict) else str(refusal.detail)
