"""Notes that people write to agents at work."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField
from coordinator.models.sessions import Session


class Note(models.Model):
    """One note. It waits until `given_at`, when it was handed to the agent, or `closed_at`, when it could not be.

    `through` says what carried it, in words; `given_to` is the id of the hook whose answer did, which may come again.
    `run_id` is the prompt that carries it, where a runner drives the agent and it had no next step.
    """

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,  # the database cascades
        db_index=False,
        related_name="notes",
    )
    text = models.TextField()
    written_at = IsoTextField()
    written_by = models.TextField()
    given_at = IsoTextField(null=True)
    through = models.TextField(null=True)
    given_to = models.TextField(null=True)
    run_id = models.TextField(null=True)
    closed_at = IsoTextField(null=True)
    why_closed = models.TextField(null=True)

    class Meta:
        db_table = "session_notes"
        indexes = [
            models.Index(fields=["session", "id"], name="session_notes_of_session"),
            models.Index(
                fields=["id"],
                condition=models.Q(given_at__isnull=True, closed_at__isnull=True),
                name="session_notes_waiting",
            ),
        ]

    def __str__(self) -> str:
        return f"note {self.pk} to {self.session_id}"

    @property
    def writer_name(self) -> str:
        """The name of the person who wrote it."""
        return self.written_by.removeprefix("user:")
