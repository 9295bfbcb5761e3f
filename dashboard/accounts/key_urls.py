"""API keys, for admins."""

from __future__ import annotations

from django.urls import path

from dashboard.accounts import key_views as keys

app_name = "keys"

urlpatterns = [
    path("", keys.list_and_create_api_keys, name="list"),
    path("bind/", keys.bind_all_then_refuse_unbound, name="bind"),
    path("<int:key_id>/revoke/", keys.revoke_api_key_view, name="revoke"),
]
