"""The calls that are held for certain, as last received from the server: kept for when it cannot be reached.

The server says it with its answers (`X-Signalbox-Held`, made by its `policy.rules.offline_blocking`): a JSON list of
pairs of a word, `hold` or `free`, and tool names; of those that name a tool the first counts, and a tool that none
names is free.
"""

from __future__ import annotations

import json
import os

from coordinator.client import settings

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from typing import Any

EVERYTHING = [["hold", "*"]]
LARGEST = 1 << 16  # bytes of the file that are read


def parse_block_list_or_none(text: str | bytes) -> list[list[str]] | None:
    """Return the pairs in a header or a file; None where it is not in our form."""
    try:
        lines = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return lines if isinstance(lines, list) and all(map(is_offline_block_entry, lines)) else None


def is_offline_block_entry(line: Any) -> bool:
    if not (isinstance(line, list) and len(line) == 2 and line[0] in ("hold", "free")):
        return False
    return isinstance(line[1], str)


def is_tool_blocked_offline(lines: list[list[str]], tool: str | None) -> bool:
    """Say whether a call of this tool is held for certain; None is a tool whose name is not known."""
    if tool is None:
        return any(word == "hold" for word, _ in lines)
    for word, names in lines:
        if matches_any_tool_name_pattern(names, tool):
            return word == "hold"
    return False


def matches_any_tool_name_pattern(names: str, tool: str) -> bool:
    from fnmatch import fnmatchcase  # noqa: PLC0415 - only where the server is away

    for name in names.replace("|", ",").split(","):
        trimmed_name = name.strip()
        while "**" in trimmed_name:
            trimmed_name = trimmed_name.replace("**", "*")
        if trimmed_name and fnmatchcase(tool, trimmed_name):
            return True
    return False


def load_offline_block_list(folder: str, agent: str) -> list[list[str]] | None:
    """Return what was kept of an agent; None where nothing was. What cannot be read holds everything."""
    try:
        with open(offline_block_list_path(folder, agent), "rb") as file:
            hold_list = parse_block_list_or_none(file.read(LARGEST))
    except FileNotFoundError:
        return None
    except OSError:
        hold_list = None
    return EVERYTHING if hold_list is None else hold_list


def save_offline_block_list(folder: str, agent: str, reported: str) -> None:
    """Keep what the server said, where it is new. A list not in our form is left out. Raises OSError."""
    lines = parse_block_list_or_none(reported)
    if lines is not None and load_offline_block_list(folder, agent) != lines:
        settings.write_private_file(offline_block_list_path(folder, agent), json.dumps(lines).encode())


def offline_block_list_path(folder: str, agent: str) -> str:
    return os.path.join(folder, f"held-{agent}.json")
