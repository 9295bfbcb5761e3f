"""Attached files: whether they are where they should be, and whether the bucket can be written and read."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import datetime

from django.core.files.base import ContentFile

from coordinator.actions import attachments
from coordinator.actions.attachments import Findings
from coordinator.chat import stores
from coordinator.models.chat import FilePlace
from coordinator.operations.doctor import Check, fail, named, ok, warn

NAME = "attachments"
BUCKET_REMEDY = "Check that the bucket can be reached with SIGNALBOX_S3_… and this server's credentials."
LIST_THEM = "python manage.py attachments lists them; a backup may have them."


def examine(now: datetime) -> Iterator[Check]:
    """Yield the checks."""
    if FilePlace.S3 in stores.here():
        yield _bucket()
    found = attachments.examine(now)
    yield _broken(found) or _untidy(found) or ok(NAME, "no file is missing")


def _bucket() -> Check:
    store, name, data = stores.store_at(FilePlace.S3), f"{stores.FOLDER}/doctor/{uuid.uuid4().hex}", b"doctor"
    began = time.monotonic()
    try:
        store.save(name, ContentFile(data))
        came = store.reading(name, 0, len(data)).read(len(data))
        store.delete(name)
    except OSError as problem:
        return fail("s3", f"A file could not be stored and read back: {problem.strerror}.", BUCKET_REMEDY)
    if came != data:
        return fail("s3", "The bucket returned other bytes than were written.", BUCKET_REMEDY)
    return ok(
        "s3", f"{store.shown('').rstrip('/')} stored and returned a file in {time.monotonic() - began:.2f} s"
    )


def _broken(found: Findings) -> Check | None:
    if found.silent:
        return fail(NAME, found.silent[0], BUCKET_REMEDY)
    if found.damaged:
        words = f"{len(found.damaged)} files no longer have their length: {named(found.damaged)}."
        return fail(NAME, words, LIST_THEM)
    if found.missing:
        words = f"{len(found.missing)} messages refer to missing files: {named(found.missing)}."
        return fail(NAME, words, LIST_THEM)
    return None


def _untidy(found: Findings) -> Check | None:
    if found.orphans:
        words = f"{len(found.orphans)} files belong to no message."
        return warn(NAME, words, "python manage.py attachments --delete-orphans")
    if found.thumbnails:
        words = f"{len(found.thumbnails)} thumbnails belong to images that were deleted."
        return warn(NAME, words, "python manage.py attachments --delete-orphans")
    if found.unknown:
        words = f"{len(found.unknown)} files have no checksum to be compared with when they are read."
        remedy = "Compute them once: python manage.py attachments --checksums"
        return warn(NAME, words, remedy)
    if found.elsewhere:
        words = f"{found.elsewhere} files are not in {stores.place_of_new()}, where new ones go."
        return warn(NAME, words, "Move them, beside the running server: python manage.py move_attachments")
    return None
