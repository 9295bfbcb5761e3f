"""The whole way: a person makes a code, a machine connects with it, its hooks report, and it is disconnected again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.connecting.homes import everything
from tests.connecting.machines import Machine
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.browser]
AGENTS = ("claude-code", "codex")


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
    page.get_by_role("button", name="Create code").click()
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
