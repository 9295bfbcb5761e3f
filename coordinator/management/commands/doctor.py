"""`manage.py doctor [SUBJECT]`: checks the installation and says how to fix what does not work."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.identity.actors import system_actor
from coordinator.operations.doctor import CheckLevel, CheckResult, StepResult, claude_code, everything

DOCTOR = system_actor("doctor")
KEY_LASTS = timedelta(minutes=5)


class Command(BaseCommand):
    """Without a subject, checks everything and fails if anything does not work.

    A subject is one connection, tested step by step up to the first step that fails.
    """

    help = "Check the whole installation, or test one connection step by step."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON array instead of lines")
        subjects = parser.add_subparsers(dest="subject")
        claude = subjects.add_parser(
            "claude-code", help="send a hook and follow it, hop by hop, to the browser"
        )
        claude.add_argument("--url", help="the running server's address (default: where serve binds)")
        claude.add_argument("--key", help="the key that Claude Code uses (default: one made for this test)")

    def handle(self, *args: Any, subject: str | None, **options: Any) -> None:
        if subject == "claude-code":
            self.print_claude_code_connection_steps(options)
        else:
            self.print_doctor_checks_or_exit(as_json=options["json"])

    def print_doctor_checks_or_exit(self, *, as_json: bool) -> None:
        check_results: list[CheckResult] = []
        for check in everything.iterate_all_doctor_checks(f"http://{settings.BIND}", timezone.now()):
            check_results.append(check)
            if not as_json:
                self.print_check(check)
        if as_json:
            self.stdout.write(json.dumps([asdict(check) for check in check_results], indent=2))
        if any(check.level is CheckLevel.FAIL for check in check_results):
            sys.exit(1)

    def print_check(self, check: CheckResult) -> None:
        styles = {
            CheckLevel.OK: self.style.SUCCESS,
            CheckLevel.WARN: self.style.WARNING,
            CheckLevel.FAIL: self.style.ERROR,
        }
        mark = styles[check.level](f"{check.level:<4}")
        remedy = f" → {check.remedy}" if check.remedy else ""
        self.stdout.write(f"{mark}  {check.name + ':':<14} {check.message}{remedy}")

    def print_claude_code_connection_steps(self, options: dict[str, Any]) -> None:
        url = options["url"] or f"http://{settings.BIND}"
        if options["key"]:
            self.print_steps_and_raise_failure(
                claude_code.iterate_claude_code_trial_steps(url, options["key"], actor=DOCTOR)
            )
            return
        now = timezone.now()
        name = f"doctor-{now:%Y%m%d-%H%M%S-%f}"
        row, raw = keys.issue_api_key(
            name=name,
            scopes=["agent"],
            agent_id=claude_code.TRIAL_AGENT,
            actor=DOCTOR,
            now=now,
            expires_at=now + KEY_LASTS,
        )
        try:
            self.print_steps_and_raise_failure(
                claude_code.iterate_claude_code_trial_steps(url, raw, actor=DOCTOR)
            )
        finally:
            keys.invalidate_api_key(row.pk, actor=DOCTOR, now=timezone.now(), reason="the test has ended")

    def print_steps_and_raise_failure(self, findings: Iterable[StepResult]) -> None:
        for finding in findings:
            mark = self.style.SUCCESS("ok  ") if finding.works else self.style.ERROR("FAIL")
            took = "" if finding.ms is None else f"{finding.ms:6.0f} ms  "
            self.stdout.write(f"{mark} {took}{finding.step}: {finding.message}")
            if not finding.works:
                raise CommandError("Claude Code cannot reach Signalbox.")
