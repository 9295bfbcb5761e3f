"""Where programs reach this server."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def for_programs(request: HttpRequest) -> str:
    """Return where programs reach us: not under people's own host name, which only browsers find."""
    bare = settings.BIND.rpartition(":")[0]
    return request.build_absolute_uri("/").rstrip("/").replace(settings.OWN_HOST or bare, bare)
