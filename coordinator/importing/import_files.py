"""Files that an import writes: a report, and the rows and values that do not fit, as JSON lines.

Both are in a folder of their own below the data folder, which only its owner can read, for rows that are kept
aside may hold another program's secrets.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coordinator.errors import BadRequest
from coordinator.importing.column_conversion import RepairedText

FOLDER = "imports"
ROWS, REPORT = "kept.jsonl", "report.json"
MOST_BYTES = 2 * 1024**3  # of what is kept of one import; what is more is counted


class RejectedRows:
    """Rows that were not imported, written to a file as they come; the first row makes the file."""

    def __init__(self, below: Path, source: Path, now: datetime, *, most_bytes: int = MOST_BYTES) -> None:
        name = re.sub(r"[^A-Za-z0-9._-]", "_", source.name)[:80]
        stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        self.source, self.below, self.most_bytes = source, below / FOLDER, most_bytes
        self.folder = self.below / f"{stamp}-{name}-{secrets.token_hex(3)}"
        self.rows = self.bytes = self.left_out = 0
        self._digest = hashlib.sha256()
        self._file: Any = None
        self.stored_path: Path | None = None

    @property
    def rejected_rows_path(self) -> Path:
        return self.folder / ROWS

    def write_rejected_row_within_limit(self, table: str, reason: str, **details: Any) -> None:
        """Keep a row (`row=`), or one value of a row (`key=`, `column=`, `was=`), with the reason."""
        line = (
            json.dumps(
                {"table": table, "why": reason, **details}, ensure_ascii=True, default=bytes_to_json
            ).encode()
            + b"\n"
        )
        if self.bytes + len(line) > self.most_bytes:
            self.left_out += 1
            return
        if self._file is None:
            self._file = open_new_private_file(self.rejected_rows_path)
        self._write_rejected_line(line)

    def _write_rejected_line(self, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError as problem:
            raise BadRequest(f"{self.rejected_rows_path} cannot be written: {problem.strerror}.") from None
        self._digest.update(line)
        self.rows += 1
        self.bytes += len(line)

    def write_import_report_and_close(self, report: dict[str, Any]) -> Path:
        """Write the report next to the rows and return its path.

        Rows that an earlier import kept just so are not kept twice.
        """
        if self._file is not None:
            self._file.close()
        rejected_rows = {
            "rows": self.rows,
            "bytes": self.bytes,
            "beyond_the_bound": self.left_out,
            "bound": self.most_bytes,
        }
        digest = self._digest.hexdigest() if self.rows else None
        path = self.rejected_rows_path if self.rows else None
        if digest and (earlier := self.find_identical_rejected_rows_file(digest)):
            self.rejected_rows_path.unlink()
            path = earlier
        report = {**report, "kept": {**rejected_rows, "sha256": digest, "file": str(path) if path else None}}
        self.stored_path = path
        try:
            with open_new_private_file(self.folder / REPORT) as file:
                file.write(
                    json.dumps(report, indent=2, ensure_ascii=True, default=bytes_to_json).encode() + b"\n"
                )
        except OSError as problem:
            raise BadRequest(f"{self.folder / REPORT} cannot be written: {problem.strerror}.") from None
        return self.folder / REPORT

    def find_identical_rejected_rows_file(self, digest: str) -> Path | None:
        """Return the file of an earlier import that kept the very same rows."""
        for report in sorted(self.below.glob(f"*/{REPORT}"), reverse=True):
            try:
                rejected_rows = json.loads(report.read_bytes())["kept"]
                if rejected_rows["sha256"] == digest and (path := Path(rejected_rows["file"])).is_file():
                    return path
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return None

    def discard_rejected_rows(self) -> None:
        """Remove the file: the import was only tried."""
        if self._file is not None:
            self._file.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def open_new_private_file(path: Path) -> Any:
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def bytes_to_json(value: Any) -> Any:
    return {"base64": base64.b64encode(bytes(value)).decode()}


def restore_raw_bytes_in_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with bytes in place of texts that were not UTF-8."""
    return {name: value_for_json_or_bytes(value) for name, value in row.items()}


def value_for_json_or_bytes(value: Any) -> Any:
    """Return a value that JSON has a form for, or bytes."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.raw if isinstance(value, RepairedText) else value
