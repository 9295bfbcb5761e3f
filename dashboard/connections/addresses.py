"""Where programs reach this server."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest

from coordinator.client.connection import replace_localhost_name


def server_address_for_programs(request: HttpRequest) -> str:
    """Return where programs reach us: not under people's own host name, which only browsers find."""
    address = request.build_absolute_uri("/").rstrip("/")
    if settings.OWN_HOST and urlsplit(address).hostname == settings.OWN_HOST:
        bare = settings.BIND.rpartition(":")[0]
        return address.replace(settings.OWN_HOST, bare, 1)
    return replace_localhost_name(address)
