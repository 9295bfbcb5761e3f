"""Decorators that limit a view to a role: `require_viewer_role`, `require_approver`, `require_admin`.

A person who is not signed in is redirected to the sign-in page and back. A signed-in person without the role
gets a 403 page that names the role.
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
from coordinator.identity.roles import ADMIN, APPROVER, VIEWER, has_role, highest_role_of_user
from coordinator.policy.deciders import decider_book as deciders
from dashboard.frame.htmx import HtmxHttpRequest

P = ParamSpec("P")
View = Callable[Concatenate[HtmxHttpRequest, P], HttpResponseBase]


def redirect_to_sign_in(request: HtmxHttpRequest) -> HttpResponse:
    """Redirect to the sign-in page, which leads back to the current page."""
    back = request.htmx.current_url_abs_path if request.htmx else request.get_full_path()
    url = f"{resolve_url('accounts:login')}?{urlencode({'next': back or '/'})}"
    if request.htmx:  # redirect the whole page: a sign-in form must not be swapped in as a fragment
        return HttpResponseClientRedirect(url)
    return redirect(url)


def render_role_refusal(request: HttpRequest, needed: str, reason: str = "") -> HttpResponse:
    """Return 403 with a page that names the needed role, the reason, and the person's role."""
    context = {"needed": needed, "why": reason, "role": highest_role_of_user(request.user)}
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
    """Limit a view to signed-in people, with or without a role. Used for their own account."""

    @wraps(view)
    def check_sign_in(request: HtmxHttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        return (
            view(request, *args, **kwargs) if request.user.is_authenticated else redirect_to_sign_in(request)
        )

    return declare_minimum_role(check_sign_in, SIGNED_IN)


def require_viewer_role(view: View[P]) -> View[P]:
    return require_role(VIEWER)(view)


def require_approver(view: View[P]) -> View[P]:
    """Limit a view to approvers: it decides requests or edits grants."""
    return require_role(APPROVER)(view)


def require_policy_editor(view: View[P]) -> View[P]:
    """Limit a view that changes rules or grants to approvers, or to admins if Who decides has rows."""

    @wraps(view)
    def check_policy_editor(
        request: HtmxHttpRequest, /, *args: P.args, **kwargs: P.kwargs
    ) -> HttpResponseBase:
        if deciders.can_user_edit_policy(request.user):
            return view(request, *args, **kwargs)
        return render_role_refusal(request, ADMIN, deciders.ADMINS_EDIT)

    return require_role(APPROVER)(check_policy_editor)


def require_admin(view: View[P]) -> View[P]:
    """Limit a view to admins: it edits servers, agents, keys or people."""
    return require_role(ADMIN)(view)
