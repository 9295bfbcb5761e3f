"""`manage.py apikey create|list|revoke`: machines' keys, from the command line."""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from coordinator.actions.people import key_binding, keys
from coordinator.errors import SignalboxError
from coordinator.identity.actors import system_actor
from coordinator.identity.keys import is_unbound_agent_key
from coordinator.identity.scopes import SCOPES
from coordinator.lib.invisible import reveal_invisible_characters
from coordinator.models import ApiKey

COMMAND_LINE = system_actor("command-line")


class Command(BaseCommand):
    """Makes, lists and revokes API keys. Whoever may run it has the database already."""

    help = "Create, list or revoke API keys. A new key is shown only once."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="create a key and print it once")
        create.add_argument("name", help="who uses it, for example my-runner")
        create.add_argument("--scope", action="append", choices=SCOPES, required=True, help="may be repeated")
        create.add_argument(
            "--agent",
            metavar="ID",
            help="bind the key to this agent, its sessions and its chat; with --scope agent, a new agent that is "
            "called like the key is made where you name none",
        )
        create.add_argument("--days", type=int, help="days until it expires (default: never)")
        verbs.add_parser("list", help="list all keys (never their secret part)")
        bind = verbs.add_parser("bind", help="bind a key to agents, in place of those it is bound to")
        bind.add_argument("name")
        bind.add_argument("--agent", action="append", metavar="ID", required=True, help="may be repeated")
        revoke = verbs.add_parser("revoke", help="revoke a key; this cannot be undone")
        revoke.add_argument("name")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        """Run one subcommand. Raises CommandError where it is refused."""
        try:
            {
                "create": self.create_api_key,
                "list": self.print_api_keys,
                "bind": self.bind_api_key_to_agents,
                "revoke": self.revoke_named_key,
            }[verb](options)
        except SignalboxError as refusal:
            raise CommandError(str(refusal.detail)) from None

    def create_api_key(self, options: dict[str, Any]) -> None:
        """Make a key. The key alone goes to stdout, so that a script can take it."""
        now = timezone.now()
        if options["days"] is not None and not 0 < options["days"] <= 36_500:
            raise CommandError("--days must be between 1 and 36500.")
        row, raw = key_binding.create_bound_key(
            name=options["name"],
            scopes=options["scope"],
            agent_id=options["agent"],
            expires_at=now + timedelta(days=options["days"]) if options["days"] else None,
            actor=COMMAND_LINE,
            now=now,
        )
        self.stderr.write(f"It speaks for {row.agent_id}." if row.agent_id else "It is bound to no agent.")
        self.stderr.write(
            f"The key {row.name!r} is shown only once. Keep it where only its user can read it:"
        )
        self.stdout.write(raw)

    def print_api_keys(self, _options: dict[str, Any]) -> None:
        for row in ApiKey.objects.order_by("name"):
            scopes = ",".join(map(str, row.scopes)) if isinstance(row.scopes, list) else str(row.scopes)
            state = "revoked" if row.revoked_at else f"expires {format_day_or_never(row.expires_at)}"
            agents = (
                "any agent"
                if is_unbound_agent_key(row)
                else ",".join(sorted(row.bound_agent_ids_or_none or ())) or "-"
            )
            self.stdout.write(
                f"{reveal_invisible_characters(row.name)}  {row.prefix}…  {scopes}  {agents}  used"
                f" {format_day_or_never(row.last_used_at)}  {state}"
            )

    def bind_api_key_to_agents(self, options: dict[str, Any]) -> None:
        row = key_binding.bind_key_to_agents(
            options["name"], options["agent"], actor=COMMAND_LINE, now=timezone.now()
        )
        self.stdout.write(
            f"The key {row.name!r} speaks for {', '.join(sorted(row.bound_agent_ids_or_none or ()))}."
        )

    def revoke_named_key(self, options: dict[str, Any]) -> None:
        row = ApiKey.objects.filter(name=options["name"]).first()
        if row is None:
            raise CommandError(f"There is no key named {options['name']!r}.")
        keys.invalidate_api_key(row.id, actor=COMMAND_LINE, now=timezone.now())
        self.stdout.write(f"The key {row.name!r} is revoked.")


def format_day_or_never(value: Any) -> str:
    """Return the day of an instant, `never` for None, and a text that is no instant as it is."""
    if value is None:
        return "never"
    return f"{value:%Y-%m-%d}" if isinstance(value, datetime) else str(value)
