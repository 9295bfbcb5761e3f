"""A coordinator that can break, and a directory for agents to work in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.small_coordinator import SmallCoordinator


@pytest.fixture
def coordinator() -> Iterator[SmallCoordinator]:
    with SmallCoordinator() as one:
        yield one


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder
