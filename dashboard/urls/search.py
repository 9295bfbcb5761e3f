"""Search."""

from __future__ import annotations

from django.urls import path

from dashboard.views import search

app_name = "search"
urlpatterns = [path("search/", search.search, name="find")]
