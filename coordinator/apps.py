"""The Django app that holds every table."""

from __future__ import annotations

from django.apps import AppConfig


class CoordinatorConfig(AppConfig):
    """The system of record: models, actions, the feed, the edge. Knows no HTML."""

    name = "coordinator"
    verbose_name = "Signalbox"

    def ready(self) -> None:
        # Imported here: it imports models, which are not there before the apps are ready.
        from coordinator.operations import post_migrate  # noqa: PLC0415

        post_migrate.connect(self)
