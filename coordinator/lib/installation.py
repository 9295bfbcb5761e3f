"""The location of this program: a clone of its repository, or an installed wheel, with its files in the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_SHARE = _PACKAGE / "share"  # .deploy/hatch_build.py puts the clone's folders here
CODE = _PACKAGE.parent  # what must be on Python's path
IS_CLONE = not _SHARE.is_dir()
FILES = CODE if IS_CLONE else _SHARE  # templates/, static/ and .docs/ are in here


def default_data_folder() -> Path:
    """Return the data folder where no setting names one: `data` in a clone, else where the platform keeps such data."""
    if IS_CLONE:
        return CODE / "data"
    if sys.platform == "darwin":
        return Path("~/Library/Application Support/Signalbox").expanduser()
    xdg = os.environ.get("XDG_DATA_HOME", "")
    return Path(xdg if os.path.isabs(xdg) else "~/.local/share", "signalbox").expanduser()


def management_command_argv_prefix(code: Path = CODE, python: str = sys.executable) -> list[str]:
    """Return the words that start a management command from any folder."""
    if IS_CLONE:
        return [python, str(code / "manage.py")]
    return [python, "-P", "-m", "coordinator.operations.command_line"]
