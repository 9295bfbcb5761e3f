#!/usr/bin/env python
"""Signalbox's command line: `python manage.py serve` runs it, `python manage.py help` lists the rest."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
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
