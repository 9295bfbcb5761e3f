"""Attached files: whether they are where they should be, and whether the bucket can be written and read."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import datetime

from django.core.files.base import ContentFile

from coordinator.actions.chat import attachments
from coordinator.actions.chat.attachments import FileCheckReport
from coordinator.chat import stores
from coordinator.models.chat import FilePlace
from coordinator.operations.doctor import (
    CheckResult,
    failed_check,
    join_names_up_to_limit,
    passed_check,
    warning_check,
)

NAME = "attachments"
BUCKET_REMEDY = "Check that the bucket can be reached with SIGNALBOX_S3_… and this server's credentials."
LIST_THEM = "signalbox manage attachments lists them; a backup may have them."


def iterate_stored_file_checks(now: datetime) -> Iterator[CheckResult]:
    """Yield the checks."""
    if FilePlace.S3 in stores.list_configured_file_stores():
        yield check_bucket_by_storing_file()
    report = attachments.compare_stored_files_with_rows(now)
    yield (
        damaged_files_check_or_none(report)
        or find_orphaned_files_warning(report)
        or passed_check(NAME, "no file is missing")
    )


def check_bucket_by_storing_file() -> CheckResult:
    store, name, data = (
        stores.require_attachment_store(FilePlace.S3),
        f"{stores.FOLDER}/doctor/{uuid.uuid4().hex}",
        b"doctor",
    )
    started_at = time.monotonic()
    try:
        store.save(name, ContentFile(data))
        content = store.open_byte_range(name, 0, len(data)).read(len(data))
        store.delete(name)
    except OSError as problem:
        return failed_check(
            "s3", f"A file could not be stored and read back: {problem.strerror}.", BUCKET_REMEDY
        )
    if content != data:
        return failed_check("s3", "The bucket returned other bytes than were written.", BUCKET_REMEDY)
    return passed_check(
        "s3",
        f"{store.describe_file_location('').rstrip('/')} stored and returned a file in"
        f" {time.monotonic() - started_at:.2f} s",
    )


def damaged_files_check_or_none(report: FileCheckReport) -> CheckResult | None:
    if report.silent:
        return failed_check(NAME, report.silent[0], BUCKET_REMEDY)
    if report.damaged:
        names = join_names_up_to_limit(report.damaged)
        problem_text = f"{len(report.damaged)} files no longer have their length: {names}."
        return failed_check(NAME, problem_text, LIST_THEM)
    if report.missing:
        names = join_names_up_to_limit(report.missing)
        problem_text = f"{len(report.missing)} messages refer to missing files: {names}."
        return failed_check(NAME, problem_text, LIST_THEM)
    return None


def find_orphaned_files_warning(report: FileCheckReport) -> CheckResult | None:
    if report.orphans:
        problem_text = f"{len(report.orphans)} files belong to no message."
        return warning_check(NAME, problem_text, "signalbox manage attachments --delete-orphans")
    if report.thumbnails:
        problem_text = f"{len(report.thumbnails)} thumbnails belong to images that were deleted."
        return warning_check(NAME, problem_text, "signalbox manage attachments --delete-orphans")
    if report.unknown:
        problem_text = f"{len(report.unknown)} files have no checksum to be compared with when they are read."
        remedy = "Compute them once: signalbox manage attachments --checksums"
        return warning_check(NAME, problem_text, remedy)
    if report.elsewhere:
        problem_text = (
            f"{report.elsewhere} files are not in {stores.store_name_for_new_files()}, where new ones go."
        )
        return warning_check(
            NAME, problem_text, "Move them, beside the running server: signalbox manage move_attachments"
        )
    return None
