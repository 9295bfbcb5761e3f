"""`python -m tests.docs.modules`: write the list of all modules, by package, from their docstrings."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.served import ROOT

PAGE = ROOT / ".docs/develop/modules.md"
HEAD = """# Modules

Find a module by what it holds. [Architecture](architecture.md#packages) says what each package may import.

`python -m tests.docs.modules` writes this page from the modules' docstrings.
"""
SCRIPT_COMMENT = re.compile(r"\A(?:/\*+\s*(.+?)\*/|((?://[^\n]*\n)+))", re.DOTALL)


def write_page() -> None:
    """Write the list of modules to PAGE."""
    PAGE.write_text(build_page())


def build_page() -> str:
    """Return the page as Markdown: a table for each folder."""
    rows: dict[Path, list[str]] = defaultdict(list)
    for path in list_modules():
        rows[path.parent].append(f"| `{path.name}` | {describe_module(path)} |")
    tables = (
        f"\n## {folder}\n\n| Module | What it holds |\n|---|---|\n"
        + "".join(f"{row}\n" for row in rows[folder])
        for folder in sorted(rows)
    )
    return HEAD + "".join(tables)


def list_modules() -> list[Path]:
    """Return the product's modules, scripts and style sheets, without migrations and what others wrote."""
    return sorted(
        path.relative_to(ROOT)
        for pattern in (
            "coordinator/**/*.py",
            "dashboard/**/*.py",
            "static/js/**/*.js",
            "static/css/**/*.css",
        )
        for path in ROOT.glob(pattern)
        if path.name != "__init__.py" and not {"migrations", "vendor", "__pycache__"} & set(path.parts)
    )


def describe_module(path: Path) -> str:
    """Return the first paragraph of a module's docstring, or of the comment at a script's beginning, on one line."""
    text = (ROOT / path).read_text()
    if path.suffix == ".py":
        paragraph = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = SCRIPT_COMMENT.match(text.removeprefix('"use strict";\n\n'))
        paragraph = re.sub(r"(?m)^\s*(//|\*)\s?", "", comment[1] or comment[2]) if comment else ""
    return " ".join(paragraph.strip().split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    write_page()
