"""Sign in and out, the person's own account, and the page that creates the first administrator."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from coordinator.actions.people import (
    accounts,
    membership,
    passkeys,
    provider_sign_ins,
    recovery_codes,
    setup,
)
from coordinator.errors import SignalboxError
from coordinator.identity import browser_secrets
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import (
    declare_anonymous_access,
    require_http_methods,
    require_POST,
    require_safe,
)
from coordinator.identity.passkeys import passkey_address_problem_or_empty, relying_party_id
from coordinator.identity.roles import APPROVER, has_role
from coordinator.lib.body_limits import SMALL, declare_request_body_allowance
from coordinator.policy.deciders import decider_book as deciders
from dashboard.deciders.delegations import list_delegation_lines
from dashboard.deciders.forms import build_empty_delegation_form
from dashboard.frame import devices, sign_in_ways
from dashboard.frame.browser_proof_middleware import (
    NEW,
    allow_post_without_browser_proof,
    build_sign_in_attempt,
    client_address,
)
from dashboard.frame.forms import FirstAdminForm, FirstPasswordForm, OwnPasswordForm, SignInForm
from dashboard.frame.guards import require_sign_in
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.frame.themes import COOKIE, COOKIE_AGE, THEMES

BACKEND = "django.contrib.auth.backends.ModelBackend"


def safe_next_url_or_default(request: HttpRequest, fallback: str) -> str:
    """Return the URL in `next` if it is a page of this site, else the URL of `fallback` (a URL name)."""
    wanted_url = request.POST.get("next") or request.GET.get("next") or ""
    is_own_url = url_has_allowed_host_and_scheme(
        wanted_url, {request.get_host()}, require_https=request.is_secure()
    )
    return wanted_url if is_own_url else resolve_url(fallback)


@allow_post_without_browser_proof
@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters("password")
@never_cache
@declare_anonymous_access
def show_or_process_sign_in(request: HtmxHttpRequest) -> HttpResponse:
    """Ask for name and password, sign in, and redirect to the page that the person wanted."""
    goal = safe_next_url_or_default(request, settings.LOGIN_REDIRECT_URL)
    if request.user.is_authenticated:
        return redirect(goal)
    if request.method == "POST" and not settings.PASSWORD_SIGN_IN:
        return redirect("accounts:login")  # that page has no password form
    form = SignInForm(request, data=request.POST or None)
    if request.method != "POST":
        return render_sign_in_page(request, goal, form=form)
    try:
        if user := authenticate_and_sign_in_person(request, form):
            return set_sign_in_device_cookie(redirect(goal), request, user)
    except SignalboxError as refusal:
        return render_sign_in_page(request, goal, refusal)
    return render_sign_in_page(request, goal, form=form, status=422)


def render_sign_in_page(
    request: HttpRequest,
    goal: str,
    refusal: SignalboxError | None = None,
    *,
    form: SignInForm | None = None,
    status: int = 200,
) -> HttpResponse:
    """Return the sign-in page.

    Args:
        request: The request.
        goal: The URL that follows after sign-in.
        refusal: Why the sign-in was refused; None if nothing was refused, or the form's errors say it.
        form: The bound form for name and password; None for an empty one.
        status: The HTTP status if there is no `refusal`.
    """
    form = form or SignInForm(request)
    if settings.OIDC_ISSUER:  # most people sign in at the provider, so the password field gets no focus
        form.fields["username"].widget.attrs.pop("autofocus", None)
    context = {
        "form": form,
        "next": goal,
        "problem": refusal.detail if refusal else "",
        "is_new": setup.is_setup_open() and settings.PASSWORD_SIGN_IN,
        "provider": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        "with_password": settings.PASSWORD_SIGN_IN,
        "passkey_problem": passkey_address_problem_or_empty(request.scheme or "", request.get_host()),
    }
    answer = render(request, "accounts/sign_in.html", context, status=refusal.status if refusal else status)
    if refusal and refusal.retry_after:
        answer.headers["Retry-After"] = str(refusal.retry_after)
    return answer


def set_sign_in_device_cookie(answer: HttpResponse, request: HttpRequest, user: User) -> HttpResponse:
    """Set the cookie that marks this browser as one that `user` has signed in with before."""
    answer.set_cookie(
        settings.DEVICE_COOKIE_NAME,
        accounts.sign_device_token(user),
        accounts.DEVICE_KNOWN_FOR,
        path=resolve_url(settings.LOGIN_URL),
        secure=request.is_secure(),
        httponly=True,
        samesite="Lax",
    )
    return answer


def authenticate_and_sign_in_person(request: HtmxHttpRequest, form: SignInForm) -> User | None:
    now, address = timezone.now(), client_address(request)
    username = User.normalize_username(request.POST.get("username", "").strip())
    attempt = build_sign_in_attempt(request, username)
    accounts.require_sign_in_below_limits(attempt, now)
    by: browser_secrets.ConfirmedBy = "password"
    user: User | None
    if form.is_valid():
        user = form.get_user()
    else:
        user = User.objects.filter(username=username).first()
        typed, by = request.POST.get("password", ""), "recovery code"
        if user is None or not recovery_codes.use_recovery_code(user, typed, "SIGNED_IN", address, now):
            accounts.record_failed_sign_in(attempt, now)
            return None
    assert user is not None
    login(request, user, backend=BACKEND)
    request.session.set_expiry(None)  # clear the expiry that an unfinished single sign-on set
    browser_secrets.bind_or_unbind_session_browser(request.session, request.POST.get(NEW, ""), now, by)
    if by == "password":
        accounts.audit_sign_in(user, address, now)
    return user


@require_POST
@never_cache
@require_sign_in
@declare_request_body_allowance(SMALL)
def return_204_after_password_confirmation(_request: HtmxHttpRequest) -> HttpResponse:
    """Return 204. dashboard.frame.browser_proof_middleware has checked the password before this runs."""
    return HttpResponse(status=204)


@allow_post_without_browser_proof
@require_POST
@never_cache
@declare_anonymous_access
def sign_out_person(request: HtmxHttpRequest) -> HttpResponse:
    devices.remove_push_device_of_session(request)
    address = sign_in_ways.provider_logout_url_or_empty(request)
    logout(request)
    messages.success(request, "You are signed out.")
    if address:  # the content security policy forbids forms to lead to another site, so a page does
        context = {"address": address, "provider": settings.OIDC_NAME, "is_leaving": True}
        return render(request, "accounts/provider_leave.html", context)
    return redirect(settings.LOGOUT_REDIRECT_URL)


@require_POST
@require_sign_in
@declare_request_body_allowance(SMALL)
def sign_out_other_browsers(request: HtmxHttpRequest) -> HttpResponse:
    """End all sessions of the person except this one."""
    assert isinstance(request.user, User)
    count = membership.end_person_sessions_and_devices(
        request.user, by=request.user, now=timezone.now(), except_session=request.session.session_key
    )
    messages.success(request, f"You are signed out of {count} other browser{'' if count == 1 else 's'}.")
    return redirect("accounts:account")


@require_safe
@require_sign_in
def show_account(request: HtmxHttpRequest) -> HttpResponse:
    """Show the person's account; approvers also see the delegations that they gave and received."""
    assert isinstance(request.user, User)
    context: dict[str, object] = {
        "passkeys": passkeys.list_passkeys(request.user),
        "passkey_host": relying_party_id(),
        "passkey_problem": passkey_address_problem_or_empty(request.scheme or "", request.get_host()),
        "recovery_codes": recovery_codes.count_unused_recovery_codes(request.user),
        "provider": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        "connected": provider_sign_ins.is_user_connected_to_provider(request.user),
        "may_disconnect": provider_sign_ins.has_password_sign_in(request.user),
        "has_unknown_password": accounts.has_unknown_password(request.user),
    }
    if context["connected"] and context["may_disconnect"]:
        role = provider_sign_ins.role_after_provider_disconnect(request.user)
        context["role_then"] = f"the role {role}" if role else "no role until an administrator gives you one"
        context["knows_role_then"] = bool(role)
    if has_role(request.user, APPROVER):
        book = deciders.load_decider_book(timezone.now())
        context["delegations"] = list_delegation_lines(request.user, book.now, of=request.user)
        context["delegate"] = build_empty_delegation_form(request.user, book)
    return render(request, "accounts/account.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters()
@never_cache
@require_sign_in
def change_own_password(request: HtmxHttpRequest) -> HttpResponse:
    """Change the person's password, or set their first one. This session continues, their others end."""
    assert isinstance(request.user, User)
    if not provider_sign_ins.has_password_sign_in(request.user):
        return redirect("accounts:account")  # that page says how they sign in
    is_first = accounts.has_unknown_password(request.user)
    form_class = FirstPasswordForm if is_first else OwnPasswordForm
    form: SetPasswordForm[User] = form_class(request.user, request.POST or None)
    if request.method != "POST" or not form.is_valid():
        status = 422 if request.method == "POST" else 200
        context = {"form": form, "is_first": is_first}
        return render(request, "accounts/password.html", context, status=status)
    by = person_actor(request.user)
    accounts.change_password(request.user, form.cleaned_data["new_password1"], actor=by, now=timezone.now())
    update_session_auth_hash(request, request.user)
    done = "set" if is_first else "changed"
    messages.success(request, f"Your password is {done}. Your other sessions have ended.")
    return set_sign_in_device_cookie(redirect("accounts:account"), request, request.user)


@allow_post_without_browser_proof
@require_POST
@declare_anonymous_access
def save_theme_in_cookie(request: HtmxHttpRequest) -> HttpResponse:
    """Save the chosen theme in a cookie, for browsers without JavaScript.

    With JavaScript, static/js/theme.js sets the cookie itself.
    """
    response = HttpResponseRedirect(safe_next_url_or_default(request, settings.LOGIN_REDIRECT_URL))
    chosen = THEMES.get(request.POST.get("theme", ""), THEMES["system"])
    response.set_cookie(COOKIE, chosen.name, COOKIE_AGE, samesite="Lax", secure=request.is_secure())
    return response


@allow_post_without_browser_proof
@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters()
@never_cache
@declare_anonymous_access
def create_first_admin(request: HtmxHttpRequest) -> HttpResponse:
    """Create the first administrator for a person with the one-time link, and sign them in."""
    token = request.POST.get("token") or request.GET.get("token") or ""
    form = FirstAdminForm(request.POST or None)
    problem = setup.setup_token_problem_or_empty(token)
    if not problem and request.method == "POST" and form.is_valid():
        try:
            name, secret = form.cleaned_data["username"], form.cleaned_data["password1"]
            now = timezone.now()
            user = setup.redeem_setup_token(token, name, secret, now)
            login(request, user, backend=BACKEND)
            request.session.set_expiry(None)
            browser_secrets.bind_or_unbind_session_browser(request.session, request.POST.get(NEW, ""), now)
            return set_sign_in_device_cookie(redirect("overview"), request, user)
        except SignalboxError as refusal:
            problem = refusal.detail
    status = 409 if problem else 422 if request.method == "POST" else 200
    return render(
        request, "accounts/set_up.html", {"form": form, "token": token, "problem": problem}, status=status
    )
