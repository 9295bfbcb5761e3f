"""`manage.py check_migrations`: can the pending migrations be applied while older servers run?"""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from coordinator.operations import migrating, startup


class Command(BaseCommand):
    """Shows each operation of the pending migrations with a verdict and its reason; changes nothing.

    Exit codes: 0 nothing is pending or all of it is safe, 3 something is not.
    """

    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_database_connection()
        findings = migrating.list_pending_migration_safety_findings()
        if not findings:
            self.stdout.write("No migration is pending.")
            return
        for finding in findings:
            word = "safe  " if finding.safe else self.style.ERROR("UNSAFE")
            self.stdout.write(f"{word}  {finding.migration}: {finding.operation}: {finding.why}")
        if not migrating.select_unsafe_findings(findings):
            self.stdout.write("All of them can be applied while servers of the previous version run.")
            return
        self.stdout.write("Stop every server of the previous version, then start the new ones.")
        sys.exit(3)
