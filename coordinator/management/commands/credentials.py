"""`manage.py credentials …`: look after the keys that credentials of MCP servers are sealed with."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from coordinator.actions.mcp import mcp_credentials
from coordinator.errors import SignalboxError
from coordinator.identity.actors import system_actor
from coordinator.secrets import keyring


class Command(BaseCommand):
    """Seals every stored credential with a new key, and forgets the old ones."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True, parser_class=ArgumentParser)
        commands.add_parser("rotate-key", help="make a new key, seal everything with it, remove the old keys")

    def handle(self, *_args: Any, **_options: Any) -> None:
        try:
            count = mcp_credentials.rotate_credential_key(
                actor=system_actor("credentials"), now=timezone.now()
            )
        except (keyring.KeyringUnusable, SignalboxError) as problem:
            detail = problem.detail if isinstance(problem, SignalboxError) else problem
            raise CommandError(f"{detail} The old keys stay.") from None
        self.stdout.write(
            f"{count} values are sealed with a new key, in {keyring.keyring_path()}. Older backups contain"
            " the old keys."
        )
