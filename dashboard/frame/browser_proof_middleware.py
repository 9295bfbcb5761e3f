"""Requires proof of the browser, not only a cookie, for all changes on people's pages.

coordinator.identity.browser_secrets explains why. This is middleware and not a decorator, so that it protects
every view, including Django's admin and views that are written later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.utils.deprecation import MiddlewareMixin

from coordinator.actions.people import accounts, passkeys, recovery_codes
from coordinator.errors import Forbidden, SignalboxError
from coordinator.identity import browser_secrets
from coordinator.identity.browser_secrets import ConfirmedBy, Lack
from coordinator.identity.passkeys import passkey_address_problem_or_empty
from dashboard.frame import confirmations
from dashboard.frame.confirmations import Way

WANTED = "Signalbox-Confirm"  # header of a refusal: static/js/proof.js then asks for a confirmation
FIELD, PASSWORD, PASSKEY, NEW = "proof", "confirm_password", "confirm_passkey", "new_proof"
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
MESSAGES: dict[Lack, str] = {
    "missing": "This browser could not prove that it is the one you signed in with.",
    "wrong": "You signed in to this session in another browser.",
    "old": "You signed in some time ago.",
    "unconfirmed": "This needs a recent confirmation that it is you.",
}
INSTRUCTIONS: dict[Way, str] = {
    "passkey": "Use your passkey",
    "password": "Enter your password",
    "recovery": "Enter a recovery code",
}

View = TypeVar("View", bound=Callable[..., object])


def allow_post_without_browser_proof(view: View) -> View:
    """Exempt a view's POST from the proof, because it decides nothing or must work for everybody."""
    view.without_proof = True  # type: ignore[attr-defined]
    return view


@dataclass(frozen=True, slots=True)
class OfferedProof:
    """The proofs that a request carries; an empty text for each that is missing."""

    secret: str
    password: str  # or a recovery code
    passkey: str  # a browser's answer, as JSON
    new_secret: str


class RequireProof(MiddlewareMixin):
    """Refuses unsafe requests of signed-in people without the browser's proof or a required confirmation."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., object], args: object, kwargs: object
    ) -> HttpResponse | None:
        if request.method in SAFE or not request.path.startswith(settings.PAGES):
            return None
        if getattr(view, "without_proof", False) or not isinstance(request.user, User):
            return None
        offered, now = pop_identity_proof_from_form(request), timezone.now()
        within = confirmations.required_confirmation_age_or_none(request, view)
        only_passkey = within is not None and confirmations.should_confirm_with_passkey(request.user)
        lack = browser_secrets.find_browser_secret_problem(request.session, offered.secret, now)
        if lack is None and within is not None:
            is_confirmed = browser_secrets.is_person_recently_confirmed(
                request.session, within, now, needs_passkey=only_passkey
            )
            lack = None if is_confirmed else "unconfirmed"
        if lack is None:
            return None
        ways = confirmations.list_confirmation_ways(request, only_passkey=only_passkey)
        try:
            confirmed_by = confirm_identity_with_offered_proof(request, offered, ways, now)
        except SignalboxError as refusal:
            return render_identity_confirmation_page(request, str(refusal.detail), ways, refusal)
        if confirmed_by is None:
            if lack != "unconfirmed":
                request_line = f"{request.method} {request.path}"
                accounts.audit_unproven_session_attempt(
                    request.user, client_address(request), request_line, now
                )
            return render_identity_confirmation_page(
                request, f"{MESSAGES[lack]} {describe_identity_confirmation_ways(ways)}", ways
            )
        if offered.new_secret:
            browser_secrets.bind_or_unbind_session_browser(
                request.session, offered.new_secret, now, confirmed_by
            )
        return None


def confirm_identity_with_offered_proof(
    request: HttpRequest, offered: OfferedProof, ways: list[Way], now: datetime
) -> ConfirmedBy | None:
    """Return how the person confirmed their identity with this request; None if they did not.

    Raises Forbidden if a proof is wrong, and TooManyRequests after many wrong ones.
    """
    assert isinstance(request.user, User)
    attempt = build_sign_in_attempt(request, request.user.username)
    if offered.passkey and "passkey" in ways:
        browser = browser_secrets.hash_browser_secret(offered.new_secret)
        passkeys.confirm_with_passkey(request.user, offered.passkey, browser, attempt, now)
        return "passkey"
    if not offered.password or "provider" in ways:
        return None
    accounts.require_sign_in_below_limits(attempt, now)
    if recovery_codes.use_recovery_code(
        request.user, offered.password, "SIGN_IN_CONFIRMED", attempt.address, now
    ):
        return "recovery code"
    if "password" not in ways:
        accounts.record_failed_sign_in(attempt, now)
        raise Forbidden("This is not one of your unused recovery codes. Try again.")
    accounts.confirm_password_and_audit(request.user, offered.password, attempt, now)
    return "password"


def client_address(request: HttpRequest) -> str:
    """Return the client's address. For requests through a trusted proxy, the edge has already resolved it."""
    return str(request.META.get("REMOTE_ADDR") or "unknown")


def build_sign_in_attempt(request: HttpRequest, username: str) -> accounts.SignInAttempt:
    return accounts.SignInAttempt(
        username, client_address(request), request.COOKIES.get(settings.DEVICE_COOKIE_NAME, "")
    )


def pop_identity_proof_from_form(request: HttpRequest) -> OfferedProof:
    """Return the request's proofs and remove them from `request.POST`, so that no view stores them."""
    names = (FIELD, PASSWORD, PASSKEY, NEW)
    secret, password, passkey, new_secret = (request.POST.get(name, "") for name in names)
    if not request.POST.keys().isdisjoint(names):
        form = request.POST.copy()
        for name in names:
            form.pop(name, None)
        form._mutable = False
        request.POST = form  # type: ignore[assignment] # a form that is not to change is of another type there
    return OfferedProof(request.headers.get(browser_secrets.HEADER, secret), password, passkey, new_secret)


def describe_identity_confirmation_ways(ways: list[Way]) -> str:
    """Return how the person can confirm their identity, as a sentence."""
    parts = [INSTRUCTIONS.get(way, f"confirm with {settings.OIDC_NAME}") for way in ways]
    text = " or ".join([parts[0], *(part[0].lower() + part[1:] for part in parts[1:])])
    return f"{text[0].upper()}{text[1:]} to continue."


def render_identity_confirmation_page(
    request: HttpRequest, message: str, ways: list[Way], refusal: SignalboxError | None = None
) -> HttpResponse:
    """Return a page that asks for a confirmation and repeats the form; for htmx the message as JSON."""
    status = refusal.status if refusal else 403
    answer: HttpResponse
    if request.headers.get("HX-Request"):
        answer = JsonResponse({"detail": message}, status=status)
    else:
        context = {
            "message": message,
            "is_wrong": refusal is not None,
            "ways": ways,
            "passkey_problem": passkey_address_problem_or_empty(request.scheme or "", request.get_host()),
            "sent": list_form_pairs_without_csrf(request.POST),
            "lost_files": bool(request.FILES),
        }
        answer = render(request, "accounts/confirm.html", context, status=status)
    answer.headers[WANTED] = " ".join(ways)
    if refusal and refusal.retry_after:
        answer.headers["Retry-After"] = str(refusal.retry_after)
    add_never_cache_headers(answer)
    return answer


def list_form_pairs_without_csrf(form: QueryDict) -> list[tuple[str, object]]:
    return [
        (name, value) for name, values in form.lists() if name != "csrfmiddlewaretoken" for value in values
    ]
