"""The repository's documents, and what tests read of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dashboard.rendering.anchors import heading_anchor
from tests.served import ROOT

FOLDER = ROOT / ".docs"
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / ".github").glob("*.md"), *FOLDER.rglob("*.md")])
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)|(?:src|srcset)=\"([^\"]+)\"")


def prose(path: Path) -> str:
    """Return a document without its blocks of code."""
    return _FENCE.sub("", path.read_text())


def anchors(path: Path) -> list[str]:
    """Return the anchors of a document's headings."""
    return [heading_anchor(text) for text in re.findall(r"^#{1,6} (.+)$", prose(path), re.MULTILINE)]


def links(path: Path) -> Iterator[str]:
    """Yield where a document's links and pictures lead."""
    for found in _LINK.finditer(_CODE.sub("", prose(path))):
        yield found[1] or found[2]
