"""Redirects a GET of a form's action URL to the page with the form, instead of an empty 405."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, Resolver404, resolve, reverse

View = TypeVar("View", bound=Callable[..., Any])
NOTHING_CHANGED = "That address only receives what a form sends. Nothing was changed."


class RedirectToFormPage:
    """Redirects a GET that was answered 405 under people's paths.

    Requests of htmx and other methods keep the 405.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if (
            response.status_code != 405
            or request.method != "GET"
            or not request.path.startswith(settings.PAGES)
            or request.headers.get("HX-Request")
        ):
            return response
        messages.info(request, NOTHING_CHANGED)
        return redirect(form_page_url_or_overview(request.path))


def declare_page_of_form_view(page: str) -> Callable[[View], View]:
    """Declare the page with the form that posts to a view, if it is not the nearest page above.

    Args:
        page: The URL name of the page.
    """

    def decorate_view(view: View) -> View:
        view.form_page = page  # type: ignore[attr-defined]
        return view

    return decorate_view


def form_page_url_or_overview(path: str) -> str:
    """Return the URL of the page with the form: the one that the view declares, else the nearest above."""
    match = resolve(path)
    if page := getattr(match.func, "form_page", None):
        try:
            return reverse(page, kwargs=match.kwargs)  # with the arguments of the view's own URL
        except NoReverseMatch:
            return reverse(page)
    above = path.rstrip("/")
    while above := above.rpartition("/")[0].removesuffix("/-"):  # "/-" precedes an action on an object
        try:
            view = resolve(f"{above}/").func
        except Resolver404:
            continue
        if "GET" in getattr(view, "allowed_methods", ["GET"]):
            return f"{above}/"
    return reverse("overview")
