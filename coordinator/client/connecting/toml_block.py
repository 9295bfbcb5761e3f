"""A table of ours at the end of somebody's TOML: put in between two lines that mark it, taken out again. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from coordinator.client.connecting.jsonc import Unreadable

BEGIN, END = "# signalbox: begin (`signalbox disconnect` takes this out)", "# signalbox: end"
_BLOCK = re.compile(rf"(?:\r?\n)?{re.escape(BEGIN)}.*?{re.escape(END)}(?:\r?\n|\Z)", re.DOTALL)


def put_in(text: str, table: tuple[str, ...], values: Mapping[str, Any]) -> str:
    """Return the settings with our table, once; the same text where somebody else's stands in its place.

    Raises Unreadable where the settings are no TOML, or have no room for it.
    """
    without = take_out(text)
    if stands(without, table):
        return text
    line_end = "\r\n" if "\r\n" in without else "\n"
    head = f"[{'.'.join(table)}]"
    lines = [BEGIN, head, *(f"{name} = {_toml(value)}" for name, value in values.items()), END, ""]
    glue = "" if not without or without.endswith("\n") else line_end
    after = without + glue + (line_end if without else "") + line_end.join(lines)
    if not stands(after, table):
        raise Unreadable("our table cannot be added to it")
    return after


def take_out(text: str) -> str:
    """Return the settings without our table. Raises Unreadable where what is left is no TOML."""
    without = _BLOCK.sub("", text, count=1)
    _loaded(without)
    return without


def stands(text: str, table: tuple[str, ...]) -> bool:
    """Say whether the settings have the table. Raises Unreadable."""
    value = _loaded(text)
    for name in table:
        value = value.get(name) if isinstance(value, dict) else None
    return value is not None


def _loaded(text: str) -> Any:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as problem:
        raise Unreadable(str(problem)) from None


def _toml(value: Any) -> str:
    """Return a text, number or list of texts as TOML: JSON's form of them is TOML's, too."""
    return json.dumps(value, ensure_ascii=False)
