"""Sums equal, to the token, a count that was written by itself from the published rules of ccusage.

Its rules, in short: every line with a usage counts, by day and model; lines with the same message id and request id are
one request, of which the fullest counts; of Codex's `token_count` the last usage counts, or what the total has grown.
Nothing here imports the code that it is compared with.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from coordinator.models import ModelRequestUsage
from coordinator.usage.reading import load_usage_by_columns
from tests.transcripts.recorded import copied

pytestmark = pytest.mark.django_db

TESTS_DATA = Path(__file__).parents[1] / "data"
Counts = dict[tuple[str, str], list[int]]  # by day (UTC) and model: in, out, read from and written to a cache


def json_lines(place: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(place.rglob("*.jsonl")):
        for text in path.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict):
                yield path, line


def count_claude(place: Path) -> Counts:
    fullest: dict[Any, tuple[str, str, list[int]]] = {}
    for number, (_, outer) in enumerate(json_lines(place)):
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
        if key not in fullest or sum(counts) >= sum(fullest[key][2]):
            fullest[key] = (line["timestamp"][:10], message["model"], counts)
    return add_up(fullest.values())


def count_codex(place: Path) -> Counts:
    found: list[tuple[str, str, list[int]]] = []
    models: dict[Path, str] = {}
    totals: dict[Path, dict[str, int]] = {}
    for path, line in json_lines(place):
        payload = line.get("payload") or {}
        if line.get("type") == "turn_context":
            models[path] = payload["model"]
        info = payload.get("info") if payload.get("type") == "token_count" else None
        if not info:
            continue
        total = info["total_token_usage"]
        before = totals.get(path, {})
        totals[path] = total
        grown = {name: value - before.get(name, 0) for name, value in total.items()}
        if any(grown.values()):
            read = grown.get("cached_input_tokens", 0)
            counts = [grown["input_tokens"] - read, grown["output_tokens"], read, 0]
            found.append((line["timestamp"][:10], models[path], counts))
    return add_up(found)


def add_up(found: Any) -> Counts:
    sums: Counts = defaultdict(lambda: [0, 0, 0, 0])
    for day, model, counts in found:
        sums[day, model] = [have + more for have, more in zip(sums[day, model], counts, strict=True)]
    return dict(sums)


def count_here() -> Counts:
    grouped = load_usage_by_columns(ModelRequestUsage.objects.all(), "day", "model")
    return {
        (day, model): [usage.input, usage.output, usage.cache_read, usage.cache_write]
        for (day, model), usage in grouped.items()
    }


def bring(program: str, place: Path) -> None:
    call_command("import_transcripts", program, str(place), stdout=StringIO())


@pytest.mark.parametrize(
    "folder", ["claude_code/transcripts", "usage/claude_growing_answers", "usage/claude_long_cache"]
)
def test_claude_code_s_transcripts_equal_an_independent_count(folder: str, tmp_path: Path) -> None:
    place = tmp_path / "projects"
    shutil.copytree(TESTS_DATA / folder, place)
    for number, path in enumerate(sorted(place.rglob("*.jsonl"))):
        os.utime(path, (1_795_000_000 + number, 1_795_000_000 + number))
    bring("claude-code", place)
    assert count_here() == count_claude(place)
    assert sum(sum(counts) for counts in count_here().values()) > 10_000


def test_codex_s_rollout_equals_an_independent_count(tmp_path: Path) -> None:
    place = copied("codex", tmp_path)
    bring("codex", place)
    assert count_here() == count_codex(place)
    assert sum(sum(counts) for counts in count_here().values()) > 100
