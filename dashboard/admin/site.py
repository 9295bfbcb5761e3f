"""The admin site: for people with the role admin, in Signalbox's colours, with Signalbox's sign-in page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.urls import URLPattern, URLResolver, reverse
from django.utils.http import urlencode

from coordinator.identity.declarations import (
    declare_anonymous_access,
    declare_http_methods_of_view,
    declare_minimum_role,
)
from coordinator.identity.roles import ADMIN, has_role
from coordinator.lib.body_limits import SMALL, declare_request_body_allowance
from dashboard.accounts.views import safe_next_url_or_default
from dashboard.admin.subjects import group_models_by_subject
from dashboard.frame.guards import render_role_refusal


class SignalboxAdminSite(AdminSite):
    """Django's admin with Signalbox's names. The role decides who may enter, not `is_staff`."""

    site_header = "Signalbox admin"
    site_title = "Signalbox admin"
    index_title = "Tables"
    site_url = "/ui/"
    enable_nav_sidebar = True

    def get_urls(self) -> list[Any]:
        """Return the admin's URLs. All views except `login` are declared for the role admin."""
        urls = super().get_urls()
        for view in (pattern.callback for pattern in walk_url_patterns(urls) if pattern.name != "login"):
            declare_minimum_role(declare_http_methods_of_view(view, ("GET", "HEAD", "POST")), ADMIN)
        return urls

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[dict[str, Any]]:
        """Return the tables grouped by subject; for one app, the list that Django makes."""
        apps = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        return group_models_by_subject(
            (model for app in apps for model in app["models"]), reverse("admin:index")
        )

    def has_permission(self, request: HttpRequest) -> bool:
        """Return whether the person may enter the admin: they are active and have the role admin."""
        return has_role(request.user, ADMIN)

    @declare_anonymous_access
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Redirect to the sign-in page.

        A signed-in person without the role admin gets a page that says so.
        """
        goal = safe_next_url_or_default(request, "admin:index")
        if self.has_permission(request):
            return redirect(goal)
        if request.user.is_authenticated:
            return render_role_refusal(request, ADMIN)
        return redirect(f"{resolve_url('accounts:login')}?{urlencode({'next': goal})}")

    @declare_request_body_allowance(SMALL)
    def logout(  # type: ignore[override] # a redirect does as well as a page
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the account page, where people sign out. No page links here."""
        return redirect("accounts:account")

    def password_change(  # type: ignore[override] # likewise
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the page where people change their own password, which is audited."""
        return redirect("accounts:password")


def walk_url_patterns(patterns: list[Any]) -> Iterator[URLPattern]:
    """Yield all URL patterns, including those of included lists."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from walk_url_patterns(pattern.url_patterns)
        else:
            yield pattern
