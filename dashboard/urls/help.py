"""Help."""

from __future__ import annotations

from django.urls import path

from dashboard.views import help_pages

app_name = "help"
urlpatterns = [
    path("", help_pages.index, name="index"),
    path("pictures/<slug:name>/", help_pages.picture, name="picture"),
    path("<slug:name>/", help_pages.page, name="page"),
]
