"""Sign in at the single sign-on provider, and confirm one's identity there again.

Leaving is a form with the browser's secret and the CSRF token. It is answered with a page that leads to the
provider, since the content security policy forbids forms to lead to another site.

Coming back is a URL that anybody may open. It only shows a form, which submits itself with the browser's
secret (static/js/provider.js). So a sign-in or a confirmation takes effect only in the browser that began it:
nobody can be signed in as somebody else by a link, and a stolen cookie alone confirms nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import SESSION_KEY, login
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.people import provider_sign_ins
from coordinator.errors import Forbidden, SignalboxError
from coordinator.identity import browser_secrets
from coordinator.identity.declarations import declare_anonymous_access, require_http_methods, require_POST
from coordinator.identity.openid.identities import Purpose
from coordinator.identity.session_store import SessionStore
from coordinator.lib.body_limits import SMALL, declare_request_body_allowance
from dashboard.accounts.views import BACKEND, safe_next_url_or_default
from dashboard.frame import sign_in_ways
from dashboard.frame.browser_proof_middleware import NEW, allow_post_without_browser_proof, client_address
from dashboard.frame.guards import require_sign_in
from dashboard.frame.htmx import HtmxHttpRequest

NO_SCRIPT = "Confirming needs JavaScript and this browser's storage. Allow both, then try again."


def hide_view_without_provider(
    view: Callable[[HtmxHttpRequest], HttpResponse],
) -> Callable[[HtmxHttpRequest], HttpResponse]:
    """Wrap a view so that it answers 404 if no single sign-on provider is configured."""

    @wraps(view)
    def check_provider_configured(request: HtmxHttpRequest) -> HttpResponse:
        if not settings.OIDC_ISSUER:
            raise Http404
        return view(request)

    return check_provider_configured


@allow_post_without_browser_proof
@require_POST
@never_cache
@hide_view_without_provider
@declare_anonymous_access
def start_provider_sign_in(request: HtmxHttpRequest) -> HttpResponse:
    """Send the browser to the provider to sign in."""
    goal = safe_next_url_or_default(request, settings.LOGIN_REDIRECT_URL)
    if request.user.is_authenticated:
        return redirect(goal)
    return begin_flow_and_render_provider_link(
        request, "sign in", goal, browser_secrets.hash_browser_secret(request.POST.get(NEW, ""))
    )


@allow_post_without_browser_proof
@require_POST
@never_cache
@require_sign_in
@hide_view_without_provider
@declare_request_body_allowance(SMALL)
def start_provider_confirmation(request: HtmxHttpRequest) -> HttpResponse:
    """Send the browser to the provider, so that the signed-in person confirms their identity there."""
    if not browser_secrets.SHAPE.fullmatch(request.POST.get(NEW, "")):
        return record_and_render_provider_refusal(request, Forbidden(NO_SCRIPT))
    return begin_flow_and_render_provider_link(
        request,
        "confirm",
        resolve_url("accounts:account"),
        browser_secrets.hash_browser_secret(request.POST[NEW]),
    )


@require_POST
@never_cache
@require_sign_in
@hide_view_without_provider
@declare_request_body_allowance(SMALL)
def start_provider_connection(request: HtmxHttpRequest) -> HttpResponse:
    """Send the browser to the provider, to connect the person's account with their account there."""
    secret = browser_secrets.stored_browser_secret_hash(request.session)
    if not secret:
        return record_and_render_provider_refusal(request, Forbidden(NO_SCRIPT))
    return begin_flow_and_render_provider_link(request, "connect", resolve_url("accounts:account"), secret)


@require_POST
@never_cache
@require_sign_in
@declare_request_body_allowance(SMALL)
def disconnect_from_provider(request: HtmxHttpRequest) -> HttpResponse:
    """Disconnect the person's Signalbox account from their account at the provider."""
    assert isinstance(request.user, User)
    try:
        provider_sign_ins.disconnect_provider_account(request.user, client_address(request), timezone.now())
    except SignalboxError as refusal:
        messages.error(request, refusal.detail)
    else:
        sign_in_ways.mark_session_password_signed_in(request)
        messages.success(request, f"Your account is no longer connected with {settings.OIDC_NAME}.")
    return redirect("accounts:account")


@allow_post_without_browser_proof
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@hide_view_without_provider
@declare_anonymous_access
def receive_redirect_from_provider(request: HtmxHttpRequest) -> HttpResponse:
    """Show the form for the provider's answer (GET), which has no effect yet, or process that form (POST)."""
    if request.method != "POST":
        names = ("code", "state", "iss", "error")
        parameters = {name: request.GET[name] for name in names if name in request.GET}
        return render(
            request,
            "accounts/provider_back.html",
            {"sent": parameters, "provider": settings.OIDC_NAME, "action": request.path, "makes_proof": True},
        )
    try:
        return finish_provider_sign_in_flow(request, timezone.now())
    except SignalboxError as refusal:
        return record_and_render_provider_refusal(request, refusal)


