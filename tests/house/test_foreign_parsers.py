"""No module reads foreign input without standing in the table of coordinator.lib.foreign_input."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.lib.foreign_input import FOREIGN_PARSERS, PARSER_LIBRARIES
from tests.served import ROOT

pytestmark = pytest.mark.one_engine

# Programs of their own, which read at their user's machine, before the server starts, or for whoever calls them.
OTHER_PROGRAMS = (
    "coordinator/client/",
    "coordinator/runner/",
    "coordinator/mcp/hosting/",
    "coordinator/mcp/protocol/envelopes.py",
    "coordinator/demo/",
    "coordinator/management/",
    "coordinator/migrations/",
    "coordinator/operations/",
    "coordinator/importing/",
    "coordinator/actions/importing/",
    "coordinator/transparency/verify_audit.py",
    "coordinator/sandbox/child.py",
    "coordinator/mcp/isolation/launcher.py",
    "coordinator/mcp/isolation/launcher_client.py",
)
WRITES_ONLY = {
    "coordinator/api/client_program.py": "zipfile",
    "dashboard/lists/exports.py": "csv",
    "dashboard/sessions/evidence.py": "zipfile",
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for package in ("coordinator", "dashboard"):
        for path in sorted(Path(ROOT, package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if not name.startswith(OTHER_PROGRAMS):
                yield name, ast.parse(path.read_text())


def parsing_in(tree: ast.Module) -> Iterator[str]:
    """Yield the libraries of PARSER_LIBRARIES that a module imports, and `json` where it decodes."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {
            "json.loads", "json.load", "json.JSONDecoder", "msgspec.json.decode", "msgspec.json.Decoder",
        }:  # fmt: skip
            yield "json"
        for name in names:
            yield from (one for one in PARSER_LIBRARIES if name == one or name.startswith(f"{one}."))


def test_no_module_parses_foreign_input_without_standing_in_the_table() -> None:
    named = {module for parser in FOREIGN_PARSERS for module in parser.modules}
    parsing = {
        (name, library)
        for name, tree in sources()
        for library in parsing_in(tree)
        if WRITES_ONLY.get(name) != library
    }
    modules = {name.removesuffix(".py").replace("/", "."): library for name, library in parsing}
    assert {module: library for module, library in modules.items() if module not in named} == {}
    assert sorted(named - modules.keys()) == []


def test_the_check_sees_a_parser_that_nobody_named() -> None:
    for source in (
        "import yaml",
        "from lxml import etree",
        "from xml.etree import ElementTree",
        "json.loads(x)",
    ):
        assert list(parsing_in(ast.parse(source)))
    assert not list(parsing_in(ast.parse("import json\njson.dumps(1)")))
