"""The URL of the command palette."""

from __future__ import annotations

from django.urls import path

from dashboard.palette.views import show_palette

urlpatterns = [path("go/", show_palette, name="go")]
