"""Connect agents: the command and its code first, then, agent by agent, what to paste by hand."""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.contrib.auth.models import User
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from coordinator.actions import connecting, key_binding, keys
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person
from coordinator.models import Agent
from coordinator.operations.doctor import Finding
from coordinator.operations.doctor.claude_code import TRIAL_AGENT, examine
from dashboard.connections import addresses, pasting, unheld, what_works
from dashboard.connections.heard import last_heard
from dashboard.frame.guards import admin, viewer
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.frame.kept_choices import KeptChoiceField, offer

TRIAL_KEY_LASTS = timedelta(minutes=2)


class MachineForm(forms.Form):
    """Which machine a key is for, and which agent of Signalbox's it speaks for."""

    name = forms.CharField(
        max_length=100, help_text="Which machine it is for, for example <code>ann-laptop</code>."
    )
    agent_id = KeptChoiceField(
        label="Agent",
        required=False,
        help_text="Grants, rules and budgets are per agent. The key speaks for this one alone and reaches its "
        "sessions alone.",
    )

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        agents = Agent.objects.exclude(pk=None).order_by("name").values_list("id", "name")
        offer(self, "agent_id", [("", "a new agent with this name"), *agents])


@require_GET
@never_cache
@viewer
def home(request: HtmxHttpRequest) -> HttpResponse:
    return _home(request, MachineForm())


@require_POST
@never_cache
@admin
def make_code(request: HtmxHttpRequest) -> HttpResponse:
    """Create a connect code and show it on the page this answers with, and never again."""
    form = MachineForm(request.POST)
    if form.is_valid():
        assert isinstance(request.user, User)
        try:
            _, code = connecting.make_code(
                key_name=form.cleaned_data["name"],
                agent_id=form.cleaned_data["agent_id"] or None,
                by=request.user,
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            return _home(request, MachineForm(), code=code)
    return _home(request, form, status=422)


@require_POST
@never_cache
@admin
def test(request: HtmxHttpRequest) -> HttpResponse:
    """Send a hook through every hop, with a key of its own, and show each with its time."""
    now, by = timezone.now(), person(request.user)
    row, raw = keys.create(
        name=f"trial-{now:%Y%m%d-%H%M%S-%f}",
        scopes=["agent"],
        agent_id=TRIAL_AGENT,
        by=by,
        now=now,
        expires_at=now + TRIAL_KEY_LASTS,
    )
    try:
        findings = list(examine(addresses.for_programs(request), raw, by=by))
    finally:
        keys.revoke(row.pk, by=by, now=timezone.now(), reason="the test has ended")
    return _home(request, MachineForm(), findings=findings)


def _home(
    request: HtmxHttpRequest,
    form: MachineForm,
    *,
    code: str | None = None,
    findings: list[Finding] | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "tabs": pasting.tabs(),
        "form": form,
        "code": code,
        "minutes": connecting.LASTS // timedelta(minutes=1),
        "findings": findings,
        "address": addresses.for_programs(request),
        "heard": last_heard(),
        "columns": what_works.COLUMNS,
        "depth": what_works.rows(),
        "any_client": pasting.any_client(addresses.for_programs(request)),
    }
    return render(request, "connections/home.html", context, status=status)


# --- one agent --------------------------------------------------------------------------------------------


@require_GET
@never_cache
@viewer
def agent(request: HtmxHttpRequest, name: str) -> HttpResponse:
    return _agent(request, name, MachineForm())


@require_POST
@never_cache
@admin
def make_key(request: HtmxHttpRequest) -> HttpResponse:
    """Create a key and show it on the agent's page, which this answers with, and never again."""
    form, name = MachineForm(request.POST), request.POST.get("program", "")
    if form.is_valid():
        try:
            _, raw = key_binding.create_bound_key(
                name=form.cleaned_data["name"],
                scopes=["agent"],
                agent_id=form.cleaned_data["agent_id"] or None,
                by=person(request.user),
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            return _agent(request, name, MachineForm(), key=raw)
    return _agent(request, name, form, status=422)


def _agent(
    request: HtmxHttpRequest, name: str, form: MachineForm, *, key: str | None = None, status: int = 200
) -> HttpResponse:
    address = addresses.for_programs(request)
    program = pasting.program(name, address)
    if program is None:
        raise Http404
    context = {
        "tabs": pasting.tabs(),
        "program": program,
        "form": form,
        "exports": pasting.exports(address, key) if key else None,
        "headless": pasting.HEADLESS,
        "address": address,
        "depth": what_works.row(name),
        "unheld": unheld.of(name),
        "every_agent": unheld.EVERY_AGENT,
    }
    return render(request, "connections/agent.html", context, status=status)
