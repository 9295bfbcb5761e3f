"""Signing in and out, the person's own account, and the first administrator's set-up page."""

from __future__ import annotations

from django.urls import path

from dashboard.views import accounts, provider

app_name = "accounts"
urlpatterns = [
    path("sign-in/", accounts.sign_in, name="login"),
    path("sign-in/again/", accounts.confirm, name="confirm"),
    path("sign-in/provider/", provider.start, name="provider-start"),
    path("sign-in/provider/again/", provider.again, name="provider-again"),
    path("account/provider/", provider.connect, name="provider-connect"),
    path("account/provider/leave/", provider.disconnect, name="provider-disconnect"),
    path("sign-in/provider/back/", provider.back, name="provider-back"),
    path("sign-out/", accounts.sign_out, name="logout"),
    path("setup/", accounts.set_up, name="setup"),
    path("account/", accounts.account, name="account"),
    path("account/password/", accounts.password, name="password"),
    path("account/theme/", accounts.theme, name="theme"),
]
