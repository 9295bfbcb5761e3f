"""Help."""

from __future__ import annotations

from django.urls import path

from dashboard.help import views

app_name = "help"
urlpatterns = [
    path("", views.show_help_index, name="index"),
    path("pictures/<slug:name>/", views.show_help_picture, name="picture"),
    path("<slug:name>/", views.show_help_page, name="page"),
]
