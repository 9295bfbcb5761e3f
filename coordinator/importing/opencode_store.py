"""OpenCode's sessions on disk, one message with its parts a line: in an SQLite database, or in folders of JSON files.

The database (`opencode.db`) is read in short queries while OpenCode goes on writing, and no file is made next to it.
What a line holds is put together here; the dialect interprets it.
"""

from __future__ import annotations

import errno
import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from coordinator.errors import SignalboxError
from coordinator.importing import sqlite_copy
from coordinator.importing.transcripts import LONGEST_LINE, TranscriptFile, TranscriptLine

WRITER_WAIT_SECONDS = 30.0  # seconds to wait for a writer
MOST_PARTS = 20_000  # of one message
_SIZE = """SELECT coalesce(length(m.data), 0) + coalesce(sum(length(p.data)), 0), count(p.id)
FROM message m LEFT JOIN part p ON p.message_id = m.id WHERE m.id = ?"""


def iterate_opencode_lines(transcript: TranscriptFile) -> Iterator[TranscriptLine]:
    """Yield each session as a line `{"session": …}` and after it its messages, `{"id", "data", "parts": …}`.

    Columns and files of JSON are handed on as texts. Raises OSError.
    """
    is_file = transcript.path.suffix == ".json"
    storage_files = (
        iterate_lines_of_opencode_session(transcript.path)
        if is_file
        else iterate_opencode_database_lines(transcript.path)
    )
    for number, (body, size) in enumerate(storage_files, 1):
        yield TranscriptLine(number, body, size, is_complete=True)


Body = tuple[bytes | None, int]


def encode_opencode_line_with_size(value: dict[str, Any]) -> Body:
    body = json.dumps(value).encode()
    return body, len(body)


# --- the database ---------------------------------------------------------------------------------------------


def iterate_opencode_database_lines(path: Path) -> Iterator[Body]:
    with tempfile.TemporaryDirectory(prefix="signalbox-") as folder:
        try:
            database_path = sqlite_copy.prepare_readable_database(path, Path(folder))
            mode = "ro" if database_path == path else "rw"
            with sqlite3.connect(
                f"file:{quote(str(database_path.absolute()))}?mode={mode}",
                uri=True,
                timeout=WRITER_WAIT_SECONDS,
            ) as db:
                db.row_factory = sqlite3.Row
                db.text_factory = lambda raw: raw.decode("utf-8", "replace")
                yield from iterate_session_lines(db)
            db.close()
        except SignalboxError as problem:
            raise OSError(errno.EIO, str(problem.detail)) from None
        except sqlite3.Error as problem:
            raise OSError(errno.EIO, str(problem)) from None


def iterate_session_lines(db: sqlite3.Connection) -> Iterator[Body]:
    ids = [row[0] for row in db.execute("SELECT id FROM session ORDER BY time_created, id")]
    for session in ids:
        row = db.execute("SELECT * FROM session WHERE id = ?", [session]).fetchone()
        if row is None:
            continue
        names = {"id", "parent_id", "directory", "title", "version"} & set(row.keys())
        yield encode_opencode_line_with_size({"session": {name: row[name] for name in names}})
        message_sql = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id"
        for (message,) in db.execute(message_sql, [session]).fetchall():
            yield from iterate_message_lines(db, session, message)


def iterate_message_lines(db: sqlite3.Connection, session: str, message: str) -> Iterator[Body]:
    size, parts = db.execute(_SIZE, [message]).fetchone()
    if size > LONGEST_LINE or parts > MOST_PARTS:
        yield None, size
        return
    row = db.execute("SELECT time_created, data FROM message WHERE id = ?", [message]).fetchone()
    if row is None:
        return
    part_sql = "SELECT id, time_created, data FROM part WHERE message_id = ? ORDER BY id"
    yield encode_opencode_line_with_size(
        {
            "id": message,
            "session": session,
            "at": row["time_created"],
            "data": decode_message_text(row["data"]),
            "parts": [
                {"id": part["id"], "at": part["time_created"], "data": decode_message_text(part["data"])}
                for part in db.execute(part_sql, [message])
            ],
        }
    )


def decode_message_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# --- files, as older versions keep them -----------------------------------------------------------------------


def iterate_lines_of_opencode_session(path: Path) -> Iterator[Body]:
    """Yield what belongs to `storage/session/PROJECT/SESSION.json`."""
    storage, session = path.parents[2], path.stem
    try:
        about = json.loads(read_text_if_within_limit(path, LONGEST_LINE) or "null")
    except ValueError:
        yield b"{", path.stat().st_size
        return
    details = about if isinstance(about, dict) else {}
    names = {"parent_id": "parentID"}
    keys = ("id", "parent_id", "directory", "title", "version")
    yield encode_opencode_line_with_size(
        {"session": {"id": session} | {key: details.get(names.get(key, key)) for key in keys[1:]}}
    )
    for message in list_json_files(storage / "message" / session):
        bytes_left = LONGEST_LINE
        parts: list[dict[str, Any]] = []
        data = read_text_if_within_limit(message, bytes_left)
        for part in list_json_files(storage / "part" / message.stem):
            text = (
                None
                if data is None or len(parts) >= MOST_PARTS
                else read_text_if_within_limit(part, bytes_left)
            )
            if text is None:
                data = None
                break
            bytes_left -= len(text)
            parts.append({"id": part.stem, "at": None, "data": text})
        if data is None:
            yield None, message.stat().st_size
        else:
            yield encode_opencode_line_with_size(
                {"id": message.stem, "session": session, "at": None, "data": data, "parts": parts}
            )


def list_json_files(folder: Path) -> Iterable[Path]:
    return sorted(folder.glob("*.json")) if folder.is_dir() else []


def read_text_if_within_limit(path: Path, most: int) -> str | None:
    with path.open("rb") as file:
        body = file.read(most + 1)
    return body.decode("utf-8", "replace") if len(body) <= most else None
