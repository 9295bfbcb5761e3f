"""The whole way: a person makes a code, a machine connects with it, its hooks report, and it is disconnected again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.connecting.homes import everything
from tests.served import ROOT, Served

pytestmark = [pytest.mark.served, pytest.mark.browser]
AGENTS = ("claude-code", "codex")


class Machine:
    """A home of its own, and the program signalbox as it would be installed there."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.program = folder / "bin" / "signalbox"
        self.program.parent.mkdir(parents=True)
        self.home.mkdir()
        self.program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from coordinator.client.main import main\nsys.exit(main())\n"
        )
        self.program.chmod(0o755)

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run signalbox there."""
        environment = {"HOME": str(self.home), "PATH": os.defpath}
        return subprocess.run(
            [self.program, *words],
            env=environment,
            cwd=self.home,
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def test_a_machine_is_connected_and_disconnected(
    served: Served, person_at: Callable[..., Any], tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    settings = machine.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{\n  // mine\n  "model": "opus",\n}\n')
    (machine.home / ".codex").mkdir()
    before = everything(machine.home)

    page, _ = person_at(served, "admin")
    page.goto("/ui/connections/")
    page.get_by_label("Name").fill("a-machine")
    page.get_by_role("button", name="Make code").click()
    code = page.locator("#new-code").inner_text()
    command = page.locator("#connect-command").inner_text().split()
    assert command == ["signalbox", "connect", "--url", served.url]

    done = machine.run(*command[1:], "--yes", "--key-file", "-", given=f"{code}\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Found here: Claude Code, Codex." in done.stdout
    assert "FAILS" not in done.stdout
    assert done.stdout.count("works") == 3 * len(AGENTS)
    assert "enter /hooks and trust the new hooks" in done.stdout
    assert '+    "PreToolUse": [' in done.stdout
    assert machine.run("connect", "--check").returncode == 0

    again = machine.run(*command[1:], "--yes", "--key-file", "-", given=f"{code}\n")
    assert "not valid" in again.stderr

    page.goto("/ui/connections/")
    for title in ("Claude Code", "Codex"):
        expect(page.get_by_text(f"The latest session from {title}")).to_be_visible()
    headers = json.loads(machine.run("headers").stdout)
    key = headers["Authorization"].removeprefix("Bearer ")
    assert key.startswith("sbx_")
    assert key not in settings.read_text()

    assert machine.run("disconnect").returncode == 0
    assert everything(machine.home) == before
