"""Views that change agents: add, edit, switch on or off, set the switch password, assign plugins, delete."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from coordinator.actions.agents import agent_names, agents
from coordinator.actions.policy import agent_power
from coordinator.errors import Conflict, SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST
from coordinator.models import Agent, PluginSetting
from dashboard.agents.forms import AgentForm, NewAgentForm, SwitchPasswordForm
from dashboard.frame import form_refusals as refusals
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_admin, require_approver
from dashboard.frame.htmx import HtmxHttpRequest

MAX_NAME_CHARACTERS = 300


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@require_admin
def add_agent_view(request: HtmxHttpRequest) -> HttpResponse:
    form = NewAgentForm(request.POST or None)
    if request.method == "POST" and form.is_valid() and try_create_agent_from_form(request, form):
        messages.success(
            request,
            f"{form.cleaned_data['name']} is added. It is shown as offline until its first heartbeat.",
        )
        return redirect("agents:detail", form.cleaned_data["agent_id"])
    context = {"form": form, "engines": list_plugin_ids_as_engines()}
    return render(request, "agents/new.html", context, status=422 if form.errors else 200)


def try_create_agent_from_form(request: HtmxHttpRequest, form: NewAgentForm) -> bool:
    cleaned_data, now, by = form.cleaned_data, timezone.now(), person_actor(request.user)
    try:
        agents.create_agent(
            cleaned_data["agent_id"],
            name=cleaned_data["name"],
            default_engine_id=cleaned_data["default_engine_id"],
            description=cleaned_data["description"],
            required_capabilities=cleaned_data["required_capabilities"],
            metadata=cleaned_data["metadata"],
            actor=by,
            now=now,
        )
        if cleaned_data["password"]:
            agent_power.set_power_switch_password(
                cleaned_data["agent_id"], cleaned_data["password"], actor=by, now=now
            )
    except Conflict as refusal:
        form.taken = Agent.objects.filter(pk=cleaned_data["agent_id"]).first()
        form.add_error("agent_id", f"{refusal.detail} Choose another name or another id.")
        return False
    except SignalboxError as refusal:
        form.add_error(None, str(refusal.detail))
        return False
    return True


def list_plugin_ids_as_engines() -> list[str]:
    """Return the ids of the known plugins, to be offered as engines."""
    return list(PluginSetting.objects.order_by("plugin_id").values_list("plugin_id", flat=True))


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def edit_agent(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    """Edit an agent. If another person changed it meanwhile, nothing is overwritten and the form says so."""
    agent = get_object_or_404(Agent, pk=agent_id)
    form = AgentForm.create_form_from_agent(agent, request.POST or None)
    if request.method == "POST" and form.is_valid():
        version = form.cleaned_data["version"]
        try:
            agents.update_agent(
                agent_id,
                form.changed_column_values(),
                actor=person_actor(request.user),
                seen_version=version,
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            messages.success(request, "Saved.")
            return redirect("agents:detail", agent_id)
    context = {"form": form, "agent": agent, "engines": list_plugin_ids_as_engines()}
    return render(request, "agents/edit.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def delete_agent_view(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    """Delete an agent with all its data, after the person has typed its id."""
    agent = get_object_or_404(Agent, pk=agent_id)
    problem = agents.DEFAULT_REFUSED if agent_id == agents.DEFAULT_AGENT else ""
    if request.method == "POST" and not problem:
        if request.POST.get("typed", "").strip() != agent_id.strip():
            problem = "This is not the agent's id, so nothing was deleted. Type the id to confirm."
        else:
            try:
                agents.delete_agent_with_data(
                    agent_id,
                    actor=person_actor(request.user),
                    reason=reason_from_post_data(request),
                    now=timezone.now(),
                )
            except SignalboxError as refusal:
                problem = str(refusal.detail)
            else:
                messages.success(request, f"{agent.name} was deleted.")
                return redirect("agents:list")
    context = {
        "agent": agent,
        "problem": problem,
        "is_default": agent_id == agents.DEFAULT_AGENT,
        "consequences": agents.count_agent_dependents_by_kind([agent_id]),
    }
    failed = problem and request.method == "POST"
    return render(request, "agents/delete.html", context, status=422 if failed else 200)


def reason_from_post_data(request: HtmxHttpRequest) -> str | None:
    return request.POST.get("reason", "").strip()[:500] or None


@sensitive_post_parameters("password")
@require_POST
@declare_page_of_form_view("agents:detail")
@require_approver
def switch_agent_power_view(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    on = request.POST.get("on") == "yes"
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        agent = agent_power.set_agent_enabled(
            agent_id,
            on,
            actor=person_actor(request.user),
            password=request.POST.get("password") or None,
            now=timezone.now(),
        )
        messages.success(request, f"{agent.name} is switched {'on' if on else 'off'}.")
    return redirect("agents:detail", agent_id)


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@require_admin
def set_agent_switch_password(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    """Set or remove the password that protects an agent's power switch."""
    agent = get_object_or_404(Agent, pk=agent_id)
    removing = request.POST.get("remove") == "yes"
    form = SwitchPasswordForm(None if removing else request.POST or None)
    if request.method == "POST" and (removing or form.is_valid()):
        password = None if removing else form.cleaned_data["password"]
        agent_power.set_power_switch_password(
            agent_id, password, actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(
            request,
            "The power switch is no longer protected by a password."
            if removing
            else "The power switch is now protected by a password.",
        )
        return redirect("agents:detail", agent_id)
    context = {"agent": agent, "form": form}
    return render(request, "agents/password.html", context, status=422 if form.errors else 200)


@require_POST
@declare_page_of_form_view("agents:detail")
@require_admin
def assign_agent_plugin_view(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    plugin_id = request.POST.get("plugin", "").strip()
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        agents.assign_plugin(agent_id, plugin_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, f"{plugin_id} was added to the agent.")
    return redirect("agents:detail", agent_id)


@require_POST
@declare_page_of_form_view("agents:detail")
@require_admin
def withdraw_agent_plugin_view(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    plugin_id = request.POST.get("plugin", "")
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        agents.unassign_plugin(agent_id, plugin_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, f"{plugin_id} was removed from the agent.")
    return redirect("agents:detail", agent_id)


@require_POST
@declare_page_of_form_view("agents:detail")
@require_admin
def link_agent_name_view(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    name = request.POST.get("name", "").replace("\0", "").strip()[:MAX_NAME_CHARACTERS]
    with refusals.add_refusal_message_during_block(request):
        agent_names.link_agent_name(name, agent_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, f"{name} is this agent's name from now on.")
    return redirect("agents:detail", agent_id)


@require_POST
@declare_page_of_form_view("agents:detail")
@require_admin
def unlink_agent_name_view(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    name = request.POST.get("name", "").replace("\0", "")
    with refusals.add_refusal_message_during_block(request):
        agent_names.unlink_agent_name(name, agent_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, f"{name} is no longer this agent's name.")
    return redirect("agents:detail", agent_id)
