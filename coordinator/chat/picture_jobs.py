"""Creation of thumbnails in the sandbox: the only module that decodes images. It imports none of our data.

A picture is opened with the decoder of the type that its first bytes prove. Pillow's own choice among its formats is
never used: some of them start programs (EPS starts Ghostscript).
"""

from __future__ import annotations

import io
from collections.abc import Callable

from PIL import Image, ImageOps
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

DECODERS: dict[object, Callable[[io.BytesIO], ImageFile]] = {
    "image/png": PngImageFile,
    "image/jpeg": JpegImageFile,
    "image/gif": GifImageFile,
    "image/webp": WebPImageFile,
}
Image.preinit()  # saving would do so, and the sandbox opens no file any more by then


def make_webp_thumbnail(facts: dict[str, object], data: bytes) -> tuple[dict[str, object], bytes]:
    """Return a WebP of the first frame, upright, of at most `side` pixels a side.

    `facts`: `mime_type`, `side`, `most_pixels`. Raises whatever Pillow does for what is broken.
    """
    side, most = int(str(facts["side"])), int(str(facts["most_pixels"]))
    with DECODERS[facts["mime_type"]](io.BytesIO(data)) as image:
        if image.width * image.height > most:
            raise ValueError("too many pixels")
        image.thumbnail((side, side))
        upright = ImageOps.exif_transpose(image)
        out = io.BytesIO()
        upright.convert("RGBA" if upright.has_transparency_data else "RGB").save(out, "WEBP", quality=80)
    return {}, out.getvalue()


JOBS = {"thumbnail": make_webp_thumbnail}
