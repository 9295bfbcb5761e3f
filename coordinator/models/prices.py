"""What models cost."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField


class ModelPrice(models.Model):
    """What a million tokens of one model cost, in US dollars. Editable: prices change, and contracts differ."""

    model = models.TextField(primary_key=True)
    input = models.FloatField()
    output = models.FloatField()
    cache_read = models.FloatField()
    cache_write = models.FloatField()
    changed_at = IsoTextField()
    changed_by = models.TextField()

    class Meta:
        db_table = "model_prices"

    def __str__(self) -> str:
        return self.model
