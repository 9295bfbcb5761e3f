"""The program `signalbox` for machines where only agents run: one file, made from the code of this server."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.http import HttpRequest, HttpResponse

from coordinator.api.router import Router
from coordinator.lib.installation import CODE

router = Router(tags=["Hooks"])
OWN_PACKAGES = ("coordinator/client", "coordinator/runner")
SDK_SOURCE = "coordinator/client/sdk"  # in a checkout; a wheel has `signalbox_sdk` next to `coordinator`
EDITORS = {
    "tomlkit": "tomlkit",
    "yaml": "pyyaml",
}  # with which `connect` edits settings: package and distribution
SHEBANG = b"#!/usr/bin/env python3\n"
FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # the same code makes the same bytes, on every server
ANSWERS: dict[str, Any] = {
    "responses": {
        200: {
            "description": "The program",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    }
}


@router.get(
    "/client/signalbox.pyz",
    auth=None,
    operation_id="client_program",
    summary="Download the program signalbox for machines of agents",
    openapi_extra=ANSWERS,
    include_in_schema=True,
)
def download_client_program(request: HttpRequest) -> HttpResponse:
    """Run it with Python 3.11 or newer: `python3 signalbox.pyz connect`. It contains no key and no address."""
    answer = HttpResponse(build_client_program(), content_type="application/octet-stream")
    answer["Content-Disposition"] = 'attachment; filename="signalbox.pyz"'
    answer["Cache-Control"] = "no-cache"
    return answer


@lru_cache(maxsize=1)
def build_client_program() -> bytes:
    """Return a zip file that Python runs: the client, the runner without its packages, and what edits settings."""
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(iterate_client_archive_paths()):
            archive.writestr(zipfile.ZipInfo(name, FIXED_TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def iterate_client_archive_paths() -> Iterator[tuple[str, Path]]:
    """Yield each file's name in the archive, and where it is."""
    yield "__main__.py", CODE / "coordinator/client/unpack.py"
    yield "coordinator/__init__.py", CODE / "coordinator/__init__.py"
    for package in OWN_PACKAGES:
        for path in (CODE / package).rglob("*.py"):
            if not path.is_relative_to(CODE / SDK_SOURCE):
                yield path.relative_to(CODE).as_posix(), path
    sdk = find_package_folder("signalbox_sdk")
    for path in sdk.rglob("*.py"):
        yield path.relative_to(sdk.parent).as_posix(), path
    for package, distribution in EDITORS.items():
        folder = find_package_folder(package)
        for path in folder.rglob("*.py"):
            yield path.relative_to(folder.parent).as_posix(), path
        for file in metadata.files(distribution) or ():
            if "LICENSE" in file.name:
                yield f"{package}/LICENSE", Path(str(file.locate()))


def find_package_folder(package: str) -> Path:
    """Return the folder of an installed package; for the SDK in a checkout, that of its source."""
    if package == "signalbox_sdk" and (CODE / SDK_SOURCE).is_dir():
        return CODE / SDK_SOURCE / package
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
