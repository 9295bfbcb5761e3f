"""Which database this installation uses where DATABASE_URL does not say: a file in the data folder names it.

`manage.py move_to` writes it. It holds a password, so it is for its owner alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from coordinator.lib import folders, private_files

NAME = "database.url"
# What SQLite's triggers say once all of it is in PostgreSQL, and so what whoever writes there is told.
MOVED = "This database has moved to PostgreSQL. Nothing was written. Restart the server (manage.py restart) to use it."


def database_problem_message(problem: BaseException | None, otherwise: str) -> str:
    """Return the message for a request that the database refused: that it has moved, or `otherwise`."""
    return MOVED if str(problem) == MOVED else otherwise


def read_database_url(folder: Path) -> str:
    """Return the URL that the data folder names, or nothing. Raises NotPrivate, OSError."""
    path = folder / NAME
    private_files.make_file_private(path)
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def save_database_url(folder: Path, url: str) -> None:
    """Have the data folder name this URL, at once and for good."""
    path = folder / NAME
    fresh = path.with_suffix(".url.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(url + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folders.sync_folder(folder)


def forget_database_url(folder: Path) -> None:
    """Have the data folder name no database, for good."""
    (folder / NAME).unlink(missing_ok=True)
    folders.sync_folder(folder)
