"""How collected static files are named: by their content, so that a browser may keep them for ever."""

from __future__ import annotations

from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc] # whitenoise has no types
    """Also names what our own JavaScript imports by its content: else a browser could mix it with an old copy.

    Django's own way to do so fails on the packages' JavaScript, which it reads, too.
    """

    patterns = (
        *CompressedManifestStaticFilesStorage.patterns,
        ("js/*.js", ((r'(?P<matched>from "(?P<url>\./[^"]+)";)', 'from "%(url)s";'),)),
    )
