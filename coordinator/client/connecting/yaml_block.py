"""An entry of ours in somebody's YAML: put in between two lines that mark it, taken out again. Pure.

Only what Goose writes itself is added to: mappings in lines of their own. Anything else is left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from coordinator.client.connecting.jsonc import Unreadable
from coordinator.client.connecting.toml_block import BEGIN, END

_BLOCK = re.compile(rf"[ ]*{re.escape(BEGIN)}.*?{re.escape(END)}(?:\r?\n|\Z)", re.DOTALL)


def put_in(text: str, table: tuple[str, ...], values: Mapping[str, Any]) -> str:
    """Return the settings with our entry, once; the same text where somebody else's stands in its place.

    `table` are the key of the mapping at the top and the entry's own. Raises Unreadable where there is no room for it.
    """
    without = take_out(text)
    if stands(without, table):
        return text
    group, name = table
    line_end = "\r\n" if "\r\n" in without else "\n"
    lines = without.splitlines(keepends=True)
    at = _line_of(lines, group)
    step = "  " if at is None else _step(lines, at)
    entry = [f"{step}{name}:", *(f"{step * 2}{key}: {json.dumps(value)}" for key, value in values.items())]
    if at is None:
        block = [BEGIN, f"{group}:", *entry, END]
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += line_end
        return "".join([*lines, *(f"{line}{line_end}" for line in block)])
    if not lines[at].endswith("\n"):
        lines[at] += line_end
    block = [f"{step}{BEGIN}", *entry, f"{step}{END}"]
    return "".join([*lines[: at + 1], *(f"{line}{line_end}" for line in block), *lines[at + 1 :]])


def take_out(text: str) -> str:
    """Return the settings without our entry. Raises Unreadable for a form of YAML that is not merged into."""
    without = _BLOCK.sub("", text, count=1)
    for line in without.splitlines()[1:]:
        if line.startswith(("---", "...", "%")):
            raise Unreadable("it holds more than one document")
    if without.lstrip().startswith(("{", "[", "- ")):
        raise Unreadable("its settings are not a mapping with one entry on a line")
    return without


def stands(text: str, table: tuple[str, ...]) -> bool:
    """Say whether the settings have the entry. Raises Unreadable."""
    lines = text.splitlines()
    at = _line_of(lines, table[0])
    if at is None:
        return False
    names = {f"{quote}{table[1]}{quote}:" for quote in ("", '"', "'")}
    step = _step(lines, at)
    return any(
        line[: len(step)] == step and line[len(step) :].startswith(tuple(names)) for line in lines[at + 1 :]
    )


def _line_of(lines: list[str], group: str) -> int | None:
    """Return the line in which the mapping begins. Raises Unreadable where it stands in that line itself."""
    for at, line in enumerate(lines):
        found = re.match(rf"""['"]?{re.escape(group)}['"]?[ ]*:(.*)""", line)
        if found is not None:
            if found[1].strip() and not found[1].strip().startswith("#"):
                raise Unreadable(f"its {group} are not on lines of their own")
            return at
    return None


def _step(lines: list[str], at: int) -> str:
    """Return by how much the entries of a mapping are moved in. Raises Unreadable where they are moved in by tabs."""
    for line in lines[at + 1 :]:
        if line.strip() and not line.lstrip().startswith("#"):
            step = line[: len(line) - len(line.lstrip())]
            if "\t" in step:
                raise Unreadable("it is not YAML: it is indented with a tab")
            return step or "  "
    return "  "
