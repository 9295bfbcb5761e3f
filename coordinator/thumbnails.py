"""Small pictures of large images, made once and kept beside the attachments."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from PIL import Image, ImageOps

from coordinator import attachments
from coordinator.errors import NotFound
from coordinator.models import ChatAttachment

SIDE = 960  # pixels of the longer side: sharp at the size pages show, on screens with two pixels a dot
# A file of some kilobytes can unpack to gigabytes of pixels; such an image is a file to download.
MOST_PIXELS = 60_000_000


def thumbnail(row: ChatAttachment) -> Path:
    """Return the file of an image's thumbnail (WebP). Raises NotFound for what is no image, or too large a one."""
    path = attachments.thumbnail_path(row.pk)
    if not path.exists():
        _make(row, path)
    return path


def _make(row: ChatAttachment, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as out, attachments.opened(row) as file, Image.open(file) as image:
            if image.width * image.height > MOST_PIXELS:
                raise NotFound("The image has too many pixels for a small picture of it.")
            image.draft("RGB", (SIDE, SIDE))  # a JPEG is decoded at a fraction of its size
            upright = ImageOps.exif_transpose(image)
            upright.thumbnail((SIDE, SIDE))
            mode = "RGBA" if upright.has_transparency_data else "RGB"
            upright.convert(mode).save(out, "WEBP", quality=80)
        os.replace(part, path)
    except NotFound:
        raise
    except Exception as problem:  # Pillow raises what it likes for broken files
        raise NotFound(f"No small picture can be made of {row.pk}.") from problem
    finally:
        Path(part).unlink(missing_ok=True)
