"""Lines of ours in a file of variables for a shell, which older versions wrote: found, and taken out. Pure.

They begin with a comment of ours and go on while lines set our variable.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.client.connecting.toml_tables import MARK


@dataclass(frozen=True, slots=True)
class FormerLines:
    """Lines that no file is to hold any more, below the agent's folder (`path`): those that set a variable."""

    agent: str
    path: str
    variable: str


def remove_former_variable_lines(text: str, former: FormerLines) -> str:
    """Return the text without our lines, and without the empty one before them."""
    lines = text.splitlines(keepends=True)
    begin = next((at for at, line in enumerate(lines) if line.startswith(MARK)), None)
    if begin is None:
        return text
    end = begin + 1
    while end < len(lines) and lines[end].startswith(f"{former.variable}="):
        end += 1
    before, after = "".join(lines[:begin]), "".join(lines[end:])
    return (before.removesuffix("\n") if before.endswith("\n\n") else before) + after
