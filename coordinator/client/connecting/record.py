"""Agents' settings before we changed them: the very bytes, kept where only the owner can read, until they are put back.

One file in the state folder (`connected.json`): settings may hold secrets, so it is as private as the key.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import Any

from coordinator.client import settings
from coordinator.client.connecting.files import FileRefused


@dataclass(slots=True)
class EditedFile:
    """A file that was changed: whose, what it was (None: not there), the digest of what we wrote, folders we made.

    `mode` is the one that it had where it got another because it holds the key.
    """

    agent: str
    original: bytes | None
    written: str
    folders: list[str] = field(default_factory=list)
    mode: int | None = None

    def is_content_as_written(self, content: bytes | None) -> bool:
        """Say whether the file is exactly what we wrote."""
        return content is not None and hash_file_content(content) == self.written


def hash_file_content(content: bytes) -> str:
    """Return the digest by which content is known again."""
    return hashlib.sha256(content).hexdigest()


def edited_files_record_path() -> str:
    """Return the record's path."""
    return os.path.join(settings.client_state_folder(), "connected.json")


def load_edited_files_by_path() -> dict[str, EditedFile]:
    """Return what was changed, by path. Raises FileRefused where the record cannot be read: it must not be lost."""
    try:
        with open(edited_files_record_path(), "rb") as file:
            value = json.load(file)
        return {name: parse_edited_file(stored_value) for name, stored_value in value.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FileRefused(
            f"{edited_files_record_path()} says what agents' settings were, and cannot be read: {problem}."
        ) from None


def save_edited_files_record(files: dict[str, EditedFile]) -> None:
    """Write the record; without files there is none. Raises OSError."""
    if not files:
        if os.path.exists(edited_files_record_path()):
            os.unlink(edited_files_record_path())
        return
    value = {
        name: {
            "agent": edited_file.agent,
            "original": None
            if edited_file.original is None
            else base64.b64encode(edited_file.original).decode(),
            "written": edited_file.written,
            "folders": edited_file.folders,
            "mode": edited_file.mode,
        }
        for name, edited_file in files.items()
    }
    settings.write_private_file(edited_files_record_path(), json.dumps(value, indent=1).encode())


def parse_edited_file(value: dict[str, Any]) -> EditedFile:
    original = value["original"]
    content = None if original is None else base64.b64decode(original, validate=True)
    mode = value.get("mode")
    return EditedFile(
        str(value["agent"]),
        content,
        str(value["written"]),
        list(value["folders"]),
        mode if isinstance(mode, int) else None,
    )
