"""The server's commands: what `signalbox serve`, `signalbox manage COMMAND` and `manage.py COMMAND` do.

Nothing but the standard library is imported until a server listens: who connects meanwhile waits.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db import OperationalError

# A server works on while it has to wait (serve), and who asks whether all is well wants to know it now (doctor).
IMPATIENT = {"serve", "doctor"}
PATIENCE_MS = 60_000  # how long any other command waits for a lock


def run_management_command_or_exit(arguments: Sequence[str], program: str) -> None:
    """Run one of Django's or our commands. `program` is how its usage calls this program."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    words = [program, *arguments]
    if words[1:2] == ["serve"] and not {"--check", "-h", "--help"} & set(words):
        restart_if_needed_and_open_listeners()
    if words[1:2] == ["install_service"]:  # it makes another user's data folder, and none of root's
        import tempfile

        with tempfile.TemporaryDirectory(prefix="signalbox-") as folder:
            os.environ["SIGNALBOX_DATA_DIR"] = folder
            os.environ.pop("DATABASE_URL", None)
            run_django_command_or_exit(words)
        return
    run_django_command_or_exit(words)


def restart_if_needed_and_open_listeners() -> None:
    """Listen before anything else is loaded: who connects while the server is being prepared waits."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        # glibc gives each thread a heap of its own, and what is free in one serves no other: a fifth of what a busy
        # worker grows by. Threads of one interpreter take turns anyway. It looks at this as a process begins.
        os.environ["MALLOC_ARENA_MAX"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server restarts on it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    from coordinator.lib import listening_sockets

    listening_sockets.open_or_inherit_serving_files()


def run_django_command_or_exit(words: list[str]) -> None:
    """Have Django run a command, and end with a sentence where it cannot be run."""
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import BaseCommand, execute_from_command_line
        from django.db import OperationalError
    except ImportError as missing:
        sys.exit(
            f"Signalbox's server is not installed here ({missing}). In a clone of its repository run: pip install -e ."
        )
    try:
        # Django would look at every page and model before each command, for a third of its time: `check`, the doctor
        # and CI do that.
        BaseCommand.requires_system_checks = []
        if not IMPATIENT & set(words[1:2]):
            from coordinator.engine import locks

            locks.set_new_connections_lock_timeout(PATIENCE_MS)
        execute_from_command_line(words)
    except ImproperlyConfigured as problem:
        # A setting that cannot be used is the operator's to mend: a sentence helps, a traceback does not.
        sys.exit(f"Signalbox cannot start: {problem}")
    except OperationalError as problem:
        if "--traceback" in words:
            raise
        sys.exit(describe_database_error(problem))


def describe_database_error(problem: OperationalError) -> str:
    """Return what stopped a command in the database, and what to do."""
    from coordinator.engine import locks

    if locks.is_retryable_lock_error(problem):
        return (
            "The database is busy: other programs wrote to it all the time. The step that waited was not done. "
            "Run the command again, or when there is less to do."
        )
    return f"The database cannot be used: {str(problem).strip()}"


if __name__ == "__main__":
    run_management_command_or_exit(sys.argv[1:], "signalbox manage")
