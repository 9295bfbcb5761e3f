"""The recorded traffic: what was asked of the coordinator, in the order in which it was asked and answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "data" / "wire"
SEED, HEAD = "coordinator", "head"  # the recorded version, and the newest one


@dataclass(frozen=True)
class Exchange:
    """One recorded request and its answer."""

    seq: int
    scenario: str
    began: float
    ended: float
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]
    status: int
    answer: Any
    stream: str | None

    @property
    def is_poll(self) -> bool:
        return self.path == "/runner/runs"


@dataclass(frozen=True)
class RecordedFrame:
    """One frame of a recorded stream."""

    scenario: str
    stream: str
    event: str
    data: Any


@cache
def exchanges(name: str = SEED) -> list[Exchange]:
    """Return every request that the coordinator was sent, without what executors sent to their gateway."""
    return [_exchange(line) for line in _lines(name) if line["hop"].endswith("->coordinator")]


def frames(name: str = SEED) -> list[RecordedFrame]:
    """Return every frame that the coordinator sent."""
    return [
        RecordedFrame(line["scenario"][:2], line["stream"], line["frame"]["event"], line["frame"]["data"])
        for line in _lines(name)
        if "frame" in line
    ]


def scenarios(name: str = SEED) -> dict[str, str]:
    """Return the scenarios' titles by their two digits."""
    return {line["scenario"][:2]: line["scenario"][3:] for line in _lines(name)}


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def _exchange(line: dict[str, Any]) -> Exchange:
    began = datetime.fromisoformat(line["t"]).timestamp()
    return Exchange(
        seq=line["seq"],
        scenario=line["scenario"][:2],
        began=began,
        ended=began + line.get("dt_ms", 0) / 1000,
        method=line["method"],
        path=line["path"],
        query=line["query"],
        body=line["req_body"],
        headers={k: v for k, v in line["req_headers"].items() if k == "last-event-id"},
        status=line["status"],
        answer=line.get("resp_body"),
        stream=line.get("stream"),
    )
