"""The help page Settings and the code name the same settings."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# No settings: what Claude Code says of itself to the programs that it starts (coordinator/client/mcp_ask.py), and
# systemd (coordinator/lib/listening_sockets.py), runners and move_to to itself. And the desktop's convention for
# folders.
SAID_BY_STARTERS = {
    "CLAUDE_CODE_SESSION_ID", "CLAUDE_PROJECT_DIR", "SIGNALBOX_AGENT", "SIGNALBOX_MOVING", "SIGNALBOX_SESSION",
    "SYSTEMD_EXEC_PID", "XDG_DATA_HOME",
}  # fmt: skip


def documented() -> set[str]:
    page = (ROOT / ".docs/settings.md").read_text()
    return set(re.findall(r"^\| `([A-Z0-9_]+)` \|", page, re.M))


def read_by_the_code() -> set[str]:
    # A name stands either in a call of an env_… reader, or is looked up in os.environ.
    found: set[str] = set()
    for folder in ("coordinator", "dashboard"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            found |= set(re.findall(r"""env_\w+\(\s*["']([A-Z0-9_]+)["']""", text))
            found |= set(re.findall(r"""os\.environ\.get\(\s*["']([A-Z0-9_]+)["']""", text))
    return found - {"DJANGO_SETTINGS_MODULE"} - SAID_BY_STARTERS


def test_every_setting_is_documented() -> None:
    assert read_by_the_code() - documented() == set()


def test_every_documented_setting_exists() -> None:
    assert documented() - read_by_the_code() == set()


def test_the_code_reads_as_many_settings_as_we_know_of() -> None:
    assert len(read_by_the_code()) >= 19  # a pattern that finds nothing would make the other two empty
