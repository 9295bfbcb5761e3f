from __future__ import annotations

import base64
import hashlib
import re

import pytest
from django.conf import settings

FOLDER = settings.BASE_DIR / "static" / "vendor"
ROW = re.compile(r"^\| `([^`]+)` \| [^|]+ \| ([\d.]+) \| ([^|]+) \| `([A-Za-z0-9+/=]+)` \|$", re.MULTILINE)
LISTED = {name: rest for name, *rest in ROW.findall((FOLDER / "README.md").read_text())}


def test_every_vendored_file_is_listed_and_every_listed_one_is_there() -> None:
    files = {path.name for path in FOLDER.iterdir()} - {"README.md"}
    assert files == set(LISTED)
    assert files


@pytest.mark.parametrize("name", LISTED)
def test_a_vendored_file_is_the_one_that_was_reviewed(name: str) -> None:
    version, licence, digest = LISTED[name]
    actual = base64.b64encode(hashlib.sha384((FOLDER / name).read_bytes()).digest()).decode()
    assert actual == digest
    assert version in name
    assert licence.strip() == "0BSD"
