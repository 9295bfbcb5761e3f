"""The page of an invitation, on which its recipient chooses a user name, and a password or a passkey."""

from __future__ import annotations

from functools import partial

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from coordinator.actions.people import invitations, users
from coordinator.errors import SignalboxError
from coordinator.identity import browser_secrets
from coordinator.identity.declarations import declare_anonymous_access, require_http_methods, require_POST
from coordinator.identity.passkeys import passkey_address_problem_or_empty
from dashboard.accounts.passkey_views import begin_passkey_and_build_response
from dashboard.accounts.views import BACKEND, set_sign_in_device_cookie
from dashboard.frame.browser_proof_middleware import NEW, allow_post_without_browser_proof, client_address
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.people.forms import WHAT_ROLES_ALLOW, JoinForm


@allow_post_without_browser_proof
@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters()
@never_cache
@declare_anonymous_access
def join_by_invitation(request: HtmxHttpRequest) -> HttpResponse:
    """Create the account that an invitation is for, with a password, and sign the person in."""
    if request.method != "POST":
        return render_join_page(request, request.GET.get("token", ""), JoinForm())
    token, form, now = request.POST.get("token", ""), JoinForm(request.POST), timezone.now()
    if invitations.find_invitation_by_token(token, now) is None or not form.is_valid():
        return render_join_page(request, token, form, status=422)
    try:
        user = users.build_user(form.cleaned_data["username"], form.cleaned_data["password1"])
        invitations.accept_invitation(token, user, address=client_address(request), now=now)
    except SignalboxError as refusal:
        form.add_error(None, str(refusal.detail))
        return render_join_page(request, token, form, status=422)
    return sign_in_joined_person(request, user, "password", "overview")


@allow_post_without_browser_proof
@require_POST
@declare_page_of_form_view("accounts:login")
@never_cache
@declare_anonymous_access
def passkey_options_for_invitation_view(request: HtmxHttpRequest) -> HttpResponse:
    """Return the options with which the browser creates the invited person's passkey."""
    begin = partial(
        invitations.begin_passkey_for_invitation,
        request.POST.get("token", ""),
        request.POST.get("username", ""),
    )
    return begin_passkey_and_build_response(request, request.POST.get(NEW, ""), begin)


@allow_post_without_browser_proof
@require_POST
@declare_page_of_form_view("accounts:login")
@never_cache
@declare_anonymous_access
def join_with_passkey(request: HtmxHttpRequest) -> HttpResponse:
    """Create the account that an invitation is for, with the browser's passkey, and sign the person in."""
    token, username = request.POST.get("token", ""), request.POST.get("username", "")
    try:
        user = invitations.accept_invitation_with_passkey(
            token,
            username,
            request.POST.get("credential", ""),
            browser=browser_secrets.hash_browser_secret(request.POST.get(NEW, "")),
            address=client_address(request),
            now=timezone.now(),
        )
    except SignalboxError as refusal:
        form = JoinForm(initial={"username": username})
        return render_join_page(request, token, form, str(refusal.detail), status=refusal.status)
    messages.success(request, "You have an account. Make recovery codes, in case you lose your passkey.")
    return sign_in_joined_person(request, user, "passkey", "accounts:account")


def sign_in_joined_person(
    request: HtmxHttpRequest, user: User, by: browser_secrets.ConfirmedBy, goal: str
) -> HttpResponse:
    login(request, user, backend=BACKEND)
    request.session.set_expiry(None)
    browser_secrets.bind_or_unbind_session_browser(
        request.session, request.POST.get(NEW, ""), timezone.now(), by
    )
    return set_sign_in_device_cookie(redirect(goal), request, user)


def render_join_page(
    request: HtmxHttpRequest, token: str, form: JoinForm, problem: str = "", status: int = 200
) -> HttpResponse:
    """Render the form, or the reason why the link is not valid (then with status 409)."""
    invitation = invitations.find_invitation_by_token(token, timezone.now())
    context = {
        "token": token,
        "form": form,
        "problem": problem,
        "role": invitation.role if invitation else "",
        "what_it_allows": WHAT_ROLES_ALLOW.get(invitation.role, "") if invitation else "",
        "is_valid": invitation is not None,
        "refusal": invitations.NOT_VALID,
        "is_signed_in": request.user.is_authenticated,
        "passkey_problem": passkey_address_problem_or_empty(request.scheme or "", request.get_host()),
    }
    return render(request, "people/join.html", context, status=status if invitation else 409)
