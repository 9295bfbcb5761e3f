"""Error responses: a page for browsers, `{"detail": …}` for programs."""

from __future__ import annotations

import logging
import sys
from http import HTTPStatus

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from coordinator.errors import SignalboxError
from coordinator.lib import trace

logger = logging.getLogger(__name__)

BUSY = "The database is busy. Check whether your change was saved, then try again."
# The end of get_object_or_404's message, which names a class. It is not shown; the page has its own text.
DJANGOS_OWN = "matches the given query."
PLAIN_500 = "<!doctype html><title>Signalbox</title><h1>Something went wrong</h1><p>Trace {}</p>"


def wants_html_page(request: HttpRequest) -> bool:
    """Return whether to answer with an HTML page: for people's paths, or if the client accepts HTML."""
    return request.path.startswith(settings.PAGES) or "text/html" in request.headers.get("Accept", "")


def build_json_error_response(status: int) -> JsonResponse:
    return JsonResponse({"detail": HTTPStatus(status).phrase}, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 400: the request itself is invalid (an unknown Host, a body that is too large)."""
    logger.warning("Refused a request: %s", exception)
    return (
        render_error_without_request("errors/400.html", 400)
        if wants_html_page(request)
        else build_json_error_response(400)
    )


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 403 for refusals by Django. dashboard.frame.guards renders the page for a missing role."""
    if not wants_html_page(request):
        return build_json_error_response(403)
    return render(request, "errors/403.html", {"reason": str(exception)}, status=403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return 404, on a page with the rail if the person is signed in."""
    if not wants_html_page(request):
        return build_json_error_response(404)
    reason = exception.args[0] if exception.args and isinstance(exception.args[0], str) else ""
    if reason.endswith(DJANGOS_OWN):
        reason = ""
    return render(request, "errors/404.html", {"reason": reason}, status=404)


def show_attachment_read_error(request: HttpRequest, problem: SignalboxError) -> HttpResponse:
    """Return 502 or 503 because an attached file cannot be read, or not now."""
    response = render(request, "errors/unreadable.html", {"reason": problem.detail}, status=problem.status)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    """Return 500, without use of the database, the session or the person: one of them may have failed.

    If the database is locked for too long or unreachable, return 503: trying again will help.
    """
    busy = isinstance(sys.exc_info()[1], InterfaceError | OperationalError)
    if busy:
        return show_database_busy(request)
    if not wants_html_page(request):
        return build_json_error_response(500)
    try:
        return render_error_without_request("errors/500.html", 500)
    except Exception:
        logger.exception("The error page could not be rendered")
        return HttpResponse(PLAIN_500.format(trace.current_trace_id() or ""), status=500)


def show_database_busy(request: HttpRequest) -> HttpResponse:
    """Return 503 because the database is busy: as JSON for programs and htmx, else as a page."""
    if request.headers.get("HX-Request") or not wants_html_page(request):
        response: HttpResponse = JsonResponse({"detail": BUSY}, status=503)
    else:
        response = render_error_without_request("errors/503.html", 503)
    response["Retry-After"] = "2"
    return response


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return 403 because a form's CSRF token is missing or old (settings.CSRF_FAILURE_VIEW)."""
    logger.warning("Refused a form: %s", reason)
    return (
        render_error_without_request("errors/csrf.html", 403)
        if wants_html_page(request)
        else build_json_error_response(403)
    )


def render_error_without_request(template: str, status: int, **more: str) -> HttpResponse:
    """Render an error page without a request, so that it needs no session, person or database."""
    context = {"trace_id": trace.current_trace_id(), "theme": {"scheme": "light dark"}, **more}
    return HttpResponse(render_to_string(template, context), status=status)
