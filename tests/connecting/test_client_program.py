"""The program that a server offers to machines of agents is one small file, and all that they need."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.served import KEYS, Served

SYSTEM_PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or "python3"


@pytest.fixture
def program(served: Served, tmp_path: Path) -> Path:
    """The downloaded file."""
    answer = served.client(None).get("/client/signalbox.pyz")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")
    path = tmp_path / "signalbox.pyz"
    path.write_bytes(answer.content)
    return path


def run(program: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    home = program.parent / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [SYSTEM_PYTHON, "-S", program, *words],
        env={"HOME": str(home), "PATH": os.defpath},
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_it_is_small_and_brings_its_licences(program: Path) -> None:
    assert program.stat().st_size < 1_000_000
    with zipfile.ZipFile(program) as archive:
        names = set(archive.namelist())
    assert {"__main__.py", "coordinator/client/hook.py", "tomlkit/LICENSE", "yaml/LICENSE"} <= names
    assert "signalbox_sdk/asking.py" in names
    assert not [name for name in names if name.startswith(("django", "coordinator/actions"))]


def test_agents_that_it_connected_report_after_it_was_deleted(served: Served, program: Path) -> None:
    home = program.parent / "home"
    (home / ".claude").mkdir(parents=True)
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text("# mine\n")
    key = program.parent / "key"
    key.write_text(KEYS["agent"])
    key.chmod(0o600)
    done = run(
        program, "connect", "--yes", "--url", served.url, "--key-file", str(key), "claude-code", "codex"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# mine" in (home / ".codex/config.toml").read_text()  # edited by the TOML editor that it brings
    program.unlink()
    settings = json.loads((home / ".claude/settings.json").read_text())
    command = settings["hooks"]["SessionStart"][0]["hooks"][0]["command"]
    hook = {
        "hook_event_name": "SessionStart",
        "session_id": "from-one-file",
        "cwd": str(home),
        "source": "startup",
    }
    called = subprocess.run(
        ["sh", "-c", command],
        env={"HOME": str(home), "PATH": os.defpath},
        input=json.dumps(hook),
        capture_output=True,
        text=True,
        check=False,
    )
    assert called.returncode == 0, called.stderr
    sessions = served.client("read").get("/sessions").json()
    assert "from-one-file" in json.dumps(sessions)


def test_what_belongs_to_the_server_says_so(program: Path) -> None:
    done = run(program, "serve")
    assert done.returncode == 2
    assert "belongs to the server" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_is_unpacked_once_and_for_its_user_alone(program: Path) -> None:
    for _ in range(2):
        assert run(program, "--help").returncode == 0
    parent = program.parent / "home/.local/share/signalbox-client"
    assert len(list(parent.iterdir())) == 1
    assert parent.stat().st_mode & 0o077 == 0
