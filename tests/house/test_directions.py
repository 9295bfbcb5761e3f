"""The rooms import each other only as the table in .docs/develop/architecture.md says."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Files of coordinator/ that are no room: what Django, the server and everybody looks for by name.
AT_THE_DOOR = {"apps", "asgi", "middleware", "settings", "urls", "errors"}


@functools.cache
def table() -> dict[str, set[str]]:
    """Return each room's name and the rooms that it may import, as the table of the document has them."""
    document = (ROOT / ".docs/develop/architecture.md").read_text()
    rows = re.findall(r"^\| `([a-z/]+)` \|[^|]*\| ([^|]*) \|$", document, re.M)
    return {room: set(re.findall(r"`([a-z/]+)`", imports)) for room, imports in rows}


@functools.cache
def rooms() -> set[str]:
    folders = {path.parent.name for path in (ROOT / "coordinator").glob("*/__init__.py")}
    layers = {f"mcp/{path.parent.name}" for path in (ROOT / "coordinator/mcp").glob("*/__init__.py")}
    return folders - {"management", "migrations", "mcp"} | layers | {"dashboard"}


def room_of(module: str) -> str:
    """Return the room that a module of ours lies in, by its dotted name; "" for any other."""
    package, _, rest = module.partition(".")
    if package == "dashboard":
        return package
    first, _, rest = rest.partition(".")
    if package != "coordinator":  # a top-level `secrets` is the standard library's
        return ""
    return f"mcp/{rest.partition('.')[0]}" if first == "mcp" else first


@functools.cache
def imported_by(room: str) -> dict[str, str]:
    """Return the rooms that modules of `room` import, each with a module that does."""
    folder = ROOT / "dashboard" if room == "dashboard" else ROOT / "coordinator" / room
    found: dict[str, str] = {}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for name in names_in(node):
                other = room_of(name)
                if other in rooms() - {room}:
                    found[other] = str(path.relative_to(ROOT))
    return found


def nodes_where(path: Path, *words: str) -> Iterator[ast.AST]:
    """Yield the nodes of a module that has one of the words; reading all modules takes seconds."""
    text = path.read_text()
    if any(word in text for word in words):
        yield from ast.walk(ast.parse(text))


def names_in(node: ast.AST) -> list[str]:
    """Return the modules that an import statement names, in full."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module == "coordinator":
        return [f"coordinator.{alias.name}" for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def test_the_table_names_every_room() -> None:
    assert set(table()) == rooms()


@pytest.mark.parametrize("room", sorted(rooms()))
def test_a_room_imports_what_the_table_allows(room: str) -> None:
    imported = imported_by(room)
    assert {name: imported[name] for name in imported.keys() - table()[room]} == {}


@pytest.mark.parametrize("room", sorted(rooms()))
def test_the_table_allows_no_more_than_is_used(room: str) -> None:
    assert table()[room] - imported_by(room).keys() == set()


def test_no_two_rooms_need_each_other() -> None:
    left = {room: set(imports) for room, imports in table().items()}
    while free := {room for room, imports in left.items() if not imports}:
        left = {room: imports - free for room, imports in left.items() if room not in free}
    assert left == {}, "these import each other in a circle"


def test_only_the_engine_room_asks_which_database_it_is() -> None:
    asking = {
        str(path.relative_to(ROOT))
        for folder in ("coordinator", "dashboard")
        for path in (ROOT / folder).rglob("*.py")
        if any(
            isinstance(node, ast.Attribute) and node.attr == "vendor" for node in nodes_where(path, "vendor")
        )
    }
    assert {path for path in asking if "/migrations/" not in path} == {"coordinator/engine/__init__.py"}


def test_only_some_rooms_are_told_which_database_it_is() -> None:
    """The others call the engine room's functions by what they do; a backup or a column's type differs by itself."""
    told = {
        room
        for room in rooms()
        for path in (ROOT / "coordinator" / room).rglob("*.py")
        for node in nodes_where(path, "is_sqlite", "engine_name")
        if isinstance(node, ast.Name) and node.id in {"is_sqlite", "engine_name"}
    }
    assert told == {"engine", "models", "operations"}


def test_only_rooms_lie_in_the_house() -> None:
    modules = {path.stem for path in (ROOT / "coordinator").glob("*.py")} - {"__init__"}
    assert modules == AT_THE_DOOR
