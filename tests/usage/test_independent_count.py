"""The page's sums equal, to the token, a count that was written by itself: tests/usage/count_transcripts.py."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections import defaultdict
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import timezone

from coordinator.lib import instants
from coordinator.models import ModelRequestUsage, UsageDay
from coordinator.usage.reading import load_usage_by_column_values
from tests.people import signed_in
from tests.transcripts.recorded import copied, told_by_hooks, told_by_telemetry
from tests.usage.count_transcripts import COUNTERS, Counts, count_claude, count_codex
from tests.usage.generated_sessions import CLAUDE_SESSIONS, CODEX_SESSIONS, write_generated_sessions

pytestmark = pytest.mark.django_db

TESTS_DATA = Path(__file__).parents[1] / "data"
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def count_here() -> Counts:
    grouped = load_usage_by_column_values(ModelRequestUsage.objects.all(), "at_us", "model")
    return add_counts(
        *(
            {(f"{instants.instant_from_microseconds(at_us):%Y-%m-%d}", model): [
                usage.input, usage.output, usage.cache_read, usage.cache_write
            ]}
            for (at_us, model), usage in grouped.items()
        )
    )  # fmt: skip


def count_of_page(rows: list[dict[str, str]]) -> Counts:
    """Return what rows of the page's file say."""
    names = ("input", "output", "cache_read", "cache_write")
    return {(row["when"], row["name"]): [int(row[name]) for name in names] for row in rows}


def add_counts(*counts: Counts) -> Counts:
    sums: Counts = defaultdict(lambda: [0, 0, 0, 0])
    for one in counts:
        for key, tokens in one.items():
            sums[key] = [have + more for have, more in zip(sums[key], tokens, strict=True)]
    return dict(sums)


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


@pytest.mark.parametrize("program", ["codex", "gemini", "opencode", "kilo"])
def test_a_recorded_session_equals_an_independent_count(program: str, tmp_path: Path) -> None:
    place = copied(program, tmp_path)
    bring(program, place)
    assert count_here() == COUNTERS[program](place)
    assert sum(sum(counts) for counts in count_here().values()) > 40


def test_codex_s_fork_and_sub_agent_equal_an_independent_count() -> None:
    place = TESTS_DATA / "usage/codex_replay"
    bring("codex", place)
    assert count_here() == count_codex(place)
    assert sum(map(sum, count_codex(place).values())) == 3200 + 310 + 1000


def test_the_page_s_sums_of_200_sessions_equal_an_independent_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    claude, codex = write_generated_sessions(tmp_path, NOW)
    assert len(list(tmp_path.rglob("*.jsonl"))) == CLAUDE_SESSIONS + CODEX_SESSIONS == 200
    bring("claude-code", claude)
    bring("codex", codex)
    expected = add_counts(count_claude(claude), count_codex(codex))
    viewer = signed_in("viewer")
    answer = json.loads(b"".join(viewer.get("/ui/costs/json/?days=365&zone=UTC").streaming_content))
    assert count_of_page(answer["rows"]) == expected
    text = b"".join(viewer.get("/ui/costs/csv/?days=365&zone=UTC").streaming_content).decode()
    assert count_of_page(list(csv.DictReader(text.splitlines()))) == expected
    total = sum(sum(tokens) for tokens in expected.values())
    assert total > 50_000_000
    assert f"{total:,}" in viewer.get("/ui/costs/?days=365&zone=UTC").content.decode()
    before = (list(ModelRequestUsage.objects.values()), list(UsageDay.objects.values()))
    bring("claude-code", claude)
    bring("codex", codex)
    assert (list(ModelRequestUsage.objects.values()), list(UsageDay.objects.values())) == before


@pytest.mark.parametrize("program", ["codex", "gemini"])
def test_importing_what_was_watched_live_changes_no_sum(program: str, tmp_path: Path) -> None:
    told_by_hooks(program)
    told_by_telemetry(program)
    place = copied(program, tmp_path)
    before = count_here()
    if program == "codex":  # Gemini CLI's telemetry names other models than its chats
        assert before == count_codex(place)
    bring(program, place)
    assert count_here() == before
