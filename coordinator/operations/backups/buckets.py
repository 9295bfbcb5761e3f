"""Attachments in a bucket: a backup says which files it relies on, checks that they are there, and may copy them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.core.management.base import CommandError
from django.db.models import QuerySet

from coordinator.chat import attachments, stores
from coordinator.errors import Busy, NotFound, Spoilt
from coordinator.lib import sizes
from coordinator.models import ChatAttachment, StoredFile
from coordinator.models.chat import FilePlace
from coordinator.operations import startup
from coordinator.operations.backups import Manifest, write_stream

STORED_FILES = "0073_stored_files"  # the migration that makes the table
MOST_NAMED = 20


@dataclass(slots=True)
class BucketFiles:
    """The files that are in a bucket according to the database. `unchecked` says why nobody checked."""

    where: str = ""
    files: int = 0
    bytes: int = 0
    missing: list[str] = field(default_factory=list)
    unchecked: str = ""

    @property
    def in_words(self) -> str:
        """Say where they are, and whether they are there."""
        if self.unchecked:
            found = f"Signalbox could not check that they are there: {self.unchecked}."
        elif self.missing:
            named = ", ".join(self.missing[:MOST_NAMED])
            found = f"{len(self.missing)} of them are missing or damaged: {named}."
        else:
            found = "All of them are there, with the right lengths."
        return f"{self.files} files ({sizes.in_words(self.bytes)}) are in {self.where or 'an S3 bucket'}. {found}"


def known() -> bool:
    """Say whether this database has the table of files in buckets: a copy may be made of an older one."""
    return ("coordinator", STORED_FILES) in startup.applied_migrations()


def elsewhere(copied: Manifest | None = None) -> BucketFiles | None:
    """Return the files in the bucket that were not copied, each checked by name and length; None for none."""
    inside = copied.files if copied else {}
    rows = [
        row
        for row in _rows().values_list("pk", "attachment__disk_path", "size_bytes")
        if row[1] not in inside
    ]
    if not rows:
        return None
    found = BucketFiles(files=len(rows), bytes=sum(size for _pk, _name, size in rows))
    try:
        store = stores.store_at(FilePlace.S3)
        found.where = store.shown("").rstrip("/")
        there = {file.name: file.size for file in store.listed()}
        found.missing = [pk for pk, name, size in rows if there.get(name or "") != size]
    except OSError as problem:
        found.unchecked = str(problem.strerror)
    return found


def bytes_there() -> int:
    """Return how many bytes all of them have."""
    return sum(_rows().values_list("size_bytes", flat=True))


def copy_into(folder: Path, manifest: Manifest) -> None:
    """Copy every object that is not in the backup yet; one that is gone with its message is left out."""
    for row in _attachments():
        name = row.disk_path or ""
        if name in manifest.files or not _lies_below(folder / stores.FOLDER, folder / name):
            continue
        try:
            with attachments.opened(row) as file, attachments.readable(row):
                manifest.files[name] = write_stream(file, folder / name)
        except (Busy, Spoilt, NotFound) as problem:
            (folder / name).unlink(missing_ok=True)
            if StoredFile.objects.filter(pk=row.pk).exists():
                raise CommandError(f"{problem.detail} No backup was kept.") from None


def _lies_below(folder: Path, path: Path) -> bool:
    """Say whether a row's name leads to no place outside; another program may have written it."""
    return "\x00" not in str(path) and path.resolve().is_relative_to(folder.resolve())


def now_in_folder(manifest: Manifest) -> int:
    """Note in a restored database that the files which came with it are in the folder; return how many."""
    pks = [row.pk for row in _attachments() if row.disk_path in manifest.files]
    return StoredFile.objects.filter(pk__in=pks).update(place=FilePlace.FOLDER) if pks else 0


def _rows() -> QuerySet[StoredFile]:
    return StoredFile.objects.filter(place=FilePlace.S3).order_by("pk")


def _attachments() -> Iterator[ChatAttachment]:
    rows = ChatAttachment.objects.filter(stored__place=FilePlace.S3).select_related("stored")
    return rows.defer("inline_data").order_by("pk").iterator()
