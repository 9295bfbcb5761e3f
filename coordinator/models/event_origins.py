"""Records of events that programs, such as agents' hooks, report more than once or in pieces."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import MsField
from coordinator.models.sessions import Session


class EventOrigin(models.Model):
    """What an event was made of, so that the same hook, log record or transcript line is written once.

    After `until` the same text counts as a new event; NULL for what has an id of its own.
    """

    key = models.TextField(primary_key=True)
    session = models.ForeignKey(Session, models.DO_NOTHING, db_index=False, related_name="+")
    until = MsField(null=True, blank=True)

    class Meta:
        db_table = "event_origins"

    def __str__(self) -> str:
        return self.key


class MessagePart(models.Model):
    """A piece of a message that is still being sent; the pieces are deleted once the message is whole."""

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(Session, models.DO_NOTHING, db_index=False, related_name="+")
    message_id = models.TextField()
    place = models.BigIntegerField()
    text = models.TextField()

    class Meta:
        db_table = "message_parts"
        constraints = [
            models.UniqueConstraint(fields=["session", "message_id", "place"], name="message_parts_place")
        ]

    def __str__(self) -> str:
        return f"{self.message_id} {self.place}"
