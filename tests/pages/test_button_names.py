"""Buttons say what they do to what: verb and object, on every page."""

from __future__ import annotations

import re
from pathlib import Path

TEMPLATES = Path(__file__).parents[2] / "templates"
_BUTTON = re.compile(r"<(button|a)\b((?:[^>\"]|\"[^\"]*\")*)>(.*?)</\1>", re.DOTALL)
_MARKS = re.compile(r"\{%.*?%\}|\{#.*?#\}|<[^>]+>", re.DOTALL)
# What needs no object: leaving, turning pages, opening a menu, and a field's own button.
SHORT = {
    *("Cancel", "Back", "Continue", "Done", "Earlier", "Later", "More"),
    *("Views", "Columns", "Stop", "Stopping", "Connecting"),
    *("Filter", "Search", "Send"),
}


def test_no_button_is_a_verb_alone() -> None:
    bare: list[str] = []
    for path in sorted(TEMPLATES.rglob("*.html")):
        if path.parent.name == "style":  # the gallery of components
            continue
        for tag, attributes, body in _BUTTON.findall(path.read_text()):
            label = _MARKS.sub(" ", body).split()
            if (tag == "button" or "button" in attributes) and len(label) == 1:
                bare += [f"{path.name}: {label[0]}"] if label[0].isalpha() and label[0] not in SHORT else []
    assert bare == []
