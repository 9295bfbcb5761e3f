"""What cannot work is refused in one clear line with exit code 1, and nothing is left half-made."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import READY_WITHIN, ROOT, Served, Template, free_port

pytestmark = pytest.mark.served


def start_in_vain(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SIGNALBOX_", "DATABASE_URL"))
    }
    return subprocess.run(
        [sys.executable, "manage.py", "serve", *words],
        cwd=ROOT,
        env=clean | {"DJANGO_SETTINGS_MODULE": "coordinator.settings"} | env,
        capture_output=True,
        text=True,
        timeout=READY_WITHIN,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line that was said; fails if it was more, or if the exit code is 0."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode == 1, done.stdout + done.stderr
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"SIGNALBOX_DATA_DIR": str(folder), "SIGNALBOX_BIND": f"127.0.0.1:{free_port()}", **more}


def test_port_in_use(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        line = said(start_in_vain(environment(folder, SIGNALBOX_BIND=f"127.0.0.1:{port}")))
    assert f"127.0.0.1:{port} cannot be used" in line
    assert not (folder / "signalbox.sqlite3").exists()


def test_port_in_use_at_the_other_loopback_address(folder: Path) -> None:
    """A browser asks ::1 first for our host name: whoever listens there would get people's passwords."""
    with socket.socket(socket.AF_INET6) as other:
        try:
            other.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        other.listen()
        port = other.getsockname()[1]
        line = said(start_in_vain(environment(folder, SIGNALBOX_BIND=f"127.0.0.1:{port}")))
    assert f"[::1]:{port} cannot be used" in line


def test_data_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    line = said(start_in_vain(environment(tmp_path / "file" / "data")))
    assert "data folder" in line
    assert "SIGNALBOX_DATA_DIR" in line


def test_unreachable_database_is_named_without_its_password(folder: Path) -> None:
    url = f"postgres://somebody:secret-word@127.0.0.1:{free_port()}/signalbox"
    line = said(start_in_vain(environment(folder, DATABASE_URL=url)))
    assert "cannot be opened" in line
    assert "secret-word" not in line


@pytest.mark.parametrize("url", ["mysql://root@127.0.0.1/x", "nonsense://", "postgres"])
def test_database_url_of_another_kind(folder: Path, url: str) -> None:
    assert "DATABASE_URL" in said(start_in_vain(environment(folder, DATABASE_URL=url)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIGNALBOX_BIND", "8765"),
        ("SIGNALBOX_TRUSTED_PROXIES", "10.0.0.1,proxy.example"),
        ("SIGNALBOX_PUBLIC_URL", "signalbox.example"),
        ("SIGNALBOX_API_AUTH", "perhaps"),
        ("SIGNALBOX_WORKERS", "many"),
        ("SIGNALBOX_SQLITE_SYNCHRONOUS", "sometimes"),
        ("SIGNALBOX_RUNNER_POLL_TIMEOUT", "0"),
        ("SIGNALBOX_LOG_LEVEL", "verbose"),
        ("SIGNALBOX_PUBLIC_URL", "https://[signalbox.example"),
        ("SIGNALBOX_PUBLIC_URL", "https://signalbox.example:87654"),
        ("SIGNALBOX_PUBLIC_URL", "https://signalbox.example?team=a"),
        ("SIGNALBOX_OIDC_ISSUER", "https://[id.example"),
        ("SIGNALBOX_OTLP_ENDPOINT", "http://collector:otlp"),
        ("SIGNALBOX_OTLP_HEADERS", "Authorization: Bearer abc"),
    ],
)
def test_setting_that_cannot_be_used_is_named(folder: Path, name: str, value: str) -> None:
    assert name in said(start_in_vain(environment(folder, **{name: value})))


def test_api_without_keys_is_refused_beyond_loopback(folder: Path) -> None:
    env = environment(folder, SIGNALBOX_API_AUTH="off", SIGNALBOX_BIND=f"0.0.0.0:{free_port()}")
    assert "SIGNALBOX_API_AUTH=off is refused" in said(start_in_vain(env))


def test_second_server_on_one_data_folder(served: Served) -> None:
    second = start_in_vain(served.env | {"SIGNALBOX_BIND": f"127.0.0.1:{free_port()}"})
    line = said(second)
    assert "already runs" in line
    assert "signalbox manage restart" in line
    assert served.process is not None
    assert str(served.process.pid) in line


@pytest.fixture
def idle(served_template: Template, folder: Path) -> Iterator[Served]:
    """A data folder and a database that nobody serves."""
    made = Served(served_template, folder, workers=1, env={})
    yield made
    made.close()


def test_database_of_a_newer_version(idle: Served) -> None:
    idle.sql(
        "INSERT INTO django_migrations (app, name, applied) VALUES ('coordinator', '9999_from_the_future_contract', ?)",
        ("2030-01-01 00:00:00+00:00",),
    )
    line = said(start_in_vain(idle.env))
    assert "newer Signalbox" in line
    assert "9999_from_the_future_contract" in line


def test_older_schema_is_left_alone_when_told_so(folder: Path) -> None:
    line = said(start_in_vain(environment(folder), "--no-migrate"))
    assert "lacks" in line
    assert "migrate" in line
