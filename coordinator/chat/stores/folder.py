"""Attached files in the data folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.storage import FileSystemStorage

from coordinator.chat.stores import FOLDER, ListedStoredFile, StoredFileStream
from coordinator.lib import folders


class Folder(FileSystemStorage):
    """Files below the data folder. A name that leads out of `attachments/` is treated as no file."""

    # Not cached: tests give each its own.
    @property
    def base_location(self) -> str:
        return str(settings.DATA_DIR)

    @property
    def location(self) -> str:
        return os.path.abspath(self.base_location)

    def attachment_path(self, name: str) -> Path:
        """Return a file's path, links followed. Raises FileNotFoundError for a name that leads elsewhere."""
        base = Path(self.location)
        # A NUL is in no path, and to resolve one with it is an error.
        path = (base / name.replace("\x00", "")).resolve()
        if not name or "\x00" in name or not path.is_relative_to((base / FOLDER).resolve()):
            raise FileNotFoundError(name)
        return path

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        """Return the name itself: an existing file is replaced."""
        return name

    def _save(self, name: str, content: Any) -> str:
        """Write a temporary file and rename it, so that readers always see the complete file."""
        path = self.attachment_path(name)
        part = path.with_name(f"{path.name}.part")
        is_new = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as out:
                for chunk in content.chunks():
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())  # the row must never outlive the bytes
            part.replace(path)
            folders.fsync_folder(path.parent)
            if is_new:
                folders.fsync_folder(path.parent.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return name

    def delete(self, name: str) -> None:
        self.attachment_path(name).unlink(missing_ok=True)

    def open_byte_range(self, name: str, start: int, length: int) -> StoredFileStream:
        file = self.attachment_path(name).open("rb")
        file.seek(start)
        return file

    def file_modified_at(self, name: str) -> datetime:
        return datetime.fromtimestamp(self.attachment_path(name).stat().st_mtime, UTC)

    def iterate_stored_files(self) -> Iterator[ListedStoredFile]:
        base = Path(self.location)
        for path in sorted((base / FOLDER).rglob("*")):
            if path.is_file():
                file_status = path.stat()
                at = datetime.fromtimestamp(file_status.st_mtime, UTC)
                yield ListedStoredFile(path.relative_to(base).as_posix(), file_status.st_size, at)

    def describe_file_location(self, name: str) -> str:
        return str(Path(self.location) / name)
