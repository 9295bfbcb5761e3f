"""A test that crashes its process fails, once, and every other test still runs (tests/file_scheduling.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_engine

ROOT = Path(__file__).parents[2]
CONFTEST = """
def pytest_xdist_make_scheduler(config, log):
    from tests.file_scheduling import FileScheduling
    return FileScheduling(config, log)
"""
CRASH = "def test_crash():\n    import os\n    os._exit(1)\n"
PASS = "def test_pass():\n    pass\n"


@pytest.mark.parametrize(
    "files",
    [
        {"test_a.py": CRASH + PASS, "test_b.py": PASS},
        {"test_a.py": PASS + CRASH, "test_b.py": PASS},
        {"test_a.py": CRASH + PASS, "test_b.py": PASS + CRASH, "test_c.py": PASS},
    ],
    ids=["first of a file", "last of a file", "in two processes"],
)
def test_a_crash_fails_one_test_and_ends_no_run(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in {"conftest.py": CONFTEST, **files}.items():
        (tmp_path / name).write_text(text)
    options = ["-n", "2", "-q", "-p", "no:cacheprovider", "-p", "no:django", "-c", "/dev/null"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", tmp_path, tmp_path],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    crashes = sum(CRASH in text for text in files.values())
    assert f"{crashes} failed, {len(files)} passed" in done.stdout, done.stdout + done.stderr
