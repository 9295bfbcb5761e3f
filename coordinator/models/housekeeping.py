"""Kept answers, so that a request that is sent again is not done twice."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField


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
