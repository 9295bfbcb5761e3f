"""Kilo's dialect: that of OpenCode, whose fork it is and whose plugin of ours it loads. Tried with version 7.7.9."""

from __future__ import annotations

from coordinator.dialects import opencode

SOURCE = "kilo"
DIALECT = opencode.make_opencode_dialect(SOURCE, "Kilo")
