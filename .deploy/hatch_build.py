"""Puts the clone's templates, static files and help pages into the wheel, below the package `coordinator`."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShareFolders(BuildHookInterface):
    """An editable installation reads them where they are."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            folders = ("templates", "static", ".docs")
            build_data["force_include"] |= {folder: f"coordinator/share/{folder}" for folder in folders}
