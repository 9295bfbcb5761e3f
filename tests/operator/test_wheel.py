"""A wheel holds all that Signalbox needs: it serves, fills its demo and checks itself where no clone is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.patience import PATIENCE
from tests.served import ROOT, free_port

pytestmark = [pytest.mark.served, pytest.mark.one_engine]


@dataclass(frozen=True)
class Installed:
    """A wheel in an environment of its own, and a home where nothing is."""

    folder: Path
    port: int

    @property
    def data(self) -> Path:
        return self.folder / "home/.local/share/signalbox"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder / "home"),
            "PATH": f"{self.folder / 'env/bin'}:/usr/bin:/bin",
            "SIGNALBOX_BIND": f"127.0.0.1:{self.port}",
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.folder / "env/bin/signalbox", *words],
            cwd=self.folder / "home",
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        said, _ = process.communicate(timeout=5 * PATIENCE)
        return process.returncode, said


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True
    )
    (path,) = folder.glob("signalbox-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an empty environment. What it depends on is read where these tests have it."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "home").mkdir()
    venv.create(folder / "env", with_pip=False)
    pip = [shutil.which("pip") or pytest.skip("pip is not installed"), "--python", folder / "env/bin/python"]
    subprocess.run([*pip, "install", "-q", "--no-compile", "--no-deps", "--no-index", wheel], check=True)
    (site,) = (folder / "env/lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    return Installed(folder, free_port())


@pytest.fixture(scope="module")
def served(installed: Installed) -> Iterator[str]:
    """The address of people's pages."""
    process = installed.start("serve")
    until = time.monotonic() + 5 * PATIENCE
    try:
        while time.monotonic() < until and process.poll() is None:
            try:
                assert httpx.get(f"http://127.0.0.1:{installed.port}/health", timeout=PATIENCE).json()
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{installed.port}"
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=PATIENCE)
    assert "/ui/setup/?token=" in said


def test_it_holds_pages_static_files_help_and_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "templates", "static", ".docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {f"coordinator/share/{name}" for name in tracked} <= names
    assert sum("dist-info/licenses/" in name for name in names) == 2
    assert not [name for name in names if name.startswith(("tests/", "static/", "templates/"))]


def test_it_serves_the_sign_in_page_with_its_looks(installed: Installed, served: str) -> None:
    page = httpx.get(f"{served}/ui/sign-in/", follow_redirects=False)
    host = page.headers["Location"].split("/")[2]
    page = httpx.get(f"{served}/ui/sign-in/", headers={"Host": host})
    assert page.status_code == 200
    styles = re.findall(r'href="(/static/css/[^"]+)"', page.text)
    assert styles
    for style in styles:
        assert (
            httpx.get(f"{served}{style}", headers={"Host": host})
            .headers["Content-Type"]
            .startswith("text/css")
        )
    assert (installed.data / "signalbox.sqlite3").exists()


def test_it_fills_the_demo_and_checks_itself(installed: Installed, served: str) -> None:
    code, said = installed.run("demo")
    assert code == 0, said
    assert "Wrote " in said
    _, said = installed.run("doctor")
    assert "ok    migrations" in said, said
    assert str(installed.data) in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--help"], "usage: signalbox"),
        (["connect", "--help"], "usage: signalbox connect"),
        (["runner", "--list"], "Claude Code"),
        (["manage", "backup", "--help"], "usage: signalbox manage backup"),
    ],
)
def test_its_commands_run(installed: Installed, words: list[str], expected: str) -> None:
    code, said = installed.run(*words)
    assert code == 0, said
    assert expected in said
