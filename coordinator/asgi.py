"""What the server runs: the edge in front, Django in a small thread pool behind it."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")

import django
from django.apps import apps

if not apps.ready:  # `serve` has done it, for all workers
    django.setup()

from coordinator.edge.app import create_application

application = create_application()
