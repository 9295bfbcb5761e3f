"""The typed request of a page, and the one rule for when htmx wants a part of it."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails


class HtmxHttpRequest(HttpRequest):
    """A request as Signalbox's middleware leaves it: with `htmx`, and a user of Django's own table."""

    htmx: HtmxDetails
    user: User | AnonymousUser


def wants_fragment(request: HtmxHttpRequest) -> bool:
    """Say whether to answer with the page's fragment only.

    False for plain loads, boosted links and htmx's own reload after Back, which all need the whole page.
    """
    return bool(request.htmx) and not request.htmx.boosted and not request.htmx.history_restore_request
