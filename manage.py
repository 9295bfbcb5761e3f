#!/usr/bin/env python
"""Signalbox's command line: `python manage.py serve` runs it, `python manage.py help` lists the rest."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    if sys.argv[1:2] == ["serve"] and not {"--control", "-h", "--help"} & set(sys.argv):
        from coordinator.lib import supervisor  # listens before anything else is loaded

        sys.exit(supervisor.serve())
    if sys.argv[1:2] == ["install_service"]:  # it makes another user's data folder, and none of root's
        import tempfile

        with tempfile.TemporaryDirectory(prefix="signalbox-") as folder:
            os.environ["SIGNALBOX_DATA_DIR"] = folder
            os.environ.pop("DATABASE_URL", None)
            run()
        return
    run()


def run() -> None:
    """Run the command that the words after manage.py name."""
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ImportError as missing:
        sys.exit(f"Signalbox is not installed here ({missing}). Run: pip install -e .")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as problem:
        # A setting that cannot be used is the operator's to mend: a sentence helps, a traceback does not.
        sys.exit(f"Signalbox cannot start: {problem}")


if __name__ == "__main__":
    main()
