"""What keeps workers from doing a thing twice: leases between workers, kept answers between resends."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField, MsField


class Lease(models.Model):
    """The right to do a named thing, until `until`: whoever moves it forward has it."""

    name = models.TextField(primary_key=True)
    holder = models.TextField()
    until = MsField()

    class Meta:
        db_table = "leases"

    def __str__(self) -> str:
        return f"{self.name} held by {self.holder}"


class IdempotencyKey(models.Model):
    """The answer given to a request that carried an Idempotency-Key, for its resends."""

    key_hash = models.TextField(primary_key=True)
    fingerprint = models.TextField()
    answer = models.TextField()
    created_at = IsoTextField(db_index=True)

    class Meta:
        db_table = "idempotency_keys"

    def __str__(self) -> str:
        return f"answer kept since {self.created_at}"
