"""Who people are at the provider of single sign-on."""

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
