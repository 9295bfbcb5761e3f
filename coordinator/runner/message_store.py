"""Tokens of a turn of OpenCode, or of a fork of it: its answer counts the last step alone, its database each one."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from coordinator.runner.startable import StartableAgent

WRITER_WAIT_SECONDS = 2.0  # for OpenCode, which writes there
MOST_MESSAGES, LONGEST_MESSAGE = 20_000, 1 << 20  # characters of a message without its parts
EXACT_BELOW = 2**53
# The messages since a moment, of a conversation and of those that its subagents had.
_MESSAGES = """WITH RECURSIVE family(id) AS (
    SELECT ? UNION SELECT s.id FROM session s JOIN family f ON s.parent_id = f.id
) SELECT m.data FROM message m JOIN family f ON m.session_id = f.id
WHERE m.time_created >= ? AND length(m.data) <= ? LIMIT ?"""


def agent_database_path_or_empty(agent: StartableAgent, environ: Mapping[str, str]) -> str:
    """Return the path of the database in which the agent keeps its messages; "" for agents without one."""
    if not agent.store:
        return ""
    home = environ.get("XDG_DATA_HOME") or os.path.join(environ.get("HOME", ""), ".local", "share")
    path = os.path.join(home, agent.store)
    return os.path.join(os.path.dirname(path), environ.get("OPENCODE_DB") or path)


def copy_turn_result_with_usage(
    ended: dict[str, Any], path: str, conversation: str, since_ms: int
) -> dict[str, Any]:
    """Return how a turn ended with the tokens of all its steps, by model; as it is where they cannot be read.

    Args:
        ended: The agent's answer to the prompt.
        path: The agent's database.
        conversation: The agent's id of the conversation.
        since_ms: When the turn began, in milliseconds since the epoch.

    """
    by_model: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for message in load_agent_messages(path, conversation, since_ms):
        counts = message_token_counts(message)
        for name, count in counts.items():
            by_model[str(message.get("modelID") or "")][name] += count
    if not by_model:
        return ended
    used = [{"model": model, "token_count": dict(counts)} for model, counts in by_model.items()]
    meta = ended.get("_meta")
    return {**ended, "_meta": {**(meta if isinstance(meta, dict) else {}), "quota": {"model_usage": used}}}


def load_agent_messages(path: str, conversation: str, since_ms: int) -> list[dict[str, Any]]:
    """Return the agent's messages since then; none where the database cannot be read."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=WRITER_WAIT_SECONDS)
        ) as db:
            rows = db.execute(_MESSAGES, (conversation, since_ms, LONGEST_MESSAGE, MOST_MESSAGES)).fetchall()
    except sqlite3.Error:
        return []
    messages = []
    for (data,) in rows:
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            message = json.loads(data)
            if isinstance(message, dict) and message.get("role") == "assistant":
                messages.append(message)
    return messages


def message_token_counts(message: Mapping[str, Any]) -> dict[str, int]:
    """Return a message's tokens, by the names that the protocol has for them; thoughts are output."""
    tokens = message.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    cache = tokens.get("cache")
    cache = cache if isinstance(cache, dict) else {}
    counts = {
        "inputTokens": message_token_count_or_zero(tokens.get("input")),
        "outputTokens": message_token_count_or_zero(tokens.get("output"))
        + message_token_count_or_zero(tokens.get("reasoning")),
        "cachedReadTokens": message_token_count_or_zero(cache.get("read")),
        "cachedWriteTokens": message_token_count_or_zero(cache.get("write")),
    }
    return counts if any(counts.values()) else {}


def message_token_count_or_zero(value: Any) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < EXACT_BELOW
    return value if is_count else 0
