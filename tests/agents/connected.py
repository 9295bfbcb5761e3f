"""How an agent comes to report to the server of a test: what a person does once on a machine."""

from __future__ import annotations

import json

from coordinator.dialects.claude_settings import WAIT, settings_for
from tests.agents.real_agents import Home
from tests.served import KEYS, Served


def paste(home: Home, served: Served, *, wait: int = WAIT) -> None:
    """Paste what the page Connect shows into Claude Code's settings; `wait`: how long its hooks wait for a person."""
    file = home.path / ".claude" / "settings.json"
    settings = json.loads(file.read_text()) | json.loads(settings_for(served.url))
    file.write_text(json.dumps(settings).replace(f"?wait={WAIT}", f"?wait={wait}"))
    home.environment["SIGNALBOX_KEY"] = KEYS["agent"]
