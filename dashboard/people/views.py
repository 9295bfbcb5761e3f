"""The pages of people for admins: list, invite, sign out and deactivate. What a row shows is in `rows`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache

from coordinator.actions.people import invitations, membership, users
from coordinator.actions.people.open_invitations import list_open_invitations
from coordinator.errors import SignalboxError
from coordinator.identity.declarations import require_POST, require_safe
from coordinator.identity.session_store import count_sessions_by_person
from coordinator.lib.body_limits import SMALL, declare_request_body_allowance
from coordinator.models import Invitation
from dashboard.frame.form_refusals import add_refusal_message_during_block
from dashboard.frame.guards import require_admin
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.people.forms import InvitationForm, RoleForm
from dashboard.people.rows import annotate_last_audited_action, load_invitation_rows, load_person_rows

PAGE = 50


@require_safe
@never_cache
@require_admin
def list_people(request: HtmxHttpRequest) -> HttpResponse:
    return render_people_page(request, InvitationForm())


@require_POST
@never_cache
@require_admin
@declare_request_body_allowance(SMALL)
def invite_person(request: HtmxHttpRequest) -> HttpResponse:
    """Create an invitation and show its link in this response. The link is never shown again."""
    assert isinstance(request.user, User)
    form = InvitationForm(request.POST)
    if form.is_valid():
        try:
            row, token = invitations.create_invitation(
                **form.cleaned_data, user=request.user, now=timezone.now()
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            return render_people_page(
                request, InvitationForm(), created=(row, build_join_url(request, token))
            )
    return render_people_page(request, form, status=422)


def build_join_url(request: HtmxHttpRequest, token: str) -> str:
    """Return the link of an invitation, based on PUBLIC_URL or, if that is not set, on the request's host."""
    path = f"{reverse('people:join')}?{urlencode({'token': token})}"
    return f"{settings.PUBLIC_URL}{path}" if settings.PUBLIC_URL else request.build_absolute_uri(path)


def render_people_page(
    request: HtmxHttpRequest,
    form: InvitationForm,
    *,
    created: tuple[Invitation, str] | None = None,
    status: int = 200,
) -> HttpResponse:
    query = request.GET.get("q", "")[:200]
    people = User.objects.order_by("-is_active", "username")
    for word in query.split():
        people = people.filter(
            Q(username__icontains=word)
            | Q(first_name__icontains=word)
            | Q(last_name__icontains=word)
            | Q(email__icontains=word)
        )
    page = Paginator(annotate_last_audited_action(people).prefetch_related("groups"), PAGE).get_page(
        request.GET.get("page")
    )
    context = {
        "page": page,
        "rows": load_person_rows(list(page.object_list), count_sessions_by_person()),
        "words": query,
        "invitations": load_invitation_rows(list_open_invitations(timezone.now())),
        "form": form,
        "created": created,
        "no_passwords": "" if settings.PASSWORD_SIGN_IN else invitations.NO_PASSWORDS,
        "provider": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
    }
    return render(request, "people/list.html", context, status=status)


@require_POST
@require_admin
@declare_request_body_allowance(SMALL)
def revoke_invitation_view(request: HtmxHttpRequest, invitation_id: int) -> HttpResponse:
    assert isinstance(request.user, User)
    with add_refusal_message_during_block(request):
        invitations.revoke_invitation(invitation_id, user=request.user, now=timezone.now())
        messages.success(request, "The invitation is revoked.")
    return redirect("people:list")


@require_safe
@never_cache
@require_admin
def show_person(request: HtmxHttpRequest, user_id: int) -> HttpResponse:
    return render_person_page(request, user_id)


def render_person_page(
    request: HtmxHttpRequest, user_id: int, form: RoleForm | None = None, status: int = 200
) -> HttpResponse:
    person = annotate_last_audited_action(User.objects.filter(pk=user_id)).first()
    if person is None:
        raise Http404("There is no such person.")
    [row] = load_person_rows([person], count_sessions_by_person())
    context = {
        "row": row,
        "person": person,
        "form": form or RoleForm(initial={"role": row.role, "version": users.compute_user_version(person)}),
        "is_oneself": person == request.user,
        "is_managed": bool(settings.OIDC_ISSUER and settings.OIDC_NAME in row.sign_in_ways),
        "provider": settings.OIDC_NAME,
    }
    return render(request, "people/person.html", context, status=status)


@require_POST
@require_admin
@declare_request_body_allowance(SMALL)
def change_role_view(request: HtmxHttpRequest, user_id: int) -> HttpResponse:
    assert isinstance(request.user, User)
    form = RoleForm(request.POST)
    if form.is_valid():
        try:
            user = membership.change_person_role(
                user_id,
                form.cleaned_data["role"],
                by=request.user,
                seen_version=form.cleaned_data["version"],
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            role = form.cleaned_data["role"]
            messages.success(request, f"{user.username} has {f'the role {role}' if role else 'no role'} now.")
            return redirect("people:detail", user_id)
    return render_person_page(request, user_id, form, status=422)


@require_POST
@require_admin
@declare_request_body_allowance(SMALL)
def sign_out_person_view(request: HtmxHttpRequest, user_id: int) -> HttpResponse:
    def sign_out_chosen_person(**common: Any) -> str:
        user, count = membership.sign_out_person_everywhere(user_id, **common)
        return f"{user.username} is signed out of {count} session{'' if count == 1 else 's'}."

    return run_action_and_redirect_to_person(request, user_id, sign_out_chosen_person)


@require_POST
@require_admin
@declare_request_body_allowance(SMALL)
def deactivate_person_view(request: HtmxHttpRequest, user_id: int) -> HttpResponse:
    def deactivate_chosen_person(**common: Any) -> str:
        user = membership.deactivate_account_and_end_sessions(user_id, **common)
        return f"{user.username} is deactivated and signed out."

    return run_action_and_redirect_to_person(request, user_id, deactivate_chosen_person)


@require_POST
@require_admin
@declare_request_body_allowance(SMALL)
def reactivate_person_view(request: HtmxHttpRequest, user_id: int) -> HttpResponse:
    def reactivate_chosen_person(**common: Any) -> str:
        return f"{membership.reactivate_person(user_id, **common).username} can sign in again."

    return run_action_and_redirect_to_person(request, user_id, reactivate_chosen_person)


def run_action_and_redirect_to_person(
    request: HtmxHttpRequest, user_id: int, action: Callable[..., str]
) -> HttpResponse:
    """Run `action` as the signed-in administrator, and redirect to the person's page.

    The next page shows the message that `action` returned, or the reason for a refusal.
    """
    with add_refusal_message_during_block(request, missing_is_404=True):
        messages.success(request, action(by=request.user, now=timezone.now()))
    if not request.user.is_authenticated:  # the administrator ended the current session
        return redirect("accounts:login")
    return redirect("people:detail", user_id)
