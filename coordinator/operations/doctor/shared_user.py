"""Whether agents probably run as the user that runs Signalbox: then they can read its data and decide."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from coordinator.lib.private_files import name_of

# What agents leave in the home of the user they run as.
TRACES = (
    ".claude", ".claude.json", ".codex", ".gemini", ".cursor", ".copilot", ".qwen", ".openhands", ".continue",
    ".aider.conf.yml", ".config/opencode", ".config/kilo", ".config/goose", ".config/github-copilot",
)  # fmt: skip
# The names of their processes.
AGENT_PROCESSES = frozenset(
    {"claude", "codex", "gemini", "opencode", "goose", "aider", "cursor-agent", "copilot", "qwen", "kilo"}
)
PROBLEM_KEPT_FOR = 300  # seconds
REMEDY = (
    "Give Signalbox a user of its own: sudo python manage.py install_service; "
    "or run agents in a container, or on another machine."
)


def problem(uid: int) -> str | None:
    """Return in a sentence why agents may run as the user `uid`, or None where nothing says so."""
    user = name_of(uid)
    if running := sorted(set(_processes(uid))):
        names = " and ".join(running)
        return f"{names} run as {user}, the user that runs Signalbox: they can read its data and decide."
    home = _home(uid)
    if home is None:
        return None
    if found := [name for name in TRACES if _is_there(home / name)]:
        return (
            f"Agents have run as {user}, the user that runs Signalbox ({home / found[0]} is there): "
            "they can read its data and decide."
        )
    if _is_login(uid):
        return f"Signalbox runs as {user}, a user that people sign in as: agents that they start can read its data."
    return None


def known_problem() -> str | None:
    """Return `problem` of this process's user, looked up every few minutes at most."""
    return _kept(os.geteuid(), int(time.monotonic() // PROBLEM_KEPT_FOR))


@lru_cache(maxsize=2)
def _kept(uid: int, _period: int) -> str | None:
    return problem(uid)


def _home(uid: int) -> Path | None:
    try:
        return Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return None


def _is_login(uid: int) -> bool:
    return not pwd.getpwuid(uid).pw_shell.endswith(("nologin", "false"))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _processes(uid: int) -> Iterator[str]:
    """Yield the names of agents that run as `uid`; nothing where /proc does not show it."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                process.stat().st_uid == uid
                and (name := (process / "comm").read_text().strip()) in AGENT_PROCESSES
            ):
                yield name
        except OSError:
            continue
