"""Verified reading of files: each piece is compared with the upload while it is read, so no wrong byte is given out.

A file's bytes are known by the SHA-256 of the whole and of each piece of 256 KiB. A read from the middle reads the
pieces that contain the range, and no others.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from coordinator.chat.stores import AttachmentStore, StoredFileStream
from coordinator.errors import RequestTooLarge
from coordinator.models import StoredFile

PIECE = 256 * 1024
DIGEST = 32  # bytes of one piece's
MOST_AHEAD = 32  # pieces that are asked for at once, once somebody reads on and on


class DamagedFile(Exception):
    """What is stored is not what was put there."""


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """By what a file's bytes are known again."""

    size: int
    sha256: str
    pieces: bytes


def fingerprint_file_content(file: BinaryIO | Any, *, most: int | None = None) -> FileFingerprint:
    """Read a file to its end. Raises RequestTooLarge for one of more than `most` bytes."""
    file_hash, pieces, size = hashlib.sha256(), bytearray(), 0
    while piece := read_until_size_or_end(file, PIECE):
        size += len(piece)
        if most is not None and size > most:
            raise RequestTooLarge(f"A file may have at most {most // 2**20} MiB.")
        file_hash.update(piece)
        pieces += hashlib.sha256(piece).digest()
    return FileFingerprint(size, file_hash.hexdigest(), bytes(pieces))


def open_file_verified_while_reading(
    store: AttachmentStore,
    name: str,
    stored_file: StoredFile,
    *,
    elsewhere: Callable[[], AttachmentStore | None] = lambda: None,
) -> io.BufferedReader:
    """Return a file to read and seek in.

    Reading raises DamagedFile for what is not as it came, and what `store` raises.

    `elsewhere` returns the file's new store, if it was moved.
    """
    return io.BufferedReader(
        VerifiedFileReader(store, name, stored_file.size_bytes, bytes(stored_file.pieces), elsewhere)
    )


class VerifiedFileReader(io.RawIOBase):
    """Reads pieces in order as one answer of the store; each seek sends a new request, small at first."""

    def __init__(
        self,
        store: AttachmentStore,
        name: str,
        size: int,
        pieces: bytes,
        elsewhere: Callable[[], AttachmentStore | None],
    ) -> None:
        self._store, self._name, self._size, self._digests = store, name, size, pieces
        self._elsewhere = elsewhere
        self._at = 0
        self._number, self._piece = -1, b""  # the piece at hand
        self._reading: StoredFileStream | None = None
        self._next = self._until = 0  # the piece that comes from it next, and the first that does not
        self._ahead = 1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._size:
            return 0
        number, start = divmod(self._at, PIECE)
        if number != self._number:
            self._piece, self._number = self._read_verified_chunk(number), number
        part = self._piece[start : start + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def close(self) -> None:
        self._close_stream()
        super().close()

    def _read_verified_chunk(self, number: int) -> bytes:
        """Return a piece that is as it came."""
        piece = self._read_chunk_with_retry(number)
        digest = self._digests[number * DIGEST : (number + 1) * DIGEST]
        if hashlib.sha256(piece).digest() != digest:
            raise DamagedFile(f"Bytes from {number * PIECE} on are not what was stored.")
        return piece

    def _read_chunk_with_retry(self, number: int) -> bytes:
        """Read a piece; one that was cut off on its way is asked for once more."""
        size = min(PIECE, self._size - number * PIECE)
        if self._reading is None or not self._next == number < self._until:
            self._open_stream_at_chunk(number)
        try:
            return self._read_chunk_from_open_stream(number, size)
        except OSError:
            self._open_stream_at_chunk(number)
            return self._read_chunk_from_open_stream(number, size)

    def _read_chunk_from_open_stream(self, number: int, size: int) -> bytes:
        assert self._reading is not None
        self._next = number + 1
        return read_until_size_or_end(self._reading, size)

    def _open_stream_at_chunk(self, number: int) -> None:
        reads_on = number == self._next > 0
        self._close_stream()
        self._ahead = min(self._ahead * 4, MOST_AHEAD) if reads_on else 1
        self._next, self._until = number, number + self._ahead
        start = number * PIECE
        length = min(self._ahead * PIECE, self._size - start)
        try:
            self._reading = self._store.open_byte_range(self._name, start, length)
        except FileNotFoundError:
            store = self._elsewhere()
            if store is None:
                raise
            self._store = store
            self._reading = store.open_byte_range(self._name, start, length)

    def _close_stream(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None


def read_until_size_or_end(file: Any, size: int) -> bytes:
    """Return `size` bytes, or what is left."""
    content = bytearray()
    while len(content) < size and (part := file.read(size - len(content))):
        content += part
    return bytes(content)
