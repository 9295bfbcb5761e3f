"""Our status line in an agent's settings, around a person's own where there is one. Pure: text in, text out.

An agent has one status line. So a person's own command becomes the argument of ours, which runs it with the same input
and shows what it prints (`client.status_line`).
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress

from coordinator.client.connecting import jsonc

PATH = ("statusLine",)
_OURS = re.compile(
    r"^.{0,4096}?(?:signalbox(?:\.exe)?|coordinator\.client\.main)['\"]*\s+status-line(?![\w-])"
    r"|^.{0,4096}?coordinator/client/launch\.py['\"]*\s+--settings\s.{1,4096}?\s+status-line(?![\w-])"
)


def add_or_wrap_status_line(text: str, command: str) -> str:
    """Return the settings with our command as the status line; one of another kind than a command is left alone."""
    current = find_status_line_command(text)
    if current is None:
        is_missing = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), PATH) is None
        entry = {"type": "command", "command": command}
        return jsonc.set_jsonc_value(text, PATH, entry) if is_missing else text
    own = extract_personal_status_line(current)
    wanted_command = f"{command} {shlex.quote(own)}" if own else command
    return (
        text if current == wanted_command else jsonc.set_jsonc_value(text, (*PATH, "command"), wanted_command)
    )


def restore_personal_status_line(text: str) -> str:
    """Return the settings with the person's own status line as it was, or with none."""
    current = find_status_line_command(text)
    if current is None or not _OURS.match(current):
        return text
    own = extract_personal_status_line(current)
    return (
        jsonc.set_jsonc_value(text, (*PATH, "command"), own) if own else jsonc.remove_jsonc_item(text, PATH)
    )


def find_status_line_command(text: str) -> str | None:
    """Return the command of the status line; None where there is none."""
    node = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), PATH)
    value = node.to_python_value() if node is not None else None
    command = value.get("command") if isinstance(value, dict) else None
    return command if isinstance(command, str) and command.strip() else None


def extract_personal_status_line(command: str) -> str:
    """Return the person's own command within a status line, which may be all of it; "" where there is none."""
    match = _OURS.match(command)
    if match is None:
        return command
    rest = command[match.end() :].strip().removeprefix("-- ")
    words = [rest]
    with suppress(ValueError):
        words = shlex.split(rest)
    return words[0] if len(words) == 1 else rest
