"""Signing in and out, the person's own account, and the first administrator's set-up page."""

from __future__ import annotations

from django.urls import path

from dashboard.accounts import passkey_views as passkeys
from dashboard.accounts import provider_views as provider
from dashboard.accounts import views as accounts

app_name = "accounts"
urlpatterns = [
    path("sign-in/", accounts.show_or_process_sign_in, name="login"),
    path("sign-in/again/", accounts.return_204_after_password_confirmation, name="confirm"),
    path("sign-in/provider/", provider.start_provider_sign_in, name="provider-start"),
    path("sign-in/provider/again/", provider.start_provider_confirmation, name="provider-again"),
    path("account/provider/", provider.start_provider_connection, name="provider-connect"),
    path("account/provider/leave/", provider.disconnect_from_provider, name="provider-disconnect"),
    path("sign-in/provider/back/", provider.receive_redirect_from_provider, name="provider-back"),
    path("sign-in/passkey/", passkeys.sign_in_with_passkey, name="passkey-sign-in"),
    path("sign-in/passkey/options/", passkeys.start_passkey_sign_in, name="passkey-sign-in-options"),
    path("sign-in/again/passkey/", passkeys.start_passkey_confirmation, name="passkey-confirm-options"),
    path("account/passkeys/", passkeys.add_passkey, name="passkey-add"),
    path("account/passkeys/options/", passkeys.start_adding_passkey, name="passkey-add-options"),
    path("account/passkeys/<int:passkey_id>/remove/", passkeys.remove_own_passkey, name="passkey-remove"),
    path("account/recovery-codes/", passkeys.replace_and_show_recovery_codes, name="recovery-codes"),
    path("sign-out/", accounts.sign_out_person, name="logout"),
    path("setup/", accounts.create_first_admin, name="setup"),
    path("account/", accounts.show_account, name="account"),
    path("account/sign-out-others/", accounts.sign_out_other_browsers, name="sign-out-others"),
    path("account/password/", accounts.change_own_password, name="password"),
    path("account/theme/", accounts.save_theme_in_cookie, name="theme"),
]
