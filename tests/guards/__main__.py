"""Write what the routes declare: `python -m tests.guards`."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
django.setup()

from tests.guards.declared import FILE, build_declarations  # noqa: E402 - they need Django set up

FILE.write_text(build_declarations())
