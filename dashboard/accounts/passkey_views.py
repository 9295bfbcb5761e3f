"""Views of passkeys and recovery codes: sign in, confirm one's identity, add and remove them.

A passkey takes two requests. The first asks for a challenge; the second sends the browser's signed answer.
Both carry the browser's secret, to which the challenge is bound (static/js/passkeys.js).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.people import passkeys, recovery_codes
from coordinator.errors import Conflict, SignalboxError
from coordinator.identity import browser_secrets
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import declare_anonymous_access, require_POST
from coordinator.identity.passkeys import passkey_address_problem_or_empty
from coordinator.lib.body_limits import SMALL, declare_request_body_allowance
from dashboard.accounts.views import (
    BACKEND,
    render_sign_in_page,
    safe_next_url_or_default,
    set_sign_in_device_cookie,
)
from dashboard.frame.browser_proof_middleware import (
    NEW,
    allow_post_without_browser_proof,
    build_sign_in_attempt,
    client_address,
)
from dashboard.frame.form_refusals import add_refusal_message_during_block
from dashboard.frame.guards import require_sign_in
from dashboard.frame.htmx import HtmxHttpRequest

Begin = Callable[[str, str, datetime], dict[str, object]]


@allow_post_without_browser_proof
@require_POST
@never_cache
@declare_anonymous_access
def start_passkey_sign_in(request: HtmxHttpRequest) -> HttpResponse:
    """Return the options with which the browser signs in by passkey, as JSON."""
    return begin_passkey_and_build_response(
        request, request.POST.get(NEW, ""), passkeys.begin_passkey_sign_in
    )


@allow_post_without_browser_proof
@require_POST
@never_cache
@declare_anonymous_access
def sign_in_with_passkey(request: HtmxHttpRequest) -> HttpResponse:
    """Sign in the person whose passkey signed the challenge, and redirect to the page that they wanted."""
    goal = safe_next_url_or_default(request, settings.LOGIN_REDIRECT_URL)
    if request.user.is_authenticated:
        return redirect(goal)
    now, secret = timezone.now(), request.POST.get(NEW, "")
    try:
        user = passkeys.sign_in_with_passkey(
            request.POST.get("credential", ""),
            browser_secrets.hash_browser_secret(secret),
            build_sign_in_attempt(request, ""),
            now,
        )
    except SignalboxError as refusal:
        return render_sign_in_page(request, goal, refusal)
    login(request, user, backend=BACKEND)
    request.session.set_expiry(None)  # clear the expiry that an unfinished single sign-on set
    browser_secrets.bind_or_unbind_session_browser(request.session, secret, now, "passkey")
    return set_sign_in_device_cookie(redirect(goal), request, user)


@allow_post_without_browser_proof
@require_POST
@never_cache
@require_sign_in
@declare_request_body_allowance(SMALL)
def start_passkey_confirmation(request: HtmxHttpRequest) -> HttpResponse:
    """Return the options with which the browser confirms the person's identity by passkey, as JSON."""
    user = request.user
    assert isinstance(user, User)
    return begin_passkey_and_build_response(
        request, request.POST.get(NEW, ""), partial(passkeys.begin_passkey_confirmation, user)
    )


@require_POST
@never_cache
@require_sign_in
@declare_request_body_allowance(SMALL)
def start_adding_passkey(request: HtmxHttpRequest) -> HttpResponse:
    """Return the options with which the browser creates a passkey, as JSON."""
    user = request.user
    assert isinstance(user, User)
    return begin_passkey_and_build_response(request, None, partial(passkeys.begin_adding_passkey, user))


@require_POST
@never_cache
@require_sign_in
def add_passkey(request: HtmxHttpRequest) -> HttpResponse:
    """Save the passkey that the browser created, for the signed-in person."""
    assert isinstance(request.user, User)
    with add_refusal_message_during_block(request):
        row = passkeys.add_passkey(
            request.user,
            request.POST.get("credential", ""),
            request.POST.get("name", ""),
            browser=browser_secrets.stored_browser_secret_hash(request.session),
            address=client_address(request),
            now=timezone.now(),
        )
        messages.success(request, f"The passkey {row.name} is added.")
    return redirect("accounts:account")


@require_POST
@never_cache
@require_sign_in
@declare_request_body_allowance(SMALL)
def remove_own_passkey(request: HtmxHttpRequest, passkey_id: int) -> HttpResponse:
    """Remove one of the person's own passkeys."""
    assert isinstance(request.user, User)
    with add_refusal_message_during_block(request):
        row = passkeys.remove_own_passkey(request.user, passkey_id, now=timezone.now())
        messages.success(
            request, f"The passkey {row.name} is removed. Delete it on your device or in your browser, too."
        )
    return redirect("accounts:account")


@require_POST
@never_cache
@require_sign_in
@declare_request_body_allowance(SMALL)
def replace_and_show_recovery_codes(request: HtmxHttpRequest) -> HttpResponse:
    """Replace the person's recovery codes by new ones and show those. They are shown only once."""
    assert isinstance(request.user, User)
    with add_refusal_message_during_block(request):
        codes = recovery_codes.replace_recovery_codes(
            request.user, actor=person_actor(request.user), now=timezone.now()
        )
        return render(request, "accounts/recovery_codes.html", {"codes": codes})
    return redirect("accounts:account")


def begin_passkey_and_build_response(request: HttpRequest, secret: str | None, begin: Begin) -> HttpResponse:
    """Return the options that `begin` makes as JSON, or the refusal's detail and status.

    Args:
        request: The request.
        secret: The browser's secret to which the challenge is bound; None for that of the session.
        begin: The action that makes the options from the secret's hash, the client address and the time.
    """
    browser = (
        browser_secrets.stored_browser_secret_hash(request.session)
        if secret is None
        else browser_secrets.hash_browser_secret(secret)
    )
    try:
        if problem := passkey_address_problem_or_empty(request.scheme or "", request.get_host()):
            raise Conflict(problem)
        return JsonResponse(begin(browser, client_address(request), timezone.now()))
    except SignalboxError as refusal:
        return JsonResponse({"detail": refusal.detail}, status=refusal.status)