def begin_flow_and_render_provider_link(
    request: HtmxHttpRequest, purpose: Purpose, goal: str, secret: str
) -> HttpResponse:
    from coordinator.identity.openid import flow  # noqa: PLC0415 - an extra, which may not be there

    now = timezone.now()
    try:
        address = flow.begin_flow_and_build_url(
            request.session,
            purpose,
            secret=secret,
            goal=goal,
            now=now,
            user=request.user.pk,
        )
    except SignalboxError as refusal:
        return record_and_render_provider_refusal(request, refusal)
    if not request.user.is_authenticated:
        request.session.set_expiry(flow.GOOD_FOR)
    return render(
        request, "accounts/provider_leave.html", {"address": address, "provider": settings.OIDC_NAME}
    )


def finish_provider_sign_in_flow(request: HtmxHttpRequest, now: datetime) -> HttpResponse:
    """Verify the provider's answer, then do what the flow was begun for: sign in, connect or confirm."""
    from coordinator.identity.openid import flow  # noqa: PLC0415
    from coordinator.identity.openid.errors import SignInRefused  # noqa: PLC0415

    address, secret = client_address(request), request.POST.get(NEW, "")
    session = request.session
    assert isinstance(session, SessionStore)
    with session.lock_and_save_during_block():  # the flow is consumed: the same answer sent again is refused
        begun = flow.consume_sign_in_flow(session, request.POST.get("state", ""), secret, now)
    if error := request.POST.get("error"):
        raise SignInRefused(
            f"the provider says {error[:100]!r}", f"{settings.OIDC_NAME} did not sign you in."
        )
    provider_sign_ins.require_provider_codes_below_limit(
        address, provider_device_cookie_or_empty(request), now
    )
    identity, id_token = flow.redeem_and_verify_sign_in(
        begun, code=request.POST.get("code", ""), issuer=request.POST.get("iss", ""), now=now
    )
    session.try_reload_session_data()  # other tabs may have changed or ended the session meanwhile
    if begun.purpose == "sign in":
        user = provider_sign_ins.sign_in_verified_identity(identity, address, now)
        login(request, user, backend=BACKEND)
    elif not isinstance(request.user, User) or not request.user.pk == begun.user == find_session_user_id(
        session
    ):
        raise SignInRefused("somebody else is signed in by now", flow.GONE)
    elif begun.purpose == "connect":
        provider_sign_ins.connect_provider_account(request.user, identity, address, now)
        messages.success(request, f"Your account is connected with {settings.OIDC_NAME}.")
        return redirect(begun.goal)
    else:
        provider_sign_ins.confirm_provider_identity(request.user, identity, address, now)
    # A sign-in may use the provider's existing session; a confirmation requires a new sign-in there.
    browser_secrets.bind_or_unbind_session_browser(
        session, secret, now, "provider" if begun.purpose == "confirm" else "provider session"
    )
    sign_in_ways.store_provider_sign_in(
        request, id_token, until=now + timedelta(seconds=settings.SIGN_IN_GOOD_FOR)
    )
    if begun.purpose == "confirm":
        return render(request, "accounts/provider_confirmed.html")
    answer = redirect(begun.goal)
    return set_provider_device_cookie(answer, request) if begun.purpose == "sign in" else answer


def provider_device_cookie_or_empty(request: HttpRequest) -> str:
    return request.COOKIES.get(settings.PROVIDER_DEVICE_COOKIE_NAME, "")


def set_provider_device_cookie(answer: HttpResponse, request: HttpRequest) -> HttpResponse:
    """Set the cookie by which coordinator.actions.people.provider_sign_ins recognises this browser later."""
    answer.set_cookie(
        settings.PROVIDER_DEVICE_COOKIE_NAME,
        provider_sign_ins.sign_provider_device_token(),
        provider_sign_ins.DEVICE_KNOWN_FOR,
        path=resolve_url("accounts:provider-back"),
        secure=request.is_secure(),
        httponly=True,
        samesite="Lax",
    )
    return answer


def find_session_user_id(session: SessionStore) -> int | None:
    """Return the id of the user whose session this is, as stored now; None if the session has ended."""
    user_id = session.get(SESSION_KEY)
    return int(user_id) if user_id else None


def record_and_render_provider_refusal(request: HttpRequest, refusal: SignalboxError) -> HttpResponse:
    """Record why nobody was signed in, and show the reason."""
    problem = getattr(refusal, "problem", "") or f"{type(refusal).__name__}: {refusal.detail}"
    provider_sign_ins.record_provider_refusal(
        refusal, problem, client_address(request), provider_device_cookie_or_empty(request), timezone.now()
    )
    kind = type(refusal).__name__
    context = {
        "detail": refusal.detail,
        "kind": kind,
        "provider": settings.OIDC_NAME,
        "with_password": settings.PASSWORD_SIGN_IN,
    }
    answer = render(request, "accounts/provider_refused.html", context, status=refusal.status)
    if refusal.retry_after:
        answer.headers["Retry-After"] = str(refusal.retry_after)
    return answer
