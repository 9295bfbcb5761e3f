"""Fixtures named for the thing they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def path(settings: Any, tmp_path: Path) -> Path:
    """Where a source is to lie; the data folder is another."""
    settings.DATA_DIR = tmp_path / "ours"
    return tmp_path / "theirs" / "data" / "cloto.db"
