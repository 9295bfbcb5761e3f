"""Kilo's sessions (`~/.local/share/kilo/kilo.db`) as events: as OpenCode keeps them. Recorded with version 7.7.9."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coordinator.dialects import opencode_transcripts
from coordinator.dialects.kilo import SOURCE


def is_kilo_store(path: Path) -> bool:
    return path.suffix == ".db" and path.name.startswith("kilo")


FORMAT = replace(opencode_transcripts.FORMAT, name=SOURCE, folders=("kilo",), is_one=is_kilo_store)
