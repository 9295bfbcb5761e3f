"""Ways to join and to sign in besides a password: invitations, provider accounts, passkeys, recovery codes."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField


class ProviderIdentity(models.Model):
    """The account of one person of an OpenID provider: known by issuer and subject, never by a name or an address.

    `user_id` is of auth_user.
    """

    user_id = models.BigIntegerField(primary_key=True)
    issuer = models.TextField()
    subject = models.TextField()
    made_at = IsoTextField()
    last_used_at = IsoTextField()

    class Meta:
        verbose_name_plural = "provider identities"
        db_table = "provider_identities"
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="provider_identities_once")]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class Passkey(models.Model):
    """A passkey (WebAuthn credential) of one person: its public half, which anybody may know.

    `user_id` is of auth_user. `rp_id` is the host name that the browser made it for; it works nowhere else.
    """

    user_id = models.BigIntegerField(db_index=True)
    name = models.TextField()
    credential_id = models.TextField(unique=True)  # base64url, as the authenticator chose it
    public_key = models.TextField()  # COSE, base64url
    user_handle = models.TextField()  # by which authenticators know the account; the same for all of a person
    rp_id = models.TextField()
    sign_count = models.BigIntegerField()  # as the authenticator last said; stays 0 where it keeps none
    made_at = IsoTextField()
    last_used_at = IsoTextField(null=True, blank=True)

    class Meta:
        db_table = "passkeys"

    def __str__(self) -> str:
        return str(self.name)


class PasskeyChallenge(models.Model):
    """A challenge that a browser was given for one use of a passkey. Using it deletes it."""

    class Purpose(models.TextChoices):
        ADD = "add", "Add a passkey"
        SIGN_IN = "sign in", "Sign in"
        CONFIRM = "confirm", "Confirm that it is you"

    digest = models.TextField(primary_key=True)  # SHA-256 of the challenge
    purpose = models.TextField(choices=Purpose.choices)
    user_id = models.BigIntegerField(null=True, blank=True)  # whose passkey it must be; null before sign-in
    browser = (
        models.TextField()
    )  # hash of the secret of the browser that asked (coordinator.identity.browser_secrets)
    source = models.TextField()  # the network that asked, of which only so many may wait
    expires_at = IsoTextField()

    class Meta:
        db_table = "passkey_challenges"

    def __str__(self) -> str:
        return f"{self.purpose}, until {self.expires_at}"


class RecoveryCode(models.Model):
    """A code that one person can use once in place of a passkey or password. The code itself is not kept."""

    user_id = models.BigIntegerField(db_index=True)
    code_hash = models.TextField(unique=True)
    made_at = IsoTextField()
    used_at = IsoTextField(null=True, blank=True)

    class Meta:
        db_table = "recovery_codes"

    def __str__(self) -> str:
        return f"of {self.user_id}, made {self.made_at}"


class Invitation(models.Model):
    """A link by which one person makes their own account with `role`, as a SHA-256; good once, until `expires_at`.

    `made_by` and `used_by` are of auth_user. It is good only while who made it is an administrator.
    """

    id = models.BigAutoField(primary_key=True)
    token_hash = models.TextField(unique=True)
    label = models.TextField(blank=True)  # whom it is for, in the words of who made it
    role = models.TextField()
    made_by = models.BigIntegerField()
    made_at = IsoTextField()
    expires_at = IsoTextField()
    used_at = IsoTextField(null=True, blank=True)
    used_by = models.BigIntegerField(null=True, blank=True)
    revoked_at = IsoTextField(null=True, blank=True)

    class Meta:
        db_table = "invitations"

    def __str__(self) -> str:
        return str(self.label or f"invitation {self.pk}")


class DismissedHint(models.Model):
    """A hint that one person has put away, such as the first steps. `user_id` is of auth_user."""

    id = models.BigAutoField(primary_key=True)
    user_id = models.BigIntegerField()
    name = models.TextField()
    dismissed_at = IsoTextField()

    class Meta:
        db_table = "dismissed_hints"
        constraints = [models.UniqueConstraint(fields=["user_id", "name"], name="sbx_dismissed_hints_once")]

    def __str__(self) -> str:
        return f"{self.name} of {self.user_id}"
