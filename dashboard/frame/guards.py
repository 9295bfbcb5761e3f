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

from coordinator.identity.declarations import SIGNED_IN, declare_minimum_role
from coordinator.identity.roles import ADMIN, APPROVER, VIEWER, has_role, highest_role
from coordinator.policy.deciders import decider_book as deciders
from dashboard.frame.htmx import HtmxHttpRequest

P = ParamSpec("P")
View = Callable[Concatenate[HtmxHttpRequest, P], HttpResponseBase]


def redirect_to_sign_in(request: HtmxHttpRequest) -> HttpResponse:
    """Send somebody who is not signed in to the sign-in page, and from there back to the page they were on."""
    back = request.htmx.current_url_abs_path if request.htmx else request.get_full_path()
    url = f"{resolve_url('accounts:login')}?{urlencode({'next': back or '/'})}"
    if request.htmx:  # a fragment swapped into the page must not become a sign-in form
        return HttpResponseClientRedirect(url)
    return redirect(url)


def render_role_refusal(request: HttpRequest, needed: str, reason: str = "") -> HttpResponse:
    """Answer 403 with a page that says which role is needed, why, and which the person has."""
    context = {"needed": needed, "why": reason, "role": highest_role(request.user)}
    return render(request, "errors/role.html", context, status=403)


def require_role(role: str) -> Callable[[View[P]], View[P]]:
    def decorate_view(view: View[P]) -> View[P]:
        @wraps(view)
        def check_role(request: HtmxHttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_sign_in(request)
            if not has_role(request.user, role):
                return render_role_refusal(request, role)
            return view(request, *args, **kwargs)

        return declare_minimum_role(check_role, role)

    return decorate_view


def require_sign_in(view: View[P]) -> View[P]:
    """Guard a page that is open to every signed-in person, with or without a role (their own account)."""

    @wraps(view)
    def check_sign_in(request: HtmxHttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        return (
            view(request, *args, **kwargs) if request.user.is_authenticated else redirect_to_sign_in(request)
        )

    return declare_minimum_role(check_sign_in, SIGNED_IN)


def require_viewer(view: View[P]) -> View[P]:
    return require_role(VIEWER)(view)


def require_approver(view: View[P]) -> View[P]:
    """Guard a page or verb that decides requests or edits grants."""
    return require_role(APPROVER)(view)


def require_policy_editor(view: View[P]) -> View[P]:
    """Guard a verb that changes rules or grants: for approvers, or for admins alone once Who decides has rows."""

    @wraps(view)
    def check_policy_editor(
        request: HtmxHttpRequest, /, *args: P.args, **kwargs: P.kwargs
    ) -> HttpResponseBase:
        if deciders.can_user_edit_policy(request.user):
            return view(request, *args, **kwargs)
        return render_role_refusal(request, ADMIN, deciders.ADMINS_EDIT)

    return require_role(APPROVER)(check_policy_editor)


def require_admin(view: View[P]) -> View[P]:
    """Guard a page or verb that edits servers, agents, keys or people."""
    return require_role(ADMIN)(view)
