"""The runner is a program of its own: HTTP, the agents' protocol, and of ours only what is in the client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.test_alone import imports_of
from tests.served import ROOT

pytestmark = pytest.mark.one_engine

MODULES = sorted(Path(ROOT, "coordinator/runner").rglob("*.py"))
PACKAGES = {"acp", "httpx"}  # what the extra `runner` brings


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_imports_nothing_else_of_ours(path: Path) -> None:
    allowed = sys.stdlib_module_names | PACKAGES | {"coordinator"}
    imports = imports_of(path)
    assert {name for name in imports if name.partition(".")[0] not in allowed} == set()
    ours = {name for name in imports if name.partition(".")[0] == "coordinator"}
    assert {
        name for name in ours if not name.startswith(("coordinator.runner", "coordinator.client"))
    } == set()


def test_the_whole_program_loads_no_django() -> None:
    code = "import coordinator.runner.main, coordinator.runner.program, sys; print('django' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_its_packages_it_says_how_to_get_them() -> None:
    code = (
        "import sys; sys.modules['httpx'] = None; from coordinator.runner import main;"
        "sys.exit(main.run(['--config', sys.argv[1]]))"
    )
    settings = Path(ROOT, "tests/runner/any_agent.toml")
    done = subprocess.run(
        [sys.executable, "-c", code, str(settings)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install agent-client-protocol httpx" in done.stderr
