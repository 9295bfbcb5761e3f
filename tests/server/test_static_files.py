"""Static files are collected into the folder that a server of the release before serves from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from coordinator.operations import static_files

pytestmark = pytest.mark.one_engine


def test_what_a_server_serves_is_never_missing_while_a_new_release_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    own = Path(settings.STATICFILES_DIRS[0])
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    settings.STATICFILES_DIRS = [(name, own / name) for name in ("js",)]  # what packages bring takes seconds
    monkeypatch.setattr(
        static_files, "staticfiles_storage", static_files.StaticFiles(location=tmp_path / "static")
    )
    root = tmp_path / "static"
    static_files.renew_static_files(root)
    manifest = root / "staticfiles.json"
    told = json.loads(manifest.read_text())
    told["paths"]["js/former.js"] = "js/former.0123456789ab.js"
    manifest.write_text(json.dumps(told))
    for name in ("former.0123456789ab.js", "former.0123456789ab.js.gz", "of-two-releases-ago.js"):
        (root / "js" / name).write_text("old")
    served = [path for path in root.rglob("*") if path.is_file() and "ago" not in path.name]
    replaced = os.replace
    missing: list[Path] = []

    def replace(source: Path, target: Path) -> None:
        missing.extend(path for path in served if not path.exists())
        replaced(source, target)

    monkeypatch.setattr(os, "replace", replace)
    static_files.renew_static_files(root)
    assert missing == []
    assert all(path.exists() for path in served)
    assert not (root / "js/of-two-releases-ago.js").exists()
    assert "js/former.js" not in json.loads(manifest.read_text())["paths"]
    assert [path.name for path in tmp_path.iterdir()] == ["static"]
