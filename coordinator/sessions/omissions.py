"""Telemetry that is left out because it is not understood, and who sent it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OmissionKind(StrEnum):
    """What is left out."""

    ATTRIBUTE = "attribute"  # one that cannot be read; the rest of its record is kept
    SPAN = "span"  # one about a model or an agent, of a kind that is not known
    RECORD = "record"  # one that was read, and refused when it was written
    EXPORT = "export"  # a whole request


@dataclass(frozen=True, slots=True)
class TelemetryEmitter:
    """Who sends telemetry: the program by its `service.name`, and the library that made the record."""

    service: str = ""
    library: str = ""
