"""Signing in and out, the person's own account, and the first administrator's set-up page."""

from __future__ import annotations

from django.urls import path

from dashboard.views import accounts

app_name = "accounts"
urlpatterns = [
    path("sign-in/", accounts.sign_in, name="login"),
    path("sign-in/again/", accounts.confirm, name="confirm"),
    path("sign-out/", accounts.sign_out, name="logout"),
    path("setup/", accounts.set_up, name="setup"),
    path("account/", accounts.account, name="account"),
    path("account/password/", accounts.password, name="password"),
    path("account/theme/", accounts.theme, name="theme"),
]
