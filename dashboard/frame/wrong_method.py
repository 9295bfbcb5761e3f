"""Answers a person who opens an address that only a form sends to: a page that leads on, in place of an empty 405."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import Resolver404, resolve, reverse


class PageForWrongMethod:
    """Draws the page of a GET that is refused under the people's paths. Status and `Allow` stay."""

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
        page = render(request, "errors/405.html", {"page": find_nearest_page(request.path)}, status=405)
        page.headers["Allow"] = response.headers["Allow"]
        return page


def find_nearest_page(path: str) -> str:
    """Return the nearest address above `path` that exists."""
    above = path.rstrip("/")
    while above := above.rpartition("/")[0].removesuffix("/-"):  # "-" stands before what is done to an object
        try:
            resolve(f"{above}/")
        except Resolver404:
            continue
        return f"{above}/"
    return reverse("overview")
