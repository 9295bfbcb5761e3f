"""URLs of the search."""

from __future__ import annotations

from django.urls import path

from dashboard.search import file_views as files
from dashboard.search import views as search

app_name = "search"
urlpatterns = [
    path("search/", search.search_sessions, name="find"),
    path("files/", files.list_file_touches, name="files"),
]
