"""The brake."""

from __future__ import annotations

from django.urls import path

from dashboard.views import brakes

app_name = "brakes"
urlpatterns = [
    path("", brakes.home, name="home"),
    path("put-on/", brakes.put_on, name="put-on"),
    path("banner/", brakes.banner, name="banner"),
    path("<int:brake_id>/release/", brakes.release, name="release"),
]
