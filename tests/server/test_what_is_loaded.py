"""A process loads what it has use for: each part of a start is felt at every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.served import ROOT, Template

LOADED = """
import sys, django
django.setup()
import coordinator.edge.app, coordinator.urls
print("psycopg" in sys.modules)
from django.contrib.postgres.fields import ArrayField
"""


def test_on_sqlite_the_driver_of_postgresql_is_left_out(tmp_path: Path) -> None:
    env = Template.environment(tmp_path, "")
    env.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, env=env, check=False, capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr
    assert done.returncode == 0, "who asks for it by name still has it"
