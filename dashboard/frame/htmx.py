"""The type of a page's request, and when htmx wants only a fragment of the page."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails


class HtmxHttpRequest(HttpRequest):
    """A request with the attribute `htmx` of django-htmx, and a user of Django's user model."""

    htmx: HtmxDetails
    user: User | AnonymousUser


def wants_fragment(request: HtmxHttpRequest) -> bool:
    """Return whether to answer with the page's fragment only.

    False for plain loads, boosted links and htmx's reload after Back, which need the whole page.
    """
    return bool(request.htmx) and not request.htmx.boosted and not request.htmx.history_restore_request
