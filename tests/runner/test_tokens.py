"""What a turn took, as agents answer (tests/data/acp_usage), and as OpenCode's own database says it of every step."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from coordinator.dialects.acp import parse_turn_usage
from coordinator.runner.message_store import agent_database_path_or_empty, copy_turn_result_with_usage
from coordinator.runner.startable import StartableAgent
from tests.served import ROOT

ANSWERS = [
    json.loads(line) for line in (ROOT / "tests/data/acp_usage/answers.jsonl").read_text().splitlines()
]
# Tokens of the input, of the output, read from a cache, and written to it: no token in two of them.
TOOK = {
    "claude-agent-acp 0.100.0": (6000, 200, 1500, 500),
    "codex-acp 2.6.0": (2700, 120, 900, 0),
    "Copilot CLI 1.0.102": (2000, 100, 600, 0),
    "OpenCode 1.18.33": (1000, 50, 300, 0),
    "Qwen Code 0.24.4": (1000, 50, 300, 0),
}
KINDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
CONVERSATION, MODEL = "ses_dfcfc85bbffeuBFhuA51vbOZKA", "m"
LAST_STEP = {"stopReason": "end_turn", "usage": {"inputTokens": 603, "outputTokens": 23, "totalTokens": 1026}}
SECOND_STEP_MS = 1795346904406


@pytest.mark.parametrize("answer", ANSWERS, ids=[one["agent"] for one in ANSWERS])
def test_no_token_of_a_turn_counts_twice(answer: dict[str, object]) -> None:
    result = answer["result"]
    assert isinstance(result, dict)
    ((_, counts),) = parse_turn_usage(result).by_model
    assert tuple(counts.get(kind, 0) for kind in KINDS) == TOOK[str(answer["agent"])]
    total = result["usage"]["totalTokens"]
    assert sum(counts.values()) == total


@pytest.mark.parametrize(
    ("figures", "took"),
    [
        ({"inputTokens": 10, "outputTokens": 5, "thoughtTokens": 3, "totalTokens": 18}, (10, 8, 0, 0)),
        ({"inputTokens": 10, "outputTokens": 5, "thoughtTokens": 3, "totalTokens": 15}, (10, 5, 0, 0)),
        (
            {
                "inputTokens": 10,
                "outputTokens": 5,
                "thoughtTokens": 3,
                "cachedReadTokens": 4,
                "totalTokens": 22,
            },
            (10, 8, 4, 0),
        ),
        (
            {
                "inputTokens": 10,
                "outputTokens": 5,
                "thoughtTokens": 3,
                "cachedReadTokens": 4,
                "totalTokens": 18,
            },
            (6, 8, 4, 0),
        ),
        ({"inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 4}, (10, 5, 4, 0)),
    ],
)
def test_the_total_says_what_is_counted_within_what(figures: dict[str, int], took: tuple[int, ...]) -> None:
    ((_, counts),) = parse_turn_usage({"usage": figures}).by_model
    assert tuple(counts.get(kind, 0) for kind in KINDS) == took


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """OpenCode's database, as it was recorded."""
    path = tmp_path / "opencode" / "opencode.db"
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.executescript((ROOT / "tests/data/transcripts/opencode/opencode.sql").read_text())
    db.close()
    return path


def took(store: Path, since_ms: int) -> dict[str, int]:
    """Return the tokens of a turn that began then."""
    (used,) = parse_turn_usage(
        copy_turn_result_with_usage(LAST_STEP, str(store), CONVERSATION, since_ms)
    ).by_model
    model, counts = used
    assert model == MODEL
    return dict(counts)


def test_every_step_of_a_turn_counts_and_none_of_the_turn_before(store: Path) -> None:
    assert took(store, 0) == {
        "input_tokens": 600 + 601 + 602 + 603, "output_tokens": 20 + 21 + 22 + 23,
        "cache_read_tokens": 4 * 400, "cache_write_tokens": 0,
    }  # fmt: skip
    assert took(store, SECOND_STEP_MS)["input_tokens"] == 601 + 602 + 603


def test_what_its_subagents_took_counts_for_its_turn(store: Path) -> None:
    with sqlite3.connect(store) as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(session)")]
        row = dict(zip(columns, db.execute("SELECT * FROM session").fetchone(), strict=True))
        row |= {"id": "ses_child", "parent_id": CONVERSATION}
        if "slug" in row:
            row["slug"] = "child"
        marks = ", ".join("?" * len(row))
        db.execute(f"INSERT INTO session ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
        data = {"role": "assistant", "modelID": MODEL, "tokens": {"input": 7, "output": 2, "reasoning": 1}}
        db.execute(
            "INSERT INTO message (id, session_id, time_created, time_updated, data) VALUES (?, ?, ?, ?, ?)",
            ("msg_child", "ses_child", SECOND_STEP_MS, SECOND_STEP_MS, json.dumps(data)),
        )
    db.close()
    spent = took(store, SECOND_STEP_MS)
    assert (spent["input_tokens"], spent["output_tokens"]) == (601 + 602 + 603 + 7, 21 + 22 + 23 + 3)


@pytest.mark.parametrize("content", [b"", b"no database", None])
def test_where_the_database_cannot_be_read_the_agents_own_figure_stands(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "opencode.db"
    if content is not None:
        path.write_bytes(content)
    assert copy_turn_result_with_usage(LAST_STEP, str(path), CONVERSATION, 0) == LAST_STEP
    assert path.exists() == (content is not None)


def test_hostile_figures_count_as_none(store: Path) -> None:
    with sqlite3.connect(store) as db:
        for number, data in enumerate(
            (
                "[",
                "[]",
                '{"role": "assistant", "tokens": {"input": -1, "output": true, "cache": []}}',
                "[" * 9999,
            )
        ):
            db.execute(
                "INSERT INTO message (id, session_id, time_created, time_updated, data) VALUES (?, ?, ?, 0, ?)",
                (f"msg_{number}", CONVERSATION, 2**52, data),
            )
    db.close()
    assert copy_turn_result_with_usage(LAST_STEP, str(store), CONVERSATION, 2**52) == LAST_STEP


def test_the_database_lies_where_the_agent_is_told_that_it_does() -> None:
    agent = StartableAgent("opencode", "OpenCode", ("opencode", "acp"), store="opencode/opencode.db")
    assert agent_database_path_or_empty(agent, {"HOME": "/h"}) == "/h/.local/share/opencode/opencode.db"
    assert (
        agent_database_path_or_empty(agent, {"HOME": "/h", "XDG_DATA_HOME": "/d"})
        == "/d/opencode/opencode.db"
    )
    assert agent_database_path_or_empty(agent, {"HOME": "/h", "OPENCODE_DB": "/x.db"}) == "/x.db"
    assert (
        agent_database_path_or_empty(StartableAgent("gemini", "Gemini CLI", ("gemini",)), {"HOME": "/h"})
        == ""
    )
