"""All that changes anything on people's pages takes more than a cookie (coordinator.identity.proofs says why).

Middleware rather than a decorator, so that no view can forget it: Django's admin and views that are still to be
written are behind it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.utils.deprecation import MiddlewareMixin

from coordinator.actions.people import accounts
from coordinator.errors import SignalboxError
from coordinator.identity import proofs
from coordinator.identity.proofs import Lack
from dashboard.frame import sign_in_ways

WANTED = "Signalbox-Confirm"  # on a refusal: static/js/proof.js then asks for the password
FIELD, PASSWORD, NEW = "proof", "confirm_password", "new_proof"
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
MESSAGES: dict[Lack, str] = {
    "missing": "This browser could not prove that it is the one you signed in with.",
    "wrong": "You signed in to this session in another browser.",
    "old": "You signed in some time ago.",
}

View = TypeVar("View", bound=Callable[..., object])


def allow_without_proof(view: View) -> View:
    """Let a view's POST pass with the cookie alone: it decides nothing, or must work for everybody."""
    view.without_proof = True  # type: ignore[attr-defined]
    return view


@dataclass(frozen=True, slots=True)
class OfferedProof:
    """What came along to prove who asks; "" for what did not."""

    secret: str
    password: str
    new_secret: str


class RequireProof(MiddlewareMixin):
    """Refuses unsafe requests of signed-in people that lack the proof and the password."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., object], args: object, kwargs: object
    ) -> HttpResponse | None:
        if request.method in SAFE or not request.path.startswith(settings.PAGES):
            return None
        if getattr(view, "without_proof", False) or not isinstance(request.user, User):
            return None
        offered, now = pop_offered_proof(request), timezone.now()
        lack = proofs.find_proof_problem(request.session, offered.secret, now)
        if lack is None:
            return None
        if not offered.password or sign_in_ways.session_provider_name(request):
            accounts.record_unproven_sign_in(
                request.user, client_address(request), f"{request.method} {request.path}", now
            )
            return ask_for_proof(request, f"{MESSAGES[lack]} {proof_instruction(request)}")
        try:
            accounts.verify_sign_in_password(
                request.user, offered.password, build_sign_in_attempt(request, request.user.username), now
            )
        except SignalboxError as refusal:
            return ask_for_proof(request, refusal.detail, refusal)
        if offered.new_secret:
            proofs.bind_session_to_browser(request.session, offered.new_secret, now)
        return None


def client_address(request: HttpRequest) -> str:
    """Return the caller's address; the edge has already replaced a trusted proxy's by its client's."""
    return str(request.META.get("REMOTE_ADDR") or "unknown")


def build_sign_in_attempt(request: HttpRequest, username: str) -> accounts.SignInAttempt:
    return accounts.SignInAttempt(
        username, client_address(request), request.COOKIES.get(settings.DEVICE_COOKIE_NAME, "")
    )


def pop_offered_proof(request: HttpRequest) -> OfferedProof:
    """Take what proves the sign-in out of the form, so that no view keeps it."""
    secret, password, new_secret = (request.POST.get(name, "") for name in (FIELD, PASSWORD, NEW))
    if not request.POST.keys().isdisjoint({FIELD, PASSWORD, NEW}):
        form = request.POST.copy()
        for name in (FIELD, PASSWORD, NEW):
            form.pop(name, None)
        form._mutable = False
        request.POST = form  # type: ignore[assignment] # a form that is not to change is of another type there
    return OfferedProof(request.headers.get(proofs.HEADER, secret), password, new_secret)


def proof_instruction(request: HttpRequest) -> str:
    provider = sign_in_ways.session_provider_name(request)
    return f"Confirm with {provider} to continue." if provider else "Enter your password to continue."


def ask_for_proof(request: HttpRequest, message: str, refusal: SignalboxError | None = None) -> HttpResponse:
    """Ask for the password, or to go to the provider: a page with the form as it was sent; words for a script."""
    status = refusal.status if refusal else 403
    answer: HttpResponse
    if request.headers.get("HX-Request"):
        answer = JsonResponse({"detail": message}, status=status)
    else:
        context = {
            "message": message,
            "is_wrong": refusal is not None,
            "sent": list_form_pairs(request.POST),
            "lost_files": bool(request.FILES),
        }
        answer = render(request, "accounts/confirm.html", context, status=status)
    answer.headers[WANTED] = "provider" if sign_in_ways.session_provider_name(request) else "password"
    if refusal and refusal.retry_after:
        answer.headers["Retry-After"] = str(refusal.retry_after)
    add_never_cache_headers(answer)
    return answer


def list_form_pairs(form: QueryDict) -> list[tuple[str, object]]:
    return [
        (name, value) for name, values in form.lists() if name != "csrfmiddlewaretoken" for value in values
    ]
