"""A check whether agents probably run as the user that runs Signalbox: then they can read its data and decide."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from coordinator.lib.private_files import os_user_name_or_number

# What agents leave in the home of the user they run as.
TRACES = (
    ".claude", ".claude.json", ".codex", ".gemini", ".cursor", ".copilot", ".qwen", ".openhands", ".continue",
    ".aider.conf.yml", ".config/opencode", ".config/kilo", ".config/goose", ".config/github-copilot",
)  # fmt: skip
# The names of their processes.
AGENT_PROCESSES = frozenset(
    {"claude", "codex", "gemini", "opencode", "goose", "aider", "cursor-agent", "copilot", "qwen", "kilo"}
)
PROBLEM_CACHE_SECONDS = 300
REMEDY = (
    'Give Signalbox a user of its own: sudo "$(command -v signalbox)" manage install_service; '
    "or run agents in a container, or on another machine."
)


def find_shared_user_problem(uid: int) -> str | None:
    """Return in a sentence why agents may run as the user `uid`, or None where nothing says so."""
    user = os_user_name_or_number(uid)
    if running := sorted(set(iterate_agent_process_names(uid))):
        names = " and ".join(running)
        return f"{names} run as {user}, the user that runs Signalbox: they can read its data and decide."
    home = find_user_home(uid)
    if home is None:
        return None
    if traces := [name for name in TRACES if is_existing_path(home / name)]:
        return (
            f"Agents have run as {user}, the user that runs Signalbox ({home / traces[0]} is there): "
            "they can read its data and decide."
        )
    if is_login_user(uid):
        return f"Signalbox runs as {user}, a user that people sign in as: agents that they start can read its data."
    return None


def cached_shared_user_problem() -> str | None:
    """Return `find_shared_user_problem` of this process's user, looked up every few minutes at most."""
    return find_shared_user_problem_cached(os.geteuid(), int(time.monotonic() // PROBLEM_CACHE_SECONDS))


@lru_cache(maxsize=2)
def find_shared_user_problem_cached(uid: int, _period: int) -> str | None:
    return find_shared_user_problem(uid)


def find_user_home(uid: int) -> Path | None:
    try:
        return Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return None


def is_login_user(uid: int) -> bool:
    return not pwd.getpwuid(uid).pw_shell.endswith(("nologin", "false"))


def is_existing_path(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def iterate_agent_process_names(uid: int) -> Iterator[str]:
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
