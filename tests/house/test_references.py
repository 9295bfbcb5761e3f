"""What comments and docstrings name by a dotted path exists, so that a reader can follow it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.served import ROOT

pytestmark = pytest.mark.one_engine

PACKAGES = ("coordinator", "dashboard")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted(Path(ROOT, package).rglob("*.py"))
    if "migrations" not in path.parts
}
FIRST_WORDS = {module.split(".")[1] for module in MODULES if "." in module}
# `lib.times.now` or `coordinator.lib.times`: no address, path or file, and no call.
REFERENCE = re.compile(r"(?<![\w./@-])((?:[a-z_]\w*\.)+[A-Za-z_]\w*)(?![\w/(-])")
FILE = re.compile(r"\.(css|html|js|json|md|py|sh|toml|txt)$")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def read_prose(text: str, tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings and comments of a module."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            yield docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@cache
def names_in(module: str) -> set[str]:
    """Return what a module defines or imports, members of its classes included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def does_exist(reference: str) -> bool:
    """Say whether a dotted path leads to a package, a module, or a name in one."""
    parts = reference.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        if module in MODULES:
            return length == len(parts) or parts[length] in names_in(module)
    return False


def find_broken_references(module: str) -> list[str]:
    """Return what a module's prose names of ours that is not there."""
    text = MODULES[module].read_text()
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    broken = []
    for prose in read_prose(text, tree):
        for reference in REFERENCE.findall(prose):
            first, _, rest = reference.partition(".")
            candidates = [f"{package}.{reference}" for package in PACKAGES]
            candidates += [reference, f"{imported.get(first)}.{rest}"]
            if first in {*PACKAGES, *FIRST_WORDS} and not FILE.search(reference):
                broken += [] if any(map(does_exist, candidates)) else [reference]
    return broken


def test_what_comments_and_docstrings_name_exists() -> None:
    broken = {module: found for module in MODULES if (found := find_broken_references(module))}
    assert broken == {}
