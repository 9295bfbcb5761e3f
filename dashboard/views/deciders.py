"""Who decides: the rows, the groups that they name, who would decide a request, and rights handed over."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from coordinator.actions.deciders import delegations, groups, rules
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person
from coordinator.identity.roles import ADMIN, ROLES, has_role
from coordinator.lib.storable import row_id
from coordinator.models import Agent, McpServer, PermissionRequest, Session
from coordinator.policy import deciders as policy
from coordinator.policy import deciding_rules
from coordinator.policy.access_requests import PERMISSION_TYPE
from coordinator.sessions.agent_programs import AGENT_TITLES
from dashboard.deciders import forms
from dashboard.deciders.delegations import shown
from dashboard.deciders.preview import preview_of
from dashboard.frame import refusals
from dashboard.frame.guards import admin, approver, viewer
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.views.accounts import next_url

MOST_OFFERED = 200
LATEST = 300  # requests whose types are offered


@require_GET
@never_cache
@viewer
def home(request: HtmxHttpRequest) -> HttpResponse:
    """Show the rows, and who would decide the request that the address names."""
    return _page(request)


@require_POST
@never_cache
@admin
def save(request: HtmxHttpRequest) -> HttpResponse:
    """Save the rows; what cannot be saved is shown with the reason."""
    book = policy.load(timezone.now())
    posted, seen = forms.posted_rows(request.POST, book), request.POST.get("version", "")
    if not posted.is_valid():
        return _page(request, posted=posted, version=seen, status=422)
    try:
        rules.save(forms.wanted(posted), seen=seen, by=person(request.user), now=book.now)
    except SignalboxError as refusal:
        problem, status = str(refusal.detail), refusal.status
        return _page(request, posted=posted, version=seen, problem=problem, status=status)
    messages.success(request, "Rows saved. They apply to new and waiting requests.")
    return redirect("deciders:home")


def _page(
    request: HtmxHttpRequest,
    *,
    posted: Any = None,
    version: str | None = None,
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    book, user = policy.load(timezone.now()), _user(request)
    own = Group.objects.exclude(name__in=ROLES).prefetch_related("user_set").order_by("name")
    context = {
        "forms": posted if posted is not None else forms.rows_of(book),
        "version": version if version is not None else deciding_rules.version(book.rules),
        "problem": problem,
        "troubles": book.troubles(),
        "preview": preview_of(request.GET, book),
        "groups": [(group, forms.form_of(group, book)) for group in own],
        "new_group": forms.GroupForm(known_people=forms.choices_of(book)["known_people"], auto_id="new-%s"),
        "delegations": shown(user, book.now, may_all=has_role(user, ADMIN)),
        "offered": _offered(),
    }
    return render(request, "deciders/home.html", context, status=status)


def _offered() -> dict[str, list[str]]:
    """Return the names that are known, for the lists of the fields."""
    latest = PermissionRequest.objects.order_by("-id").values_list("permission_type", flat=True)[:LATEST]
    agents = Agent.objects.exclude(pk=None).order_by("pk").values_list("pk", flat=True)[:MOST_OFFERED]
    hosts = Session.objects.exclude(hostname=None).order_by("hostname").values_list("hostname", flat=True)
    servers = McpServer.objects.exclude(name=None).order_by("name").values_list("name", flat=True)
    return {
        "types": sorted({"ToolCall", PERMISSION_TYPE, *map(str, latest)}),
        "servers": [str(one) for one in servers[:MOST_OFFERED]],
        "agents": sorted({*map(str, agents), *AGENT_TITLES}),
        "hosts": [str(one) for one in hosts.distinct()[:MOST_OFFERED]],
    }


@require_POST
@admin
def make_group(request: HtmxHttpRequest) -> HttpResponse:
    name, people, _seen = _posted_group(request)
    with refusals.as_message(request):
        made = groups.make(name, people, by=person(request.user), now=timezone.now())
        messages.success(
            request, f"The group {made.name} was created. Add it to a row so that it can decide."
        )
    return redirect("deciders:home")


@require_POST
@admin
def change_group(request: HtmxHttpRequest, group_id: int) -> HttpResponse:
    name, people, seen = _posted_group(request)
    with refusals.as_message(request):
        groups.change(group_id, name, people, seen=seen, by=person(request.user), now=timezone.now())
        messages.success(request, f"The group {name} was saved.")
    return redirect("deciders:home")


@require_POST
@admin
def delete_group(request: HtmxHttpRequest, group_id: int) -> HttpResponse:
    with refusals.as_message(request):
        groups.delete(group_id, by=person(request.user), now=timezone.now())
        messages.success(request, "The group was deleted.")
    return redirect("deciders:home")


def _posted_group(request: HtmxHttpRequest) -> tuple[str, list[int], str]:
    """Return the name, the people and the version; the action refuses what is wrong with them."""
    told = request.POST.getlist("people")
    people = [one for text in told if (one := row_id(text)) is not None]
    return request.POST.get("name", ""), people, request.POST.get("seen", "")


@require_POST
@approver
def delegate(request: HtmxHttpRequest) -> HttpResponse:
    """Hand the person's own right to decide to another approver."""
    user = _user(request)
    others = [(pk, one.get_username()) for pk, one in policy.load(timezone.now()).people.items()]
    form = forms.DelegationForm(request.POST, others=others)
    if not form.is_valid():
        for field, errors in form.errors.items():
            label = form.fields[field].label if field in form.fields else "Form"
            messages.error(request, f"{label}: {errors[0]} Nothing was delegated.")
        return redirect("accounts:account")
    said = form.cleaned_data
    with refusals.as_message(request):
        made = delegations.give(
            said["receiver"],
            said["starts_at"],
            said["ends_at"],
            by=user,
            now=timezone.now(),
            reason=said["reason"],
        )
        receiver = delegations.names_of([made])[made.receiver_id]
        messages.success(request, f"{receiver} may decide for you in that time.")
    return redirect("accounts:account")


@require_POST
@approver
def end_delegation(request: HtmxHttpRequest, delegation_id: int) -> HttpResponse:
    with refusals.as_message(request):
        delegations.revoke(delegation_id, by=_user(request), now=timezone.now())
        messages.success(request, "The delegation has ended.")
    return redirect(next_url(request, "deciders:home"))


def _user(request: HtmxHttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
