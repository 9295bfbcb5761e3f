"""Connect agents: the command with its code, and for each agent the settings to paste by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.people import connecting, key_binding, keys
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_GET, require_POST
from coordinator.models import Agent
from coordinator.operations.doctor import StepResult
from coordinator.operations.doctor.claude_code import TRIAL_AGENT, iterate_claude_code_trial_steps
from dashboard.connections import addresses, agent_support, hook_bypasses, imports, pasting
from dashboard.connections.omissions import load_recent_telemetry_omissions
from dashboard.connections.received import (
    FirstReport,
    list_latest_agent_sessions,
    load_key_connection_progress,
)
from dashboard.frame.guards import require_admin, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.frame.stored_choices import StoredChoiceField, set_choices_and_keep_saved_values

TRIAL_KEY_LASTS = timedelta(minutes=2)
MAX_KEY_NAME_CHARACTERS = 100


class ConnectMachineForm(forms.Form):
    """The machine for which a key is made, and the agent to which the key is bound."""

    name = forms.CharField(
        max_length=MAX_KEY_NAME_CHARACTERS,
        help_text="Which machine it is for, for example <code>ann-laptop</code>.",
    )
    agent_id = StoredChoiceField(
        label="Agent",
        required=False,
        help_text="Grants, rules and budgets are per agent. The key speaks for this one alone and reaches its "
        "sessions alone.",
    )

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        agents = Agent.objects.exclude(pk=None).order_by("name").values_list("id", "name")
        set_choices_and_keep_saved_values(self, "agent_id", [("", "a new agent with this name"), *agents])


@require_GET
@never_cache
@require_viewer_role
def show_connections(request: HtmxHttpRequest) -> HttpResponse:
    return render_connections_page(request, ConnectMachineForm())


@require_POST
@never_cache
@require_admin
def create_connect_code_view(request: HtmxHttpRequest) -> HttpResponse:
    """Create a connect code and show it once, on the page that this returns."""
    form = ConnectMachineForm(request.POST)
    if form.is_valid():
        assert isinstance(request.user, User)
        try:
            row, code = connecting.issue_connect_code(
                key_name=form.cleaned_data["name"],
                agent_id=form.cleaned_data["agent_id"] or None,
                user=request.user,
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            report = load_key_connection_progress(row.key_name)
            return render_connections_page(request, ConnectMachineForm(), code=code, report=report)
    return render_connections_page(request, form, status=422)


@require_GET
@never_cache
@require_admin
def show_first_report_of_key(request: HtmxHttpRequest) -> HttpResponse:
    """Return the progress of the key with the name `key`, for the page that shows its code."""
    key_name = request.GET.get("key", "")[:MAX_KEY_NAME_CHARACTERS]
    return render(
        request, "connections/_first_event.html", {"report": load_key_connection_progress(key_name)}
    )


@require_POST
@never_cache
@require_admin
def run_connection_test_view(request: HtmxHttpRequest) -> HttpResponse:
    """Send a test hook with a temporary key through all steps, and show each step with its duration."""
    now, by = timezone.now(), person_actor(request.user)
    row, raw = keys.issue_api_key(
        name=f"trial-{now:%Y%m%d-%H%M%S-%f}",
        scopes=["agent"],
        agent_id=TRIAL_AGENT,
        actor=by,
        now=now,
        expires_at=now + TRIAL_KEY_LASTS,
    )
    try:
        findings = list(
            iterate_claude_code_trial_steps(addresses.server_address_for_programs(request), raw, actor=by)
        )
    finally:
        keys.invalidate_api_key(row.pk, actor=by, now=timezone.now(), reason="the test has ended")
    return render_connections_page(request, ConnectMachineForm(), findings=findings)


def render_connections_page(
    request: HtmxHttpRequest,
    form: ConnectMachineForm,
    *,
    code: str | None = None,
    report: FirstReport | None = None,
    findings: list[StepResult] | None = None,
    status: int = 200,
) -> HttpResponse:
    url = addresses.server_address_for_programs(request)
    context = {
        "tabs": pasting.list_connectable_agents(),
        "form": form,
        "code": code,
        "code_command": f"signalbox connect --url {url} --key-file <(echo {code})",
        "report": report,
        "minutes": connecting.LASTS // timedelta(minutes=1),
        "findings": findings,
        "address": addresses.server_address_for_programs(request),
        "heard": list_latest_agent_sessions(),
        "machines": imports.load_transcript_sending_machines(
            imports.list_transcript_sender_hostnames()[: imports.LATEST_MACHINES], timezone.now()
        ),
        "omissions": load_recent_telemetry_omissions(timezone.now()),
        "columns": agent_support.COLUMNS,
        "depth": agent_support.list_agent_support_rows(),
        "any_client": pasting.build_mcp_client_config_blocks(addresses.server_address_for_programs(request)),
    }
    return render(request, "connections/home.html", context, status=status)


# --- machines that send transcripts ----------------------------------------------------------------------


@require_GET
@never_cache
@require_viewer_role
def show_imports(request: HtmxHttpRequest) -> HttpResponse:
    """List the machines that send transcripts."""
    page: Any = Paginator(imports.list_transcript_sender_hostnames(), imports.MACHINES_ON_PAGE).get_page(
        request.GET.get("page")
    )
    context = {
        "page": page,
        "machines": imports.load_transcript_sending_machines(page.object_list, timezone.now()),
    }
    return render(request, "connections/imports.html", context)


@require_GET
@never_cache
@require_viewer_role
def show_machine_imports(request: HtmxHttpRequest) -> HttpResponse:
    """Show the transcripts that came from the machine `host`, and what could not be read."""
    hostname = request.GET.get("host", "")
    machines = imports.load_transcript_sending_machines([hostname], timezone.now())
    if not machines:
        raise Http404
    page: Any = Paginator(
        imports.list_transcript_problems_of_machine(hostname), imports.PROBLEMS_ON_PAGE
    ).get_page(request.GET.get("page"))
    problems = [imports.ProblemRow(row) for row in page.object_list]
    context = {
        "machine": machines[0],
        "page": page,
        "problems": problems,
        "advice": imports.list_advice_for_problem_reasons(problem.row.reason for problem in problems),
    }
    return render(request, "connections/machine.html", context)


# --- one agent --------------------------------------------------------------------------------------------


@require_GET
@never_cache
@require_viewer_role
def show_agent_connection(request: HtmxHttpRequest, name: str) -> HttpResponse:
    return render_agent_connection_page(request, name, ConnectMachineForm())


@require_POST
@never_cache
@require_admin
def create_agent_key(request: HtmxHttpRequest) -> HttpResponse:
    """Create a key and show it once, on the agent's page that this returns."""
    form, name = ConnectMachineForm(request.POST), request.POST.get("program", "")
    if form.is_valid():
        try:
            _, raw = key_binding.create_bound_key(
                name=form.cleaned_data["name"],
                scopes=["agent"],
                agent_id=form.cleaned_data["agent_id"] or None,
                actor=person_actor(request.user),
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            return render_agent_connection_page(request, name, ConnectMachineForm(), key=raw)
    return render_agent_connection_page(request, name, form, status=422)


def render_agent_connection_page(
    request: HtmxHttpRequest,
    name: str,
    form: ConnectMachineForm,
    *,
    key: str | None = None,
    status: int = 200,
) -> HttpResponse:
    address = addresses.server_address_for_programs(request)
    program = pasting.build_agent_setup_or_none(name, address)
    if program is None:
        raise Http404
    context = {
        "tabs": pasting.list_connectable_agents(),
        "program": program,
        "form": form,
        "exports": pasting.build_shell_exports(address, key) if key else None,
        "headless": pasting.HEADLESS,
        "address": address,
        "depth": agent_support.build_agent_support_row(name),
        "unheld": hook_bypasses.list_hook_bypasses(name),
        "every_agent": hook_bypasses.EVERY_AGENT,
    }
    return render(request, "connections/agent.html", context, status=status)
