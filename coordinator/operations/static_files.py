"""Collection and naming of static files: by their content, so that a browser may keep them for ever."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.contrib.staticfiles.management.commands import collectstatic
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command
from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc] # whitenoise has no types
    """Also names what our own JavaScript imports by its content: else a browser could mix it with an old copy.

    Django's own way to do so fails on the packages' JavaScript, which it reads, too.
    """

    patterns = (
        *CompressedManifestStaticFilesStorage.patterns,
        ("js/*.js", ((r'(?P<matched>from "(?P<url>\./[^"]+)";)', 'from "%(url)s";'),)),
    )


MANIFEST = Path(StaticFiles.manifest_name)


def renew_static_files(root: Path) -> None:
    """Collect static files into `root`, from which a server of the previous release may serve: none is ever missing.

    They are made next to it and moved in one by one. The previous release's files stay until the next one, since its
    pages may still be open. Raises OSError.
    """
    root.mkdir(parents=True, exist_ok=True)
    before = manifest_file_paths(root)
    with TemporaryDirectory(dir=root.resolve().parent, prefix="static-") as folder:
        staging = Path(folder)
        command = collectstatic.Command()
        command.storage = StaticFiles(location=folder)
        call_command(command, interactive=False, verbosity=0)
        made_files = [path.relative_to(staging) for path in staging.rglob("*") if path.is_file()]
        for path in sorted(made_files, key=lambda path: path == MANIFEST):  # which names the others
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / path, root / path)
    for path in list(root.rglob("*")):
        if path.is_file() and path.relative_to(root) not in before.union(made_files):
            path.unlink(missing_ok=True)
    storage: Any = staticfiles_storage  # this process's own, which may have read the former manifest
    storage.hashed_files, storage.manifest_hash = storage.load_manifest()


def manifest_file_paths(root: Path) -> set[Path]:
    """Return the files that the manifest in `root` names, compressed ones too."""
    try:
        names = json.loads((root / MANIFEST).read_text())["paths"].values()
    except (OSError, ValueError, KeyError, AttributeError):
        return set()
    return {Path(name + ending) for name in names for ending in ("", ".gz", ".br")}
