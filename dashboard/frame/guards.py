"""Who may open a page: `@viewer`, `@approver`, `@admin`, each on the view itself.

Nobody signed in → the sign-in page, which leads back. Signed in without the role → a 403 page that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render, resolve_url
from django.utils.http import urlencode
from django_htmx.http import HttpResponseClientRedirect

from coordinator.identity.roles import ADMIN, APPROVER, VIEWER, has_role, role_of
from coordinator.policy import deciders
from dashboard.frame.htmx import HtmxHttpRequest

P = ParamSpec("P")
View = Callable[Concatenate[HtmxHttpRequest, P], HttpResponseBase]


def sign_in_first(request: HtmxHttpRequest) -> HttpResponse:
    """Send somebody who is not signed in to the sign-in page, and from there back to the page they were on."""
    back = request.htmx.current_url_abs_path if request.htmx else request.get_full_path()
    url = f"{resolve_url('accounts:login')}?{urlencode({'next': back or '/'})}"
    if request.htmx:  # a fragment swapped into the page must not become a sign-in form
        return HttpResponseClientRedirect(url)
    return redirect(url)


def refuse(request: HttpRequest, needed: str, why: str = "") -> HttpResponse:
    """Answer 403 with a page that says which role is needed, why, and which the person has."""
    context = {"needed": needed, "why": why, "role": role_of(request.user)}
    return render(request, "errors/role.html", context, status=403)


def _needs(role: str) -> Callable[[View[P]], View[P]]:
    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def guarded(request: HtmxHttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return sign_in_first(request)
            if not has_role(request.user, role):
                return refuse(request, role)
            return view(request, *args, **kwargs)

        guarded.needed_role = role  # type: ignore[attr-defined] # tests ask every page for its guard
        return guarded

    return decorate


def signed_in(view: View[P]) -> View[P]:
    """Guard a page that is open to every signed-in person, with or without a role (their own account)."""

    @wraps(view)
    def guarded(request: HtmxHttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        return view(request, *args, **kwargs) if request.user.is_authenticated else sign_in_first(request)

    guarded.needed_role = "signed_in"  # type: ignore[attr-defined]
    return guarded


def viewer(view: View[P]) -> View[P]:
    return _needs(VIEWER)(view)


def approver(view: View[P]) -> View[P]:
    """Guard a page or verb that decides requests or edits grants."""
    return _needs(APPROVER)(view)


def policy_editor(view: View[P]) -> View[P]:
    """Guard a verb that changes rules or grants: for approvers, or for admins alone once Who decides has rows."""

    @wraps(view)
    def guarded(request: HtmxHttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if deciders.may_edit_policy(request.user):
            return view(request, *args, **kwargs)
        return refuse(request, ADMIN, deciders.ADMINS_EDIT)

    return _needs(APPROVER)(guarded)


def admin(view: View[P]) -> View[P]:
    """Guard a page or verb that edits servers, agents, keys or people."""
    return _needs(ADMIN)(view)
