"""Kilo's dialect: that of OpenCode, whose fork it is and whose plugin of ours it loads. Tried with version 7.7.9."""

from __future__ import annotations

from coordinator.dialects import hooks
from coordinator.dialects.opencode import OpenCodeDialect

SOURCE = "kilo"


class KiloDialect(OpenCodeDialect):
    """What the plugin posts of Kilo."""

    name = SOURCE
    cannot_ask = hooks.build_ask_unsupported_message("Kilo")


DIALECT = KiloDialect()
