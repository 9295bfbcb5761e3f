"""The demo as an instance of its own, as a person starts and ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from coordinator.demo.separate import build_demo_environment
from coordinator.lib.installation import management_command_argv_prefix
from tests.patience import until
from tests.served import free_port

STARTS_WITHIN = 240.0  # seconds: it fills a database, prepares static files and starts a server
pytestmark = [pytest.mark.served, pytest.mark.one_engine]


def test_it_takes_no_setting_of_the_installation_it_is_started_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_OIDC_ISSUER", "https://login.example.com")
    monkeypatch.setenv("DATABASE_URL", "postgres://example.com/real")
    environment = build_demo_environment("/tmp/x", 9000)
    assert {
        name: value for name, value in environment.items() if name.startswith(("SIGNALBOX", "DATABASE"))
    } == {
        "SIGNALBOX_DATA_DIR": "/tmp/x",
        "SIGNALBOX_BIND": "127.0.0.1:9000",
    }


def test_it_runs_beside_the_installation_and_leaves_nothing(tmp_path: Path) -> None:
    port, real, temporary = free_port(), tmp_path / "real", tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"SIGNALBOX_DATA_DIR": str(real), "TMPDIR": str(temporary)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)  # of the tests
    output = tmp_path / "output"
    with output.open("w") as file:
        command = [
            *management_command_argv_prefix(),
            "demo",
            "--separate",
            "--days",
            "1",
            "--port",
            str(port),
        ]
        demo = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        until(lambda: re.search(r"/ui/setup/\?token=", output.read_text()), within=STARTS_WITHIN)
        until(lambda: httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200)
        assert len(list(temporary.glob("signalbox-demo-*"))) == 1
    finally:
        demo.send_signal(signal.SIGTERM)
        demo.wait(60)
    assert demo.returncode == 0, output.read_text()
    assert list(temporary.glob("signalbox-demo-*")) == []
    assert not (real / "signalbox.sqlite3").exists()
