"""Every path: machines own the root, people live under /ui/, the admin under /admin/."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from coordinator.api import api

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="overview"), name="home"),
    path("ui/", include("dashboard.urls")),
    path("admin/", admin.site.urls),
    path("", api.urls),
]

handler400 = "dashboard.views.errors.bad_request"
handler403 = "dashboard.views.errors.forbidden"
handler404 = "dashboard.views.errors.not_found"
handler500 = "dashboard.views.errors.server_error"
