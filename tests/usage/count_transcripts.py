"""Tokens by day and model, by the published rules of ccusage.

`python -m tests.usage.count_transcripts PROGRAM FOLDER` prints them. The rules, in short:

- Claude Code: every line with a usage counts, on its day (UTC). Lines with the same message id and request id are one
  request. Of an answer that is written in pieces the last line counts.
- Codex: of each `token_count` whose total is another than before its last request counts, with the model of its turn;
  without that, what the total has grown. The totals that a fork or a sub-agent repeats are its parent's.
- Gemini CLI: the last snapshot of each answer counts. OpenCode and Kilo: each answer in their database.

Nothing here imports the code that it is compared with.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

Counts = dict[tuple[str, str], list[int]]  # by day (UTC) and model: in, out, read from and written to a cache


def read_json_lines(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(folder.rglob("*.jsonl")):
        for text in path.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict):
                yield path, line


def count_claude(folder: Path) -> Counts:
    last: dict[Any, tuple[str, str, list[int]]] = {}
    for number, (_, outer) in enumerate(read_json_lines(folder)):
        data = outer.get("data")
        is_progress = isinstance(data, dict) and data.get("type") == "agent_progress"
        line = data.get("message", {}) if is_progress else outer
        message = line.get("message")
        usage = message.get("usage") if isinstance(message, dict) else None
        if not isinstance(usage, dict) or message["model"] == "<synthetic>":
            continue
        ids = (message.get("id"), line.get("requestId"))
        key = ids if all(ids) else number
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        counts = [usage.get(name) or 0 for name in names]
        # A copy in another file may be older than the whole answer.
        if key not in last or sum(counts) >= sum(last[key][2]):
            day = last[key][0] if key in last else line["timestamp"][:10]
            last[key] = (day, message["model"], counts)
    return sum_by_day_and_model(last.values())


def count_codex(folder: Path) -> Counts:
    """Count each `token_count` by what it adds; what a fork or a sub-agent repeats of its parent is the parent's."""
    requests: list[tuple[str, str, list[int]]] = []
    files = {
        path: [line for _, line in lines] for path, lines in groupby(read_json_lines(folder), itemgetter(0))
    }
    metas = {path: find_codex_meta(lines) for path, lines in files.items()}
    totals = {meta.get("id"): find_codex_totals(files[path]) for path, meta in metas.items()}
    for path, lines in files.items():
        pairs = zip(totals.get(find_codex_parent(metas[path]), []), find_codex_totals(lines), strict=False)
        repeated = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        model, before, seen = "", dict[str, int](), 0
        for line in lines:
            payload = line.get("payload") or {}
            if line.get("type") == "turn_context":
                model = payload["model"]
            info = payload.get("info") if payload.get("type") == "token_count" else None
            if not info:
                continue
            total, seen = info["total_token_usage"], seen + 1
            grown = {name: value - before.get(name, 0) for name, value in total.items()}
            before = total
            if any(grown.values()) and seen > repeated:
                used = info.get("last_token_usage") or grown
                read = used.get("cached_input_tokens", 0)
                counts = [used["input_tokens"] - read, used["output_tokens"], read, 0]
                requests.append((line["timestamp"][:10], model, counts))
    return sum_by_day_and_model(requests)


def find_codex_meta(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return next((line["payload"] for line in lines if line.get("type") == "session_meta"), {})


def find_codex_parent(meta: dict[str, Any]) -> str | None:
    source = meta.get("source")
    spawned = source.get("subagent") if isinstance(source, dict) else None
    spawned = spawned.get("thread_spawn") if isinstance(spawned, dict) else None
    return meta.get("forked_from_id") or (spawned or {}).get("parent_thread_id")


def find_codex_totals(lines: list[dict[str, Any]]) -> list[dict[str, int]]:
    payloads = [line.get("payload") or {} for line in lines]
    return [
        payload["info"]["total_token_usage"]
        for payload in payloads
        if payload.get("type") == "token_count" and payload.get("info")
    ]


def count_gemini(folder: Path) -> Counts:
    """Count each answer by its last snapshot. Its input has what came from a cache; tools' tokens are beside it."""
    last: dict[str, tuple[str, str, list[int]]] = {}
    for _, line in read_json_lines(folder):
        changed = line.get("$set", line)
        for message in changed.get("messages", [changed]):
            tokens = message.get("tokens")
            if message.get("type") == "gemini" and tokens:
                counts = [
                    tokens["input"] - tokens["cached"] + tokens["tool"],
                    tokens["output"] + tokens["thoughts"],
                    tokens["cached"],
                    0,
                ]
                last[message["id"]] = (message["timestamp"][:10], message["model"], counts)
    return sum_by_day_and_model(last.values())


def count_opencode(folder: Path) -> Counts:
    """Count each answer in the database of OpenCode or Kilo. Thoughts are beside the output."""
    requests: list[tuple[str, str, list[int]]] = []
    for path in sorted(folder.rglob("*.db")):
        with closing(sqlite3.connect(path)) as database:
            for (text,) in database.execute("SELECT data FROM message ORDER BY id"):
                message = json.loads(text)
                tokens, model = message.get("tokens"), message.get("modelID")
                if message.get("role") != "assistant" or not tokens:
                    continue
                at = datetime.fromtimestamp(message["time"]["completed"] / 1000, UTC)
                cache = tokens["cache"]
                counts = [
                    tokens["input"],
                    tokens["output"] + tokens["reasoning"],
                    cache["read"],
                    cache["write"],
                ]
                requests.append((f"{at:%Y-%m-%d}", model, counts))
    return sum_by_day_and_model(requests)


def sum_by_day_and_model(requests: Iterable[tuple[str, str, list[int]]]) -> Counts:
    sums: Counts = defaultdict(lambda: [0, 0, 0, 0])
    for day, model, counts in requests:
        sums[day, model] = [have + more for have, more in zip(sums[day, model], counts, strict=True)]
    return dict(sums)


COUNTERS = {
    "claude-code": count_claude,
    "codex": count_codex,
    "gemini": count_gemini,
    "opencode": count_opencode,
    "kilo": count_opencode,
}


def main(program: str, folder: str) -> None:
    for (day, model), counts in sorted(COUNTERS[program](Path(folder)).items()):
        sys.stdout.write(f"{day} {model} {' '.join(map(str, counts))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
