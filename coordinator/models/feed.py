"""The feed: what changed, in the order in which it was committed."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import MsField


class Change(models.Model):
    """One row of another table was inserted, updated or deleted. Only triggers write here.

    `topic` names the table's subject, `key` the row, `parent` the thing it belongs to, such as an event's
    session; everything after id N is everything that happened since.
    """

    id = models.BigAutoField(primary_key=True)
    at = MsField()
    topic = models.TextField()
    key = models.TextField()
    parent = models.TextField(null=True, blank=True)
    op = models.TextField()

    class Meta:
        db_table = "changes"

    def __str__(self) -> str:
        return f"{self.id} {self.op} {self.topic} {self.key}"
