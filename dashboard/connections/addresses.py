"""The address at which programs reach this server."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest

from coordinator.client.connection import replace_localhost_subdomain


def server_address_for_programs(request: HttpRequest) -> str:
    """Return the server's address for programs, with an IP address or a name that they can resolve.

    The host name for people (OWN_HOST) and `localhost` names are replaced, because only browsers resolve
    those.
    """
    address = request.build_absolute_uri("/").rstrip("/")
    if settings.OWN_HOST and urlsplit(address).hostname == settings.OWN_HOST:
        bare = settings.BIND.rpartition(":")[0]
        return address.replace(settings.OWN_HOST, bare, 1)
    return replace_localhost_subdomain(address)
