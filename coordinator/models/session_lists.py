"""Lists of sessions: what they sort by, and people's tags, pins, archive, columns and saved views."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField, JsonTextField
from coordinator.models.sessions import Session


class SessionFigures(models.Model):
    """Sums of a session, for lists to sort and filter by. Housekeeping keeps them (actions.sessions.session_sums).

    `cost` is in US dollars, without `unpriced_tokens`; None where the session used no model that we know of.
    `began_us` and `ended_us` are the instants of its first and last event. `person` is who started it.
    """

    session = models.OneToOneField(
        Session,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="session_id",
        related_name="figures",
    )
    cost = models.FloatField(null=True)
    tokens = models.BigIntegerField(null=True)
    began_us = models.BigIntegerField(null=True)
    ended_us = models.BigIntegerField(null=True)
    files_changed = models.BigIntegerField(default=0, db_default=0)
    person = models.TextField(null=True)

    class Meta:
        verbose_name_plural = "session figures"
        db_table = "sbx_session_figures"

    def __str__(self) -> str:
        return f"figures of {self.pk}"


class SessionTag(models.Model):
    """A word that people gave a session, the same for everybody."""

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,  # the database cascades
        db_index=False,
        related_name="tags",
    )
    tag = models.TextField()
    tagged_by = models.TextField()
    tagged_at = IsoTextField()

    class Meta:
        db_table = "sbx_session_tags"
        constraints = [models.UniqueConstraint(fields=["session", "tag"], name="sbx_session_tags_once")]

    def __str__(self) -> str:
        return f"{self.tag} of {self.session_id}"


class SessionPin(models.Model):
    """A session that one person keeps at the top of their list. `user_id` is of auth_user."""

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(
        Session,
        models.DO_NOTHING,  # the database cascades
        db_index=False,
        related_name="pins",
    )
    user_id = models.BigIntegerField()
    pinned_at = IsoTextField()

    class Meta:
        db_table = "sbx_session_pins"
        constraints = [models.UniqueConstraint(fields=["user_id", "session"], name="sbx_session_pins_once")]

    def __str__(self) -> str:
        return f"{self.session_id} of {self.user_id}"


class ArchivedSession(models.Model):
    """A session that lists leave out unless somebody asks for the archive. Nothing of it is deleted."""

    session = models.OneToOneField(
        Session,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="session_id",
        related_name="archived",
    )
    archived_by = models.TextField()
    archived_at = IsoTextField()

    class Meta:
        db_table = "sbx_archived_sessions"

    def __str__(self) -> str:
        return f"{self.pk} archived by {self.archived_by}"


class SessionListChoice(models.Model):
    """Which columns one person's list of sessions shows. `user_id` is of auth_user."""

    user_id = models.BigIntegerField(primary_key=True)
    columns = JsonTextField()

    class Meta:
        db_table = "sbx_session_list_choices"

    def __str__(self) -> str:
        return f"columns of {self.user_id}"


class SavedSessionView(models.Model):
    """Filters and an order of the list of sessions that one person keeps under a name."""

    id = models.BigAutoField(primary_key=True)
    user_id = models.BigIntegerField()  # of auth_user
    name = models.TextField()
    query = models.TextField()

    class Meta:
        db_table = "sbx_saved_session_views"
        constraints = [
            models.UniqueConstraint(fields=["user_id", "name"], name="sbx_saved_session_views_once")
        ]

    def __str__(self) -> str:
        return self.name
