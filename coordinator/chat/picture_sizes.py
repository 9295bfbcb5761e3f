"""The stated size of an image, read from the first bytes of PNG, JPEG, GIF and WebP. Decodes nothing."""

from __future__ import annotations

from typing import BinaryIO, Literal

HEAD = 64  # bytes that hold everything but a JPEG's size
MOST_SEGMENTS = 200  # of a JPEG that are walked through before its size

Size = tuple[int, int]


def read_image_size(file: BinaryIO, mime_type: str) -> Size | None:
    """Return an image's width and height in pixels, or None where the file does not say them."""
    head = file.read(HEAD)
    read = {"image/png": read_png_size, "image/gif": read_gif_size, "image/webp": read_webp_size}.get(
        mime_type
    )
    jpeg_size = read_jpeg_size(file) if mime_type == "image/jpeg" else read(head) if read else None
    return jpeg_size if jpeg_size and all(jpeg_size) else None


def read_png_size(head: bytes) -> Size | None:
    return unpack_number_pair(head[16:24], "big") if head[12:16] == b"IHDR" else None


def read_gif_size(head: bytes) -> Size | None:
    return unpack_number_pair(head[6:10], "little")


def read_webp_size(head: bytes) -> Size | None:
    kind, data = head[12:16], head[20:]
    if kind == b"VP8X" and len(data) >= 10:
        return 1 + int.from_bytes(data[4:7], "little"), 1 + int.from_bytes(data[7:10], "little")
    if kind == b"VP8L" and len(data) >= 5:
        bits = int.from_bytes(data[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and len(data) >= 10:
        size = unpack_number_pair(data[6:10], "little")
        return (size[0] & 0x3FFF, size[1] & 0x3FFF) if size else None
    return None


def read_jpeg_size(file: BinaryIO) -> Size | None:
    """Walk from segment to segment until the one that begins a frame."""
    file.seek(2)
    for _ in range(MOST_SEGMENTS):
        marker = file.read(4)
        if len(marker) < 4 or marker[0] != 0xFF:
            return None
        if 0xC0 <= marker[1] <= 0xCF and marker[1] not in (0xC4, 0xC8, 0xCC):
            size = unpack_number_pair(file.read(5)[1:], "big")
            return (size[1], size[0]) if size else None  # a JPEG says its height first
        file.seek(int.from_bytes(marker[2:], "big") - 2, 1)
    return None


def unpack_number_pair(data: bytes, order: Literal["big", "little"]) -> Size | None:
    """Return two whole numbers of equal length."""
    half = len(data) // 2
    if half not in (2, 4):
        return None
    return int.from_bytes(data[:half], order), int.from_bytes(data[half:], order)
