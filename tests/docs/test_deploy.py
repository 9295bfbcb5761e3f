"""What lies in .deploy/ for who runs several servers names settings that there are, and programs can read it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.served import ROOT

FOLDER = ROOT / ".deploy"
SERVERS = re.compile(r"\b(?:one|two):8765")


def test_the_settings_that_are_named_exist() -> None:
    known = set(re.findall(r"SIGNALBOX_[A-Z0-9_]+", (ROOT / "coordinator/settings.py").read_text()))
    for path in FOLDER.iterdir():
        assert set(re.findall(r"SIGNALBOX_[A-Z0-9_]+", path.read_text())) <= known, path


def test_the_container_holds_what_the_program_needs() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == {
        "manage.py", "pyproject.toml", "README.md", "LICENSE", "coordinator", "dashboard", "templates", "static",
    }  # fmt: skip
    assert all((ROOT / name).exists() for name in kept)


@pytest.mark.parametrize(
    ("program", "file", "check"),
    [("nginx", "nginx.conf", ["-t", "-q", "-c"]), ("haproxy", "haproxy.cfg", ["-c", "-q", "-f"])],
)
def test_the_proxies_can_read_their_examples(
    program: str, file: str, check: list[str], tmp_path: Path
) -> None:
    found = shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        pytest.skip(f"{program} is not installed")
    copy = tmp_path / file
    copy.write_text(SERVERS.sub("127.0.0.1:8765", (FOLDER / file).read_text()))
    done = subprocess.run([found, *check, str(copy)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
