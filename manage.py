#!/usr/bin/env python
"""Signalbox's command line in a clone: `python manage.py serve` is what `signalbox manage serve` is."""

from __future__ import annotations

import sys

from coordinator.client.main import main as run_client


def main() -> int:
    return run_client(["manage", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
