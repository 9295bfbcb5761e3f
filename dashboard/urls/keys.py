"""API keys, for admins."""

from __future__ import annotations

from django.urls import path

from dashboard.views import keys

app_name = "keys"

urlpatterns = [
    path("", keys.listing, name="list"),
    path("bind/", keys.bind, name="bind"),
    path("<int:key_id>/revoke/", keys.revoke, name="revoke"),
]
