"""`manage.py mcp_host`: runs stdio MCP servers for the gateway; `serve` starts it, nobody else needs to."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from coordinator.mcp.hosting import stdio_host_server


class Command(BaseCommand):
    """Serves the listening socket that it inherits, until nobody needs a server any more."""

    help = __doc__
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=int, help="the inherited socket's file number")

    def handle(self, *_args: Any, **options: Any) -> None:
        stdio_host_server.serve_stdio_host(options["file"])
