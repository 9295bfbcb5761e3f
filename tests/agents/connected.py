"""How an agent comes to report to the server of a test: what a person does once on a machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from coordinator.dialects.claude_settings import WAIT, render_claude_settings
from tests.agents.real_agents import Home
from tests.served import KEYS, ROOT, Served

CONNECTED_WITHIN = 90.0  # seconds


def connect(home: Home, served: Served, *, deadline: int | None = None, key: str = KEYS["agent"]) -> str:
    """Run `signalbox connect` in the agent's home and return what it printed.

    `deadline` (seconds) is then how long the agent waits for a hook that holds a call, instead of what was written.
    """
    words = ("connect", home.agent.name, "--url", served.url, "--yes", "--key-file", "-")
    said = signalbox(home, *words, key=key)
    if deadline is not None:
        shorten(home, deadline)
    return said


def signalbox(home: Home, *words: str, key: str = KEYS["agent"]) -> str:
    """Run the program signalbox of this work tree in the agent's home; return what it printed."""
    program = home.path / "bin" / "signalbox"
    if not program.exists():
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from coordinator.client.main import main\nsys.exit(main())\n"
        )
        program.chmod(0o755)
    done = subprocess.run(
        [program, *words],
        check=False,
        cwd=home.work,
        env=home.environment,
        input=f"{key}\n",
        capture_output=True,
        text=True,
        timeout=CONNECTED_WITHIN,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shorten(home: Home, deadline: int) -> None:
    """Let the agent wait this many seconds for a hook that holds a call."""
    for file in home.settings_files():
        text = file.read_text()
        text = re.sub(r"WAIT_SECONDS = 590\b", f"WAIT_SECONDS = {deadline}", text)
        text = re.sub(r"--timeout 590\b", f"--timeout {deadline}", text)
        text = re.sub(r'("timeout": )590\b', rf"\g<1>{deadline}", text)
        text = re.sub(r'("timeout": )590000\b', rf"\g<1>{deadline * 1000}", text)
        file.write_text(text)


def paste(home: Home, served: Served, *, wait: int = WAIT) -> None:
    """Paste what the page Connect shows into Claude Code's settings; `wait`: how long its hooks wait for a person."""
    file = home.path / ".claude" / "settings.json"
    settings = json.loads(file.read_text()) | json.loads(render_claude_settings(served.url))
    file.write_text(json.dumps(settings).replace(f"?wait={WAIT}", f"?wait={wait}"))
    home.environment["SIGNALBOX_KEY"] = KEYS["agent"]
