"""The stores of attached files: Django storages that can also be read from any byte on and listed.

`settings.STORAGES` names them: `folder` always exists, `s3` where a bucket is set. `settings.ATTACHMENTS` says where
new files go. A store raises FileNotFoundError for a file that it does not have, and OSError, with the reason as its
`strerror`, for what it cannot do now.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, cast

from django.conf import settings
from django.core.files.storage import InvalidStorageError, storages

from coordinator.models.chat import FilePlace

FOLDER = "attachments"  # every file's name begins with it, in every store


class StoreUnavailable(OSError):
    """A place does not do what it is asked for, or cannot be reached; `strerror` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EIO, reason)


class StoredFileStream(Protocol):
    """Bytes on their way from a place."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; fewer, or none, at the end."""

    def close(self) -> None:
        """Read no more."""


@dataclass(frozen=True, slots=True)
class ListedStoredFile:
    """One file as a place lists it."""

    name: str
    size: int
    changed_at: datetime


class AttachmentStore(Protocol):
    """The operations of a store in addition to those of Django's storages."""

    def save(self, name: str, content: Any) -> str:
        """Keep a file under this very name, whole or not at all."""

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""

    def open_byte_range(self, name: str, start: int, length: int) -> StoredFileStream:
        """Return the bytes from `start` on, at most `length`."""

    def file_modified_at(self, name: str) -> datetime:
        """Return when a file was last written."""

    def iterate_stored_files(self) -> Iterator[ListedStoredFile]:
        """Yield every file."""

    def describe_file_location(self, name: str) -> str:
        """Return a file's place in words for an operator."""


def require_attachment_store(store_name: str) -> AttachmentStore:
    """Return the store of a place. Raises StoreUnavailable where this server's settings name none."""
    try:
        return cast("AttachmentStore", storages[store_name])
    except InvalidStorageError:
        reason = "it lies in an S3 bucket, and SIGNALBOX_S3_BUCKET names none here"
        raise StoreUnavailable(
            reason if store_name == FilePlace.S3 else f"there is no place called {store_name[:40]!r}"
        ) from None


def list_configured_file_stores() -> list[FilePlace]:
    """Return the places that this server's settings name."""
    return [place for place in FilePlace if place in settings.STORAGES]


def store_name_for_new_files() -> FilePlace:
    """Return the place where new files go."""
    return FilePlace(settings.ATTACHMENTS)
