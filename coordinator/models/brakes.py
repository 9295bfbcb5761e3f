"""Brakes: what people hold until they release it."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import models

from coordinator.models.fields import IsoTextField


class BrakeReach(models.TextChoices):
    """What a brake holds."""

    EVERYTHING = "everything", "Everything"
    AGENT = "agent", "One agent"
    HOST = "host", "One host"


def is_covered_by_brake(reach: str, name: str, agents: Iterable[str | None], host: str | None) -> bool:
    """Say whether a brake holds what an agent, known by any of the names `agents`, does on `host`.

    Where the host is not known, it may be any: each host's brake holds it.
    """
    if reach == BrakeReach.AGENT:
        return name in agents
    if reach == BrakeReach.HOST:
        return not host or host == name
    return True  # everything; and what cannot be read holds, too


class Brake(models.Model):
    """One brake, in force until `released_at`.

    `name` is the agent (its id, or the program's name as in `POST /hooks/{agent}`) or the host, nothing where
    everything is held.
    """

    id = models.BigAutoField(primary_key=True)
    reach = models.TextField(choices=BrakeReach.choices)
    name = models.TextField(default="", db_default="", blank=True)
    reason = models.TextField(default="", db_default="", blank=True)
    set_at = IsoTextField()
    set_by = models.TextField()
    released_at = IsoTextField(null=True, blank=True)
    released_by = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "brakes"
        constraints = [
            models.UniqueConstraint(
                fields=["reach", "name"],
                condition=models.Q(released_at__isnull=True),
                name="one_brake_in_force",
            )
        ]

    def __str__(self) -> str:
        return f"brake on {self.name or self.reach}"

    @property
    def setter_name(self) -> str:
        """The name of the person who put it on."""
        return self.set_by.removeprefix("user:")

    @property
    def releaser_name(self) -> str:
        """The name of the person who released it; nothing while it is on."""
        return (self.released_by or "").removeprefix("user:")
