"""Attachments in a bucket: a backup says which files it relies on, checks that they are there, and may copy them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from django.core.management.base import CommandError
from django.db.models import QuerySet

from coordinator.chat import attachments, stores
from coordinator.errors import NotFound, ServiceBusy, StoredDataCorrupt
from coordinator.lib import sizes
from coordinator.models import ChatAttachment, StoredFile
from coordinator.models.chat import FilePlace
from coordinator.operations import startup
from coordinator.operations.backups import BackupManifest, write_stream_and_return_digest

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
    def describe_bucket_files(self) -> str:
        """Say where they are, and whether they are there."""
        if self.unchecked:
            summary = f"Signalbox could not check that they are there: {self.unchecked}."
        elif self.missing:
            named_files = ", ".join(self.missing[:MOST_NAMED])
            summary = f"{len(self.missing)} of them are missing or damaged: {named_files}."
        else:
            summary = "All of them are there, with the right lengths."
        return (
            f"{self.files} files ({sizes.format_byte_count(self.bytes)}) are in"
            f" {self.where or 'an S3 bucket'}. {summary}"
        )


def has_stored_files_table() -> bool:
    """Say whether this database has the table of files in buckets: a copy may be made of an older one."""
    return ("coordinator", STORED_FILES) in startup.applied_migrations()


def check_uncopied_bucket_files(copied: BackupManifest | None = None) -> BucketFiles | None:
    """Return the files in the bucket that were not copied, each checked by name and length; None for none."""
    inside = copied.files if copied else {}
    rows = [
        row
        for row in query_bucket_files().values_list("pk", "attachment__disk_path", "size_bytes")
        if row[1] not in inside
    ]
    if not rows:
        return None
    bucket_files = BucketFiles(files=len(rows), bytes=sum(size for _pk, _name, size in rows))
    try:
        store = stores.require_attachment_store(FilePlace.S3)
        bucket_files.where = store.describe_file_location("").rstrip("/")
        sizes_by_name = {file.name: file.size for file in store.iterate_stored_files()}
        bucket_files.missing = [pk for pk, name, size in rows if sizes_by_name.get(name or "") != size]
    except OSError as problem:
        bucket_files.unchecked = str(problem.strerror)
    return bucket_files


def sum_recorded_bucket_bytes() -> int:
    """Return how many bytes all of them have."""
    return sum(query_bucket_files().values_list("size_bytes", flat=True))


def copy_objects_and_extend_manifest(folder: Path, manifest: BackupManifest) -> None:
    """Copy every object that is not in the backup yet; one that is gone with its message is left out."""
    for row in iterate_bucket_attachments():
        name = row.disk_path or ""
        if name in manifest.files or not is_path_below(folder / stores.FOLDER, folder / name):
            continue
        try:
            with (
                attachments.open_attachment(row) as file,
                attachments.translate_read_errors_during_block(row),
            ):
                manifest.files[name] = write_stream_and_return_digest(file, folder / name)
        except (ServiceBusy, StoredDataCorrupt, NotFound) as problem:
            (folder / name).unlink(missing_ok=True)
            if StoredFile.objects.filter(pk=row.pk).exists():
                raise CommandError(f"{problem.detail} No backup was kept.") from None


def is_path_below(folder: Path, path: Path) -> bool:
    """Say whether a row's name leads to no place outside; another program may have written it."""
    return "\x00" not in str(path) and path.resolve().is_relative_to(folder.resolve())


def mark_files_local_and_count(manifest: BackupManifest) -> int:
    """Note in a restored database that the files which came with it are in the folder; return how many."""
    pks = [row.pk for row in iterate_bucket_attachments() if row.disk_path in manifest.files]
    return StoredFile.objects.filter(pk__in=pks).update(place=FilePlace.FOLDER) if pks else 0


def query_bucket_files() -> QuerySet[StoredFile]:
    return StoredFile.objects.filter(place=FilePlace.S3).order_by("pk")


def iterate_bucket_attachments() -> Iterator[ChatAttachment]:
    rows = ChatAttachment.objects.filter(stored__place=FilePlace.S3).select_related("stored")
    return rows.defer("inline_data").order_by("pk").iterator()
