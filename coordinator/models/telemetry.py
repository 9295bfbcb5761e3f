"""Telemetry that was left out."""

from __future__ import annotations

from django.db import models


class TelemetryOmission(models.Model):
    """Something that one emitter sends and that is left out, by its name, and how often."""

    id = models.BigAutoField(primary_key=True)
    sender = models.TextField()  # the name of the key that it came with
    service = models.TextField()  # "": not named
    library = models.TextField()  # "": not named
    kind = models.TextField()  # coordinator.sessions.omissions.OmissionKind
    name = models.TextField()  # of the attribute or span; why, where records or exports are refused
    omission_count = models.BigIntegerField()
    first_at_us = models.BigIntegerField()  # in microseconds since 1970 (UTC)
    last_at_us = models.BigIntegerField()

    class Meta:
        db_table = "telemetry_omissions"
        constraints = [
            models.UniqueConstraint(
                fields=["sender", "service", "library", "kind", "name"], name="telemetry_omissions_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} from {self.sender}"
