"""What every Django response passes through, beside Django's own middleware."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.http.request import split_domain_port
from django.middleware.gzip import GZipMiddleware
from django.urls import get_resolver
from django.utils.deprecation import MiddlewareMixin

from coordinator.feed import reader as feed
from coordinator.lib import trace
from coordinator.lib.listening_sockets import is_loopback

Handler = Callable[[HttpRequest], HttpResponse]


class TraceId:
    """Takes over the id that the edge gave the request and answers with (edge/observing.py)."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        trace.begin_trace(request.META.get("signalbox.trace_id"))
        try:
            return self.get_response(request)
        finally:
            trace.end_trace()


class LivePosition:
    """Notes on each request how far the feed had come when it began: a page's stream starts there."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.live_after = feed.local_feed_position()  # type: ignore[attr-defined]
        return self.get_response(request)


class CompressPages(GZipMiddleware):
    """Compresses people's pages for browsers that take it.

    What compresses together can be guessed by its length (BREACH). A page of another site cannot have ours loaded again
    and again with a person's cookie (SameSite), each answer has another CSRF token, and Django adds up to 100 bytes at
    random. Keys and links that are shown once are answers to forms that prove their sender, so they cannot be repeated.
    Answers to programs, downloads and streams stay as they are.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_page = response.headers.get("Content-Type", "").startswith("text/html")
        if response.streaming or not is_page or not request.path.startswith(settings.PAGES):
            return response
        return super().process_response(request, response)


class RefuseNul:
    """Answers 400 to a NUL character in a path, a query or the session cookie (where `\\000` in quotes means one):
    PostgreSQL has no form for it, and nobody needs it."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        cookie = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        if "\x00" in request.path + cookie or "%00" in request.META.get("QUERY_STRING", ""):
            return build_nul_character_response(request, "the address")
        return self.get_response(request)


class RefuseNulInForms(MiddlewareMixin):
    """Answers 400 to a NUL character in a form of a page; programs' endpoints have checks of their own.

    It stands behind CsrfViewMiddleware, which has read the form: no body is read for whoever could not post it.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., object], args: object, kwargs: object
    ) -> HttpResponse | None:
        if request.method != "POST" or not request.path.startswith(settings.PAGES):
            return None
        holds_nul = any("\x00" in text for name, values in request.POST.lists() for text in (name, *values))
        return build_nul_character_response(request, "a form") if holds_nul else None


def build_nul_character_response(request: HttpRequest, where: str) -> HttpResponse:
    # Not raised: Django would log a traceback for each.
    refuse: Callable[..., HttpResponse] = get_resolver().resolve_error_handler(400)
    return refuse(request, exception=BadRequest(f"a NUL character in {where}"))


class OwnHost:
    """Leads people from the bare loopback address to the host name that their cookies are kept under."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not settings.OWN_HOST or not request.path.startswith(settings.PAGES):
            return self.get_response(request)
        name, port = split_domain_port(request.get_host())
        if not is_loopback(name.strip("[]")):
            return self.get_response(request)
        own_origin = f"http://{settings.OWN_HOST}{f':{port}' if port else ''}"  # the port may be forwarded
        if request.method in {"GET", "HEAD"}:
            return HttpResponseRedirect(own_origin + request.get_full_path())
        return HttpResponse(f"Nothing was changed. Sign in at {own_origin}", "text/plain", status=403)


class ContentSecurityPolicy:
    """Sets the one strict policy of settings.SECURE_CSP (Django 6 brings its own; delete this then)."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response
        self.policy = "; ".join(f"{name} {' '.join(values)}" for name, values in settings.SECURE_CSP.items())

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", self.policy)
        return response


class NoStore:
    """Keeps every answer out of caches, also the browser's own: on a shared machine they outlive the sign-out.

    It stands behind WhiteNoise, whose files are nobody's secret.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if "no-store" not in response.headers.get("Cache-Control", ""):
            response.headers["Cache-Control"] = "no-store"
        return response


class MachineMethods:
    """Lets machines read a refused method as every other error: `{"detail": "Method Not Allowed"}`, with Allow."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code == 405 and not request.path.startswith(settings.PAGES):
            response.content = b'{"detail":"Method Not Allowed"}'
            response.headers["Content-Type"] = "application/json"
        return response
