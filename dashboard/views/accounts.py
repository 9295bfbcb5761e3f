"""Signing in and out, the person's own account, and the page where the first administrator is made."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from coordinator.actions import accounts, provider_sign_ins, setup
from coordinator.errors import SignalboxError
from coordinator.identity import proofs
from coordinator.identity.actors import person
from coordinator.identity.roles import APPROVER, has_role
from coordinator.policy import deciders
from dashboard.deciders.delegations import shown
from dashboard.deciders.forms import empty_delegation
from dashboard.frame import devices, sign_in_ways
from dashboard.frame.forms import SetUpForm, SignInForm
from dashboard.frame.guards import signed_in
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.frame.proofs import NEW, address_of, attempt_of, without_proof
from dashboard.frame.themes import COOKIE, COOKIE_AGE, THEMES

BACKEND = "django.contrib.auth.backends.ModelBackend"


def next_url(request: HttpRequest, fallback: str) -> str:
    """Return where the person was going, if that is a page of ours; else `fallback` (a URL name)."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    ours = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if ours else resolve_url(fallback)


@without_proof
@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters("password")
@never_cache
def sign_in(request: HtmxHttpRequest) -> HttpResponse:
    """Ask for name and password, and lead back to where the person was going."""
    goal = next_url(request, settings.LOGIN_REDIRECT_URL)
    if request.user.is_authenticated:
        return redirect(goal)
    if request.method == "POST" and not settings.PASSWORD_SIGN_IN:
        return redirect("accounts:login")  # whose page has no form for one
    form = SignInForm(request, data=request.POST or None)
    problem, status, retry_after = "", 200, None
    if request.method == "POST":
        try:
            if user := _signed_in(request, form):
                return knowing_device(redirect(goal), request, user)
            status = 422
        except SignalboxError as refusal:
            problem, status, retry_after = refusal.detail, refusal.status, refusal.retry_after
            form = SignInForm(request)
    if settings.OIDC_ISSUER:  # most sign in there: the page does not begin in the form for the others
        form.fields["username"].widget.attrs.pop("autofocus", None)
    context = {
        "form": form,
        "next": goal,
        "problem": problem,
        "is_new": setup.is_open() and settings.PASSWORD_SIGN_IN,
    }
    context |= {
        "provider": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        "with_password": settings.PASSWORD_SIGN_IN,
    }
    answer = render(request, "accounts/sign_in.html", context, status=status)
    if retry_after:
        answer.headers["Retry-After"] = str(retry_after)
    return answer


def knowing_device(answer: HttpResponse, request: HttpRequest, user: User) -> HttpResponse:
    """Mark this browser as one that `user` has signed in with (coordinator.actions.accounts)."""
    answer.set_cookie(
        settings.DEVICE_COOKIE_NAME,
        accounts.device_mark(user),
        accounts.DEVICE_KNOWN_FOR,
        path=resolve_url(settings.LOGIN_URL),
        secure=request.is_secure(),
        httponly=True,
        samesite="Lax",
    )
    return answer


def _signed_in(request: HtmxHttpRequest, form: SignInForm) -> User | None:
    now, address = timezone.now(), address_of(request)
    username = User.normalize_username(request.POST.get("username", "").strip())
    attempt = attempt_of(request, username)
    accounts.check_tries(attempt, now)
    if not form.is_valid():
        accounts.note_failed_sign_in(attempt, now)
        return None
    user = form.get_user()
    assert isinstance(user, User)
    login(request, user)
    request.session.set_expiry(None)  # single sign-on that was begun and given up left its own
    proofs.bind(request.session, request.POST.get(NEW, ""), now)
    accounts.note_sign_in(user, address, now)
    return user


@require_POST
@never_cache
@signed_in
def confirm(_request: HtmxHttpRequest) -> HttpResponse:
    """Take the password once more (dashboard.frame.proofs has done so when this runs)."""
    return HttpResponse(status=204)


@without_proof
@require_POST
@never_cache
def sign_out(request: HtmxHttpRequest) -> HttpResponse:
    devices.sign_off(request)
    address = sign_in_ways.sign_out_address(request)
    logout(request)
    messages.success(request, "You are signed out.")
    if address:  # no form may lead to another site, so a page does
        context = {"address": address, "provider": settings.OIDC_NAME, "is_leaving": True}
        return render(request, "accounts/provider_leave.html", context)
    return redirect(settings.LOGOUT_REDIRECT_URL)


@require_safe
@signed_in
def account(request: HtmxHttpRequest) -> HttpResponse:
    """Show who they are and, to who may decide, what they handed over and what was handed to them."""
    assert isinstance(request.user, User)
    context: dict[str, object] = {
        "provider": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        "connected": provider_sign_ins.is_connected(request.user),
        "may_disconnect": provider_sign_ins.has_another_way(request.user),
    }
    if context["connected"] and context["may_disconnect"]:
        role = provider_sign_ins.role_after_disconnecting(request.user)
        context["role_then"] = f"the role {role}" if role else "no role until an administrator gives you one"
        context["knows_role_then"] = bool(role)
    if has_role(request.user, APPROVER):
        book = deciders.load(timezone.now())
        context["delegations"] = shown(request.user, book.now, of=request.user)
        context["delegate"] = empty_delegation(request.user, book)
    return render(request, "accounts/account.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters()
@never_cache
@signed_in
def password(request: HtmxHttpRequest) -> HttpResponse:
    """Change the person's own password; this session goes on, their others end."""
    assert isinstance(request.user, User)
    if not request.user.has_usable_password():
        return redirect("accounts:account")  # which says how they sign in
    form = PasswordChangeForm(request.user, request.POST or None)
    if request.method != "POST" or not form.is_valid():
        status = 422 if request.method == "POST" else 200
        return render(request, "accounts/password.html", {"form": form}, status=status)
    by = person(request.user)
    accounts.change_password(request.user, form.cleaned_data["new_password1"], by=by, now=timezone.now())
    update_session_auth_hash(request, request.user)
    messages.success(request, "Your password is changed. Your other sessions have ended.")
    return knowing_device(redirect("accounts:account"), request, request.user)


@without_proof
@require_POST
def theme(request: HtmxHttpRequest) -> HttpResponse:
    """Keep the choice of colours in a cookie (static/js/theme.js does so without asking here)."""
    response = HttpResponseRedirect(next_url(request, settings.LOGIN_REDIRECT_URL))
    chosen = THEMES.get(request.POST.get("theme", ""), THEMES["system"])
    response.set_cookie(COOKIE, chosen.name, COOKIE_AGE, samesite="Lax", secure=request.is_secure())
    return response


@without_proof
@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters()
@never_cache
def set_up(request: HtmxHttpRequest) -> HttpResponse:
    """Make the first administrator, for whoever holds the one-time link, and sign them in."""
    token = request.POST.get("token") or request.GET.get("token") or ""
    form = SetUpForm(request.POST or None)
    problem = setup.problem_of(token)
    if not problem and request.method == "POST" and form.is_valid():
        try:
            name, secret = form.cleaned_data["username"], form.cleaned_data["password1"]
            now = timezone.now()
            user = setup.redeem(token, name, secret, now)
            login(request, user, backend=BACKEND)
            request.session.set_expiry(None)
            proofs.bind(request.session, request.POST.get(NEW, ""), now)
            return knowing_device(redirect("overview"), request, user)
        except SignalboxError as refusal:
            problem = refusal.detail
    status = 409 if problem else 422 if request.method == "POST" else 200
    return render(
        request, "accounts/set_up.html", {"form": form, "token": token, "problem": problem}, status=status
    )
