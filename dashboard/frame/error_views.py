"""What people and machines read when something went wrong: a page for browsers, `{"detail": …}` for the rest."""

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
# What get_object_or_404 says. It names a class and a query; the page's own words say what may have happened.
DJANGOS_OWN = "matches the given query."
PLAIN_500 = "<!doctype html><title>Signalbox</title><h1>Something went wrong</h1><p>Trace {}</p>"


def wants_html_page(request: HttpRequest) -> bool:
    """Say whether a browser asks: under the people's paths, or for HTML."""
    return request.path.startswith(settings.PAGES) or "text/html" in request.headers.get("Accept", "")


def build_json_error_response(status: int) -> JsonResponse:
    return JsonResponse({"detail": HTTPStatus(status).phrase}, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 400: the request itself cannot be read (a foreign Host, a body that is too large)."""
    logger.warning("Refused a request: %s", exception)
    return (
        render_error_without_request("errors/400.html", 400)
        if wants_html_page(request)
        else build_json_error_response(400)
    )


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 403 where Django itself refuses; the guards have a page that names the role."""
    if not wants_html_page(request):
        return build_json_error_response(403)
    return render(request, "errors/403.html", {"reason": str(exception)}, status=403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404, with the rail for those who are signed in."""
    if not wants_html_page(request):
        return build_json_error_response(404)
    reason = exception.args[0] if exception.args and isinstance(exception.args[0], str) else ""
    if reason.endswith(DJANGOS_OWN):
        reason = ""
    return render(request, "errors/404.html", {"reason": reason}, status=404)


def show_attachment_read_error(request: HttpRequest, problem: SignalboxError) -> HttpResponse:
    """Answer 502 or 503 where an attached file cannot be read (now)."""
    response = render(request, "errors/unreadable.html", {"reason": problem.detail}, status=problem.status)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer 500 without the database, the session or the person: any of them may be what broke.

    A database that is locked for too long, or cannot be reached, is told apart: trying again will help (503).
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
    """Answer 503; to a program, and to a part of a page for its toast, with words."""
    if request.headers.get("HX-Request") or not wants_html_page(request):
        response: HttpResponse = JsonResponse({"detail": BUSY}, status=503)
    else:
        response = render_error_without_request("errors/503.html", 503)
    response["Retry-After"] = "2"
    return response


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer 403 where a form's token is missing or old (settings.CSRF_FAILURE_VIEW)."""
    logger.warning("Refused a form: %s", reason)
    return (
        render_error_without_request("errors/csrf.html", 403)
        if wants_html_page(request)
        else build_json_error_response(403)
    )


def render_error_without_request(template: str, status: int, **more: str) -> HttpResponse:
    """Draw an error page that needs no request, and so nothing that a request may ask for."""
    context = {"trace_id": trace.current_trace_id(), "theme": {"scheme": "light dark"}, **more}
    return HttpResponse(render_to_string(template, context), status=status)
