"""A command whose output's reader has gone ends silently, as `| head` makes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_engine

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("words", ["help", "import --help", "manage help", "manage import_db --help"])
def test_nothing_is_said_of_output_that_nobody_reads(tmp_path: Path, words: str, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "coordinator.client.main", *words.split()],
            cwd=ROOT,
            stdout=writer,
            stderr=subprocess.PIPE,
            env={**os.environ, "SIGNALBOX_DATA_DIR": str(tmp_path), "PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
