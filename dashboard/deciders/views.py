"""The page Who decides: its rows, groups, a preview of who would decide a request, and delegations."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.deciders import delegations, groups, rules
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_GET, require_POST
from coordinator.identity.roles import ADMIN, ROLES, has_role
from coordinator.lib.storable import parse_database_id_or_none
from coordinator.models import Agent, McpServer, PermissionRequest, Session
from coordinator.policy.deciders import decider_book as policy
from coordinator.policy.deciders import rules as deciding_rules
from coordinator.policy.grants.access_requests import PERMISSION_TYPE
from coordinator.sessions.agent_programs import AGENT_TITLES
from dashboard.accounts.views import safe_next_url_or_default
from dashboard.deciders import forms
from dashboard.deciders.delegations import list_delegation_lines
from dashboard.deciders.preview import preview_deciders
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_admin, require_approver, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest

MOST_OFFERED = 200
LATEST = 300  # newest requests whose types are suggested


@require_GET
@never_cache
@require_viewer_role
def show_deciders(request: HtmxHttpRequest) -> HttpResponse:
    """Show the rows, and who would decide the request that the query string describes."""
    return render_deciders_page(request)


@require_POST
@never_cache
@require_admin
def save_deciding_rules_view(request: HtmxHttpRequest) -> HttpResponse:
    """Save the rows. If that is refused, show them again with the reason."""
    book = policy.load_decider_book(timezone.now())
    posted, version = (
        forms.build_posted_deciding_rule_formset(request.POST, book),
        request.POST.get("version", ""),
    )
    if not posted.is_valid():
        return render_deciders_page(request, posted=posted, version=version, status=422)
    try:
        rules.replace_deciding_rules(
            forms.deciding_rules_from_forms(posted),
            seen_version=version,
            actor=person_actor(request.user),
            now=book.now,
        )
    except SignalboxError as refusal:
        problem, status = str(refusal.detail), refusal.status
        return render_deciders_page(request, posted=posted, version=version, problem=problem, status=status)
    messages.success(request, "Rows saved. They apply to new and waiting requests.")
    return redirect("deciders:home")


def render_deciders_page(
    request: HtmxHttpRequest,
    *,
    posted: Any = None,
    version: str | None = None,
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    book, user = policy.load_decider_book(timezone.now()), require_signed_in_user(request)
    own = Group.objects.exclude(name__in=ROLES).prefetch_related("user_set").order_by("name")
    context = {
        "forms": posted if posted is not None else forms.build_deciding_rule_formset(book),
        "version": version if version is not None else deciding_rules.deciding_rules_version(book.rules),
        "problem": problem,
        "troubles": book.find_rule_problems(),
        "preview": preview_deciders(request.GET, book),
        "groups": [(group, forms.build_group_form(group, book)) for group in own],
        "new_group": forms.DeciderGroupForm(
            known_people=forms.build_decider_form_kwargs(book)["known_people"], auto_id="new-%s"
        ),
        "delegations": list_delegation_lines(user, book.now, may_all=has_role(user, ADMIN)),
        "offered": list_name_suggestions_by_field(),
    }
    return render(request, "deciders/home.html", context, status=status)


def list_name_suggestions_by_field() -> dict[str, list[str]]:
    """Return the names that each field suggests."""
    latest = PermissionRequest.objects.order_by("-id").values_list("permission_type", flat=True)[:LATEST]
    agents = Agent.objects.exclude(pk=None).order_by("pk").values_list("pk", flat=True)[:MOST_OFFERED]
    hosts = Session.objects.exclude(hostname=None).order_by("hostname").values_list("hostname", flat=True)
    servers = McpServer.objects.exclude(name=None).order_by("name").values_list("name", flat=True)
    return {
        "types": sorted({"ToolCall", PERMISSION_TYPE, *map(str, latest)}),
        "servers": [str(server) for server in servers[:MOST_OFFERED]],
        "agents": sorted({*map(str, agents), *AGENT_TITLES}),
        "hosts": [str(host) for host in hosts.distinct()[:MOST_OFFERED]],
    }


@require_POST
@require_admin
def create_decider_group_view(request: HtmxHttpRequest) -> HttpResponse:
    name, people, _seen_version = extract_posted_group_fields(request)
    with refusals.add_refusal_message_during_block(request):
        decider_group = groups.add_decider_group(
            name, people, actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(
            request, f"The group {decider_group.name} was created. Add it to a row so that it can decide."
        )
    return redirect("deciders:home")


@require_POST
@require_admin
def edit_decider_group_view(request: HtmxHttpRequest, group_id: int) -> HttpResponse:
    name, people, seen_version = extract_posted_group_fields(request)
    with refusals.add_refusal_message_during_block(request):
        groups.update_decider_group(
            group_id,
            name,
            people,
            seen_version=seen_version,
            actor=person_actor(request.user),
            now=timezone.now(),
        )
        messages.success(request, f"The group {name} was saved.")
    return redirect("deciders:home")


@require_POST
@require_admin
def delete_decider_group_view(request: HtmxHttpRequest, group_id: int) -> HttpResponse:
    with refusals.add_refusal_message_during_block(request):
        groups.remove_decider_group(group_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, "The group was deleted.")
    return redirect("deciders:home")


def extract_posted_group_fields(request: HtmxHttpRequest) -> tuple[str, list[int], str]:
    """Return the posted name, people and version of a group. The action validates them."""
    posted_people = request.POST.getlist("people")
    people = [
        person_id for text in posted_people if (person_id := parse_database_id_or_none(text)) is not None
    ]
    return request.POST.get("name", ""), people, request.POST.get("seen", "")


@require_POST
@require_approver
def delegate_decisions(request: HtmxHttpRequest) -> HttpResponse:
    """Delegate the person's right to decide to another approver for a time."""
    user = require_signed_in_user(request)
    other_people = [
        (pk, approver.get_username())
        for pk, approver in policy.load_decider_book(timezone.now()).approvers_by_id.items()
    ]
    form = forms.DelegationForm(request.POST, others=other_people)
    if not form.is_valid():
        for field, errors in form.errors.items():
            label = form.fields[field].label if field in form.fields else "Form"
            messages.error(request, f"{label}: {errors[0]} Nothing was delegated.")
        return redirect("accounts:account")
    cleaned_data = form.cleaned_data
    with refusals.add_refusal_message_during_block(request):
        delegation = delegations.create_delegation(
            cleaned_data["receiver"],
            cleaned_data["starts_at"],
            cleaned_data["ends_at"],
            user=user,
            now=timezone.now(),
            reason=cleaned_data["reason"],
        )
        receiver = delegations.delegation_usernames_by_user_id([delegation])[delegation.receiver_id]
        messages.success(request, f"{receiver} may decide for you in that time.")
    return redirect("accounts:account")


@require_POST
@require_approver
def revoke_delegation_view(request: HtmxHttpRequest, delegation_id: int) -> HttpResponse:
    with refusals.add_refusal_message_during_block(request):
        delegations.cancel_delegation(delegation_id, user=require_signed_in_user(request), now=timezone.now())
        messages.success(request, "The delegation has ended.")
    return redirect(safe_next_url_or_default(request, "deciders:home"))


def require_signed_in_user(request: HtmxHttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
