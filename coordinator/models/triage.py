"""Triage of the inbox before anybody decides: who takes a request, and who looks at it later."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField
from coordinator.models.permissions import PermissionRequest


class RequestAssignment(models.Model):
    """Whose turn a waiting request is. Everybody who may decide it still may. A row stays when it is decided."""

    request = models.OneToOneField(
        PermissionRequest,
        models.DO_NOTHING,  # the database cascades
        to_field="request_id",
        db_column="request_id",
        primary_key=True,
        related_name="assignment",
    )
    person = models.TextField()
    assigned_by = models.TextField()
    at = IsoTextField()

    class Meta:
        db_table = "request_assignments"

    def __str__(self) -> str:
        return f"{self.request_id} for {self.person}"


class RequestSnooze(models.Model):
    """One person looks at a request again at `until`: their inbox alone leaves it out before."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey(
        PermissionRequest,
        models.DO_NOTHING,  # the database cascades
        to_field="request_id",
        db_column="request_id",
        db_index=False,
        related_name="snoozes",
    )
    person = models.TextField()
    until = IsoTextField()

    class Meta:
        db_table = "request_snoozes"
        constraints = [models.UniqueConstraint(fields=["request", "person"], name="request_snoozes_once")]

    def __str__(self) -> str:
        return f"{self.request_id} later for {self.person}"
