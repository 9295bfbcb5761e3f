"""Our lines in a file of lines (TOML, or variables for a shell): put at its end, known again, taken out. Pure.

They begin with a comment of ours and go on while lines begin as ours do. There is no mark behind them: programs that
write their own settings keep the comment at a file's end there, behind whatever they add.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass

MARK = "# Signalbox's, put in by `signalbox connect` and taken out by `signalbox disconnect`:"


@dataclass(frozen=True, slots=True)
class LinesWanted:
    """Lines that a file is to hold, below the agent's folder (`path`).

    `secret` is the key where they hold it: only the file's owner may read it then. `claims` is the table or variable
    that is somebody else's where it stands outside our lines; we give way then. `shadows` is a file, below the
    person's home, that the agent reads only where there is none at `path`.
    """

    agent: str
    path: str
    lines: tuple[str, ...]
    claims: str
    secret: str = ""
    shadows: str | None = None

    @property
    def is_toml(self) -> bool:
        """Whether the file is TOML, and not of variables."""
        return self.path.endswith(".toml")


def put_in(text: str, wanted: LinesWanted) -> str:
    """Return the text with our lines, once; the same text where they are there already."""
    block = "\n".join([MARK, *wanted.lines, ""])
    if _found(text, wanted) == block:
        return text
    rest = take_out(text, wanted)
    if not rest:
        return block
    return rest + ("\n" if rest.endswith("\n") else "\n\n") + block


def take_out(text: str, wanted: LinesWanted) -> str:
    """Return the text without our lines, and without the empty one before them."""
    block = _found(text, wanted)
    if not block:
        return text
    before, _, after = text.partition(block)
    if wanted.is_toml and _goes_on(after):
        return f"{before}[{wanted.claims}]\n{after}"  # what somebody added to the table stays in it
    return (before.removesuffix("\n") if before.endswith("\n\n") else before) + after


def why_not(text: str, wanted: LinesWanted) -> str:
    """Return why our lines cannot go into the text, in words; "" where they can."""
    rest = take_out(text, wanted)
    if not wanted.is_toml:
        is_set = re.search(rf"^\s*(?:export\s+)?{re.escape(wanted.claims)}\s*=", rest, re.MULTILINE)
        return f"{wanted.claims} is set there already" if is_set else ""
    try:
        known = tomllib.loads(rest)
    except tomllib.TOMLDecodeError as problem:
        return f"it is not TOML ({problem})"
    return f"[{wanted.claims}] is set there already" if wanted.claims in known else ""


def _goes_on(after: str) -> bool:
    """Say whether TOML continues with a key, and not with another table."""
    for line in after.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return not line.lstrip().startswith("[")
    return False


def _found(text: str, wanted: LinesWanted) -> str:
    """Return our lines in the text, "" where there are none."""
    begins = tuple(re.split(r"[ =\]]", one)[0] for one in wanted.lines)
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if found and not line.startswith(begins):
            break
        if found or line.startswith(MARK):
            found.append(line)
    return "".join(found)
