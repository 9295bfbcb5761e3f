"""A data folder that no server ever used: the import says so in a line, and makes nothing there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_command_says_what_to_do_first(tmp_path: Path) -> None:
    env = {**os.environ, "SIGNALBOX_DATA_DIR": str(tmp_path / "data"), "DATABASE_URL": ""}
    env.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run(
        [sys.executable, "manage.py", "import_db", "x.db"],
        check=False,
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("CommandError: There is no database")
    assert "serve" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list((tmp_path / "data").glob("*.sqlite3*"))
