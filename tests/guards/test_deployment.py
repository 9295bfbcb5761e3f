"""Django's own deployment checks find nothing, on loopback and behind TLS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.served import ROOT


@pytest.mark.parametrize("public_url", ["", "https://box.example"])
def test_the_deployment_checks_find_nothing(tmp_path: Path, public_url: str) -> None:
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("SIGNALBOX_", "DJANGO_"))
    }
    env |= {"SIGNALBOX_DATA_DIR": str(tmp_path), "SIGNALBOX_PUBLIC_URL": public_url}
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
