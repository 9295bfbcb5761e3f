"""Every path: machines own the root, people live under /ui/, the admin under /admin/."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from coordinator.api import api
from coordinator.identity.declarations import declare_anonymous_access

urlpatterns = [
    path("", declare_anonymous_access(RedirectView.as_view(pattern_name="overview")), name="home"),
    path("ui/", include("dashboard.frame.urls")),
    path("admin/", admin.site.urls),
    path("", api.urls),
]

handler400 = "dashboard.frame.error_views.bad_request"
handler403 = "dashboard.frame.error_views.forbidden"
handler404 = "dashboard.frame.error_views.not_found"
handler500 = "dashboard.frame.error_views.server_error"
