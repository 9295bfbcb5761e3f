#!/usr/bin/env python
"""Signalbox's command line: `python manage.py serve` runs it, `python manage.py help` lists the rest."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db import OperationalError

# A server works on while it has to wait (serve), and who asks whether all is well wants to know it now (doctor).
IMPATIENT = {"serve", "doctor"}
PATIENCE_MS = 60_000  # how long any other command waits for a lock


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    if sys.argv[1:2] == ["serve"] and not {"--check", "-h", "--help"} & set(sys.argv):
        begin_serving()
    if sys.argv[1:2] == ["install_service"]:  # it makes another user's data folder, and none of root's
        import tempfile

        with tempfile.TemporaryDirectory(prefix="signalbox-") as folder:
            os.environ["SIGNALBOX_DATA_DIR"] = folder
            os.environ.pop("DATABASE_URL", None)
            run()
        return
    run()


def begin_serving() -> None:
    """Listen before anything else is loaded: who connects while the server is being prepared waits."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        # glibc gives each thread a heap of its own, and what is free in one serves no other: a fifth of what a busy
        # worker grows by. Threads of one interpreter take turns anyway. It looks at this as a process begins.
        os.environ["MALLOC_ARENA_MAX"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server restarts on it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    from coordinator.lib import addresses

    addresses.open_serving_files()


def run() -> None:
    """Run the command that the words after manage.py name."""
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import BaseCommand, execute_from_command_line
        from django.db import OperationalError
    except ImportError as missing:
        sys.exit(f"Signalbox is not installed here ({missing}). Run: pip install -e .")
    try:
        # Django would look at every page and model before each command, for a third of its time: `check`, the doctor
        # and CI do that.
        BaseCommand.requires_system_checks = []
        if not IMPATIENT & set(sys.argv[1:2]):
            from coordinator.engine import locks

            locks.set_default_lock_timeout(PATIENCE_MS)
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as problem:
        # A setting that cannot be used is the operator's to mend: a sentence helps, a traceback does not.
        sys.exit(f"Signalbox cannot start: {problem}")
    except OperationalError as problem:
        if "--traceback" in sys.argv:
            raise
        sys.exit(in_a_sentence(problem))


def in_a_sentence(problem: OperationalError) -> str:
    """Return what stopped a command in the database, and what to do."""
    from coordinator.engine import locks

    if locks.is_retryable_lock_error(problem):
        return (
            "The database is busy: other programs wrote to it all the time. The step that waited was not done. "
            "Run the command again, or when there is less to do."
        )
    return f"The database cannot be used: {str(problem).strip()}"


if __name__ == "__main__":
    main()
