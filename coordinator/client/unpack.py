"""The first thing that `signalbox.pyz` runs: it unpacks itself for its user, and starts the program from there.

Agents' settings name a file of the unpacked folder, so the archive may be moved or deleted later. Each version has a
folder of its own: agents that run keep theirs while a newer one is connected.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile

OLDEST_PYTHON = (3, 11)


def main() -> int:
    """Unpack the archive where that has not been done yet; run the program; return its exit code."""
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(
            f"signalbox needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer, not {sys.version.split()[0]}."
        )
    archive = sys.path[0]
    try:
        sys.path[0] = get_or_unpack_archive_folder(archive)
    except OSError as problem:
        sys.exit(f"signalbox cannot be unpacked: {problem}.")
    from coordinator.client import main as client  # noqa: PLC0415 - needs the path above

    return client.main()


def get_or_unpack_archive_folder(archive: str) -> str:
    """Return the folder that holds what is in the archive; make it where it is missing. Raises OSError."""
    with open(archive, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()[:16]
    base = os.environ.get("XDG_DATA_HOME", "")
    base = base if os.path.isabs(base) else os.path.expanduser("~/.local/share")
    parent = os.path.join(base, "signalbox-client")
    folder = os.path.join(parent, digest)
    if not os.path.isdir(folder):
        os.makedirs(parent, mode=0o700, exist_ok=True)
        temporary_folder = tempfile.mkdtemp(dir=parent)
        try:
            with zipfile.ZipFile(archive) as members:
                members.extractall(temporary_folder)
            os.rename(temporary_folder, folder)
        except OSError:
            shutil.rmtree(temporary_folder, ignore_errors=True)
            if not os.path.isdir(folder):  # else another process was faster
                raise
    return folder


if __name__ == "__main__":
    sys.exit(main())
