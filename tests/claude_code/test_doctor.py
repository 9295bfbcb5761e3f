"""The doctor follows a hook through every hop, says where it is stuck, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from coordinator.dialects.claude_settings import (
    REPORTING,
    WAIT,
    WAITING,
    WAITING_TIMEOUT,
    render_claude_settings,
)
from tests.served import ROOT, Served, manage

pytestmark = pytest.mark.served


def test_the_doctor_finds_every_hop_working(served: Served) -> None:
    told = manage("doctor", "claude-code", env=served.env).stdout
    assert told.count("ok  ") == 6, told
    assert served.sql("SELECT count(*) FROM sessions") == [(0,)]
    assert served.sql("SELECT count(*) FROM api_keys WHERE name LIKE 'doctor-%' AND revoked_at IS NULL") == [
        (0,)
    ]


def test_the_doctor_names_what_is_wrong(served: Served) -> None:
    command = [sys.executable, "manage.py", "doctor", "claude-code", "--key=sbx_nonsense"]
    done = subprocess.run(command, cwd=ROOT, env=served.env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "FAIL" in done.stdout
    assert "unknown or was revoked" in done.stdout


def hooks(block: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [hook for entry in block["hooks"][name] for hook in entry["hooks"]]


def test_the_settings_wait_less_long_here_than_the_hook_does() -> None:
    block = json.loads(render_claude_settings("https://box.example/"))
    for name in WAITING:
        (hook,) = hooks(block, name)
        assert hook["url"] == f"https://box.example/hooks/claude-code?wait={WAIT}"
        assert WAIT < hook["timeout"] == WAITING_TIMEOUT < 600
    for name in REPORTING:
        assert hooks(block, name)[0]["url"] == "https://box.example/hooks/claude-code"
    # SessionStart takes no HTTP hook.
    assert [hook["type"] for hook in hooks(block, "SessionStart")] == ["command"]
    assert "sbx_" not in json.dumps(block)


def test_managed_settings_name_what_hooks_may_use() -> None:
    block = json.loads(render_claude_settings("http://127.0.0.1:8765", managed=True))
    assert block["allowedHttpHookUrls"] == ["http://127.0.0.1:8765/hooks/claude-code*"]
    assert set(block["httpHookAllowedEnvVars"]) == {
        variable for name in WAITING for hook in hooks(block, name) for variable in hook["allowedEnvVars"]
    }
    assert block["allowManagedHooksOnly"] is True
