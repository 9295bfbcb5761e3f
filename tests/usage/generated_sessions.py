"""Two hundred transcripts, made by varying recorded ones: the same seed makes the same files.

Each has the lines of a recorded session with ids, times and tokens of its own. Some requests are written in more
pieces than the recording has, and some files begin with lines that another file has, as resumed sessions do.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"
CLAUDE_SESSIONS, CODEX_SESSIONS = 150, 50
MODELS = ("claude-opus-4-6", "claude-haiku-4-5-20251001", "claude-sonnet-4-5-20250929")
_IDS = re.compile(r"\b(?:msg|req|toolu|call|resp|prompt)_[\w-]+")
_UUIDS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Lines = list[dict[str, Any]]


def write_generated_sessions(folder: Path, last: datetime, seed: int = 42) -> tuple[Path, Path]:
    """Write the sessions of the 300 days up to `last`; return the folders of Claude Code and of Codex."""
    source = random.Random(seed)
    claude, codex = folder / "projects", folder / "sessions"
    recorded = [
        read_lines(path)
        for place in ("claude_code/transcripts", "usage/claude_growing_answers", "usage/claude_long_cache")
        for path in sorted((DATA / place).rglob("*.jsonl"))
        if "subagents" not in path.parts
    ]
    recorded = [lines for lines in recorded if any("timestamp" in line for line in lines)]
    earlier: Lines = []
    for _ in range(CLAUDE_SESSIONS):
        session = make_uuid(source)
        lines = vary_lines(source.choice(recorded), source, last, session)
        lines = [piece for line in lines for piece in write_in_pieces(line, source)]
        copied = earlier if source.random() < 0.2 else []
        write_lines(claude / "-srv-generated" / f"{session}.jsonl", [*copied, *lines])
        # Answers of old versions have no request id: by ccusage's rules each copy of them would count.
        earlier = (
            lines if all("requestId" in line for line in lines if line["type"] == "assistant") else earlier
        )
    (rollout,) = sorted((DATA / "transcripts/codex").rglob("rollout-*.jsonl"))
    for _ in range(CODEX_SESSIONS):
        session = make_uuid(source)
        lines = vary_rollout(read_lines(rollout), source, last, session)
        at = lines[0]["timestamp"][:19].replace(":", "-")
        write_lines(codex / at[:10].replace("-", "/") / f"rollout-{at}-{session}.jsonl", lines)
    return claude, codex


def read_lines(path: Path) -> Lines:
    return [
        json.loads(text)
        for text in path.read_text().splitlines()
        if text.startswith('{"') and text.endswith("}")
    ]


def write_lines(path: Path, lines: Lines) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_uuid(source: random.Random) -> str:
    return str(uuid.UUID(int=source.getrandbits(128), version=4))


def vary_lines(lines: Lines, source: random.Random, last: datetime, session: str) -> Lines:
    """Return the lines with ids, times, models and tokens of their own."""
    renamed: dict[str, str] = {}

    def rename(make: Callable[[], str]) -> Callable[[re.Match[str]], str]:
        return lambda match: renamed.setdefault(match.group(), make())

    own_id = next((line["sessionId"] for line in lines if line.get("sessionId")), None)
    if own_id:
        renamed[own_id] = session
    text = json.dumps(lines)
    text = _IDS.sub(rename(lambda: f"msg_{source.getrandbits(64):x}"), text)
    text = _UUIDS.sub(rename(lambda: make_uuid(source)), text)
    varied: Lines = json.loads(text)
    shift_times(varied, source, last)
    factors: dict[Any, tuple[int, str]] = {}
    for line in varied:
        message = line.get("message")
        usage = message.get("usage") if isinstance(message, dict) else None
        if not isinstance(usage, dict) or message.get("model") == "<synthetic>":
            continue
        factor, model = factors.setdefault(
            message.get("id"), (source.randrange(1, 40), source.choice(MODELS))
        )
        message["model"] = model
        multiply_tokens(usage, factor)
    return varied


def multiply_tokens(usage: dict[str, Any], factor: int) -> None:
    for name, value in usage.items():
        if isinstance(value, dict):
            multiply_tokens(value, factor)
        elif name.endswith("_tokens") and isinstance(value, int):
            usage[name] = value * factor


def shift_times(lines: Lines, source: random.Random, last: datetime) -> None:
    first = next(line["timestamp"] for line in lines if line.get("timestamp"))
    target = last - timedelta(days=source.randrange(2, 300), minutes=source.randrange(1440))
    shift = target - datetime.fromisoformat(first)
    for line in lines:
        if line.get("timestamp"):
            at = datetime.fromisoformat(line["timestamp"]) + shift
            line["timestamp"] = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def write_in_pieces(line: dict[str, Any], source: random.Random) -> Lines:
    """Return the lines of an answer: some are written before their tokens out are known, and then again."""
    message = line.get("message")
    usage = message.get("usage") if isinstance(message, dict) else None
    if not isinstance(usage, dict) or "requestId" not in line or source.random() < 0.6:
        return [line]
    early = json.loads(json.dumps(line))
    early["uuid"] = make_uuid(source)
    early["message"]["usage"]["output_tokens"] = 1
    early["message"]["stop_reason"] = None
    return [early, line]


def vary_rollout(lines: Lines, source: random.Random, last: datetime, session: str) -> Lines:
    factor = source.randrange(1, 40)
    own_id = lines[0]["payload"]["id"]
    text = json.dumps(lines).replace(own_id, session)
    tag = f"{source.getrandbits(32):08x}"
    varied: Lines = json.loads(re.sub(r"\bresp_([0-9a-f]{8})", rf"resp_{tag}\1", text))
    shift_times(varied, source, last)
    for line in varied:
        for place in (line["payload"].get("usage"), line["payload"].get("info")):
            if isinstance(place, dict):
                multiply_tokens(place, factor)
        if line["type"] == "turn_context":
            line["payload"]["model"] = source.choice(("gpt-5", "gpt-5.2-codex"))
    return varied
