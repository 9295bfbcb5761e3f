"""The database that this installation uses where DATABASE_URL does not say: a file in the data folder may name it.

It may hold a password, so it is for its owner alone.
"""

from __future__ import annotations

from pathlib import Path

from coordinator.lib import private_files

NAME = "database.url"


def secure_and_read_database_url(folder: Path) -> str:
    """Return the URL that the data folder names, or nothing. Raises PathNotPrivate, OSError."""
    path = folder / NAME
    private_files.make_file_private(path)
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
