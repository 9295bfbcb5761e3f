"""The program that runs beside agents is light: the standard library, and for editing settings two packages more."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.served import ROOT

CLIENT = Path(ROOT, "coordinator/client")
# The SDK is a package of its own, for programs of people (tests/sdks).
MODULES = sorted(path for path in CLIENT.rglob("*.py") if not path.is_relative_to(CLIENT / "sdk"))
EDITORS = {
    "toml_tables": {"tomlkit"},
    "yaml_entries": {"yaml"},
}  # what a module may import where it edits a file


def imports_of(path: Path) -> set[str]:
    """Return the modules that a file imports, in full, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_needs_the_standard_library_alone(path: Path) -> None:
    allowed = sys.stdlib_module_names | {"coordinator"} | EDITORS.get(path.stem, set())
    assert {name for name in imports_of(path) if name.partition(".")[0] not in allowed} == set()
    ours = {name for name in imports_of(path) if name.partition(".")[0] == "coordinator"}
    assert {
        name for name in ours if name != "coordinator" and not name.startswith("coordinator.client")
    } == set()


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}; print(*sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_no_editor_is_loaded_before_a_file_is_edited() -> None:
    """They run where only the standard library is: an agent without TOML or YAML is connected there all the same."""
    loaded = loaded_by(
        "import coordinator.client.connecting.connect, coordinator.client.connecting.disconnect"
    )
    assert {"tomlkit", "yaml"} & loaded == set()


def test_the_package_itself_loads_nothing() -> None:
    assert {name for name in loaded_by("import coordinator") if name.startswith("coordinator")} == {
        "coordinator"
    }


def test_the_program_runs_without_being_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coordinator.client.main", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "usage: signalbox [--settings FILE] SUBCOMMAND …",
    )


def test_an_unknown_subcommand_is_an_error_that_agents_take_for_no() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coordinator.client.main", "hok"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "no subcommand 'hok'" in done.stderr
