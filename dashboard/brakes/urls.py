"""The brake."""

from __future__ import annotations

from django.urls import path

from dashboard.brakes import views as brakes

app_name = "brakes"
urlpatterns = [
    path("", brakes.show_brakes, name="home"),
    path("put-on/", brakes.apply_brake_view, name="put-on"),
    path("banner/", brakes.show_brake_banner, name="banner"),
    path("<int:brake_id>/release/", brakes.release_brake_view, name="release"),
]
