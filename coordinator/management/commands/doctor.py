"""`manage.py doctor SUBJECT`: tries things out and says what to do about what does not work."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from coordinator.actions import keys
from coordinator.actors import system
from coordinator.doctor import Finding, claude_code

DOCTOR = system("doctor")
KEY_LASTS = timedelta(minutes=5)


class Command(BaseCommand):
    """One subject a subparser; each yields findings, and the command fails with the first that does not work."""

    help = "Try out whether something works, step by step."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the subjects."""
        subjects = parser.add_subparsers(dest="subject", required=True)
        claude = subjects.add_parser("claude-code", help="send a hook through every hop to the browser")
        claude.add_argument("--url", help="the running server's address (default: where serve binds)")
        claude.add_argument("--key", help="the key that Claude Code uses (default: one made for the trial)")

    def handle(self, *args: Any, subject: str, **options: Any) -> None:
        """Examine one subject and print what was found."""
        {"claude-code": self._claude_code}[subject](options)

    def _claude_code(self, options: dict[str, Any]) -> None:
        url = options["url"] or f"http://{settings.BIND}"
        if options["key"]:
            self._tell(claude_code.examine(url, options["key"], by=DOCTOR))
            return
        now = timezone.now()
        name = f"doctor-{now:%Y%m%d-%H%M%S-%f}"
        row, raw = keys.create(name=name, scopes=["agent"], by=DOCTOR, now=now, expires_at=now + KEY_LASTS)
        try:
            self._tell(claude_code.examine(url, raw, by=DOCTOR))
        finally:
            keys.revoke(row.pk, by=DOCTOR, now=timezone.now(), reason="the trial is over")

    def _tell(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            mark = self.style.SUCCESS("ok  ") if finding.works else self.style.ERROR("FAIL")
            took = "" if finding.ms is None else f"{finding.ms:6.0f} ms  "
            self.stdout.write(f"{mark} {took}{finding.step}: {finding.says}")
            if not finding.works:
                raise CommandError("Claude Code would not get through.")
