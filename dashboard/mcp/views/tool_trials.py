"""Lets an administrator try a tool of an MCP server, with a form made from its input schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache

from coordinator.errors import Conflict, SignalboxError
from coordinator.identity.declarations import require_http_methods
from coordinator.mcp.gateway.binding import qualified_tool_name
from coordinator.mcp.gateway.injection_signs import find_injection_signs_in_response
from coordinator.mcp.gateway.outputs import build_timeline_output_and_error
from coordinator.mcp.gateway.tool_trials import ANSWER_WITHIN, ToolTrial, TrialOutcome, run_tool_trial
from coordinator.models import McpTool
from coordinator.sessions.timeline.reading import StoredValue
from dashboard.frame.guards import require_admin
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.looks import DisplayPart, build_call_display
from dashboard.looks.parts import disable_shortening_in_block
from dashboard.mcp.argument_form import ArgumentForm
from dashboard.mcp.views.servers import find_mcp_server_or_404

STATES = {"ok": "Succeeded", "error": "The tool reports an error", "failed": "Failed"}


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a trial, as the page shows it."""

    state: str
    label: str
    parts: list[DisplayPart]
    is_sent: bool
    milliseconds: int
    marks: list[str]


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def try_tool_view(request: HtmxHttpRequest) -> HttpResponse:
    """Show the form of a tool's arguments. When it is sent, run the call and show the result below it."""
    server_id, tool_name = request.GET.get("server", ""), request.GET.get("tool", "")
    server = find_mcp_server_or_404(server_id)
    tool = McpTool.objects.filter(server_id=server_id, name=tool_name, gone_at=None).first()
    if tool is None:
        raise Http404(f"{server_id} lists no tool {tool_name}.")
    assert isinstance(request.user, User)
    is_raw = request.GET.get("as") == "json"
    form = ArgumentForm(
        tool.input_schema,
        request.POST if request.method == "POST" else None,
        is_raw=is_raw,
        must_confirm=can_tool_delete_or_overwrite(tool.annotations),
    )
    result, status = None, 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            trial = ToolTrial(
                server_id,
                tool_name,
                form.arguments,
                request.POST.get("seen", ""),
                request.user.pk,
                request.user.get_username(),
            )
            try:
                outcome = run_tool_trial(trial)
            except SignalboxError as refusal:
                form.add_error(None, str(refusal.detail))
                status = refusal.status if isinstance(refusal, Conflict) else 422
            else:
                result, status = build_trial_result(trial, outcome), 200
                form.data = request.POST.dict() | {"confirmed": ""}  # a confirmation is for one call only
    address = reverse("mcp:try")
    place = {"server": server_id, "tool": tool_name}
    context = {
        "server": server,
        "tool": tool,
        "form": form,
        "result": result,
        "seconds": ANSWER_WITHIN,
        "place": f"{address}?{urlencode(place | ({'as': 'json'} if is_raw else {}))}",
        "other_way": f"{address}?{urlencode(place if is_raw else place | {'as': 'json'})}",
    }
    return render(request, "mcp/try.html", context, status=status)


def can_tool_delete_or_overwrite(annotations: Any) -> bool:
    """Return whether a tool may delete or overwrite something.

    MCP assumes so unless the tool's annotations deny it.
    """
    hints = annotations if isinstance(annotations, dict) else {}
    return hints.get("readOnlyHint") is not True and hints.get("destructiveHint") is not False


def build_trial_result(trial: ToolTrial, outcome: TrialOutcome) -> TrialResult:
    output, failed = build_timeline_output_and_error(outcome.response)
    problem = outcome.problem or failed or ""
    with disable_shortening_in_block():
        display = build_call_display(
            qualified_tool_name(trial.server_id, trial.tool),
            StoredValue(trial.arguments, 0),
            StoredValue(output, 0),
            problem or None,
        )
    return TrialResult(
        outcome.outcome,
        STATES[outcome.outcome],
        [replace_image_part_with_note(part) for part in display.outputs],
        outcome.is_sent,
        round(outcome.upstream_ms),
        find_injection_signs_in_response(outcome.response) if outcome.response else [],
    )


def replace_image_part_with_note(part: DisplayPart) -> DisplayPart:
    """Return the part, or a note in place of an image, whose bytes are not stored."""
    if part.kind != "image":
        return part
    return DisplayPart("text", "A picture, which is not shown here.", label=part.label)
