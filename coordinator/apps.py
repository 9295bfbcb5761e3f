"""The Django app that holds every table."""

from __future__ import annotations

import sys
from typing import Any

from django.apps import AppConfig
from django.conf import settings

# django_tables2 loads it where it can, for columns that we have not, and all of psycopg with it.
OF_POSTGRES = "django.contrib.postgres.fields"


class CoordinatorConfig(AppConfig):
    """The system of record: models, actions, the feed, the edge. Knows no HTML."""

    name = "coordinator"
    verbose_name = "Signalbox"

    def __init__(self, *named: Any) -> None:
        super().__init__(*named)
        if "postgres" not in settings.DATABASES["default"]["ENGINE"]:
            sys.modules.setdefault(OF_POSTGRES, None)  # type: ignore[arg-type] # so it cannot be had

    def ready(self) -> None:
        # Imported here: it imports models, which are not there before the apps are ready.
        from coordinator.operations import post_migrate  # noqa: PLC0415

        if sys.modules.get(OF_POSTGRES) is None:
            sys.modules.pop(OF_POSTGRES, None)
        post_migrate.connect_post_migrate(self)
