"""The changes of a driven session in its work tree, as its runner compared it."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField
from coordinator.models.sessions import Session


class SessionChange(models.Model):
    """What differs since a turn began, or since the session did: the newest comparison of each.

    `run_id` names the turn's run and is empty for the whole session. `files` are {path, status, added, removed,
    binary, from?, mode?}; `diff` is as git writes it, None once it was given up for newer ones. `truncated`: the diff
    or the list is not all. `problem`: why nothing could be compared.
    """

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,  # the database cascades
        db_index=False,
        related_name="session_changes",
    )
    run_id = models.TextField()
    base = models.TextField(null=True)
    told_at = IsoTextField()
    files = JsonTextField()
    diff = models.TextField(null=True)
    truncated = models.BooleanField(default=False, db_default=False)
    problem = models.TextField(null=True)

    class Meta:
        db_table = "session_changes"
        constraints = [
            models.UniqueConstraint(fields=["session", "run_id"], name="session_changes_of_a_turn")
        ]

    def __str__(self) -> str:
        return f"changes of {self.run_id or 'all'} in {self.session_id}"
