"""What the real agents said (tests/data/acp), as a runner tells it: numbered updates, and the questions among them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parents[1] / "data" / "acp"
AGENTS = ("claude", "codex", "codex-workspace-write", "gemini", "opencode")
BEGAN = datetime.now(UTC).replace(hour=11, minute=0, second=0, microsecond=0)

# How a runner registers that drives agents.
PERSISTENT = {"type": "autonomous", "command": "signalbox runner", "lifecycle": "persistent"}
OFFERS: dict[str, Any] = {
    "agents": [{"name": name, "title": name.title()} for name in ("claude", "codex", "gemini", "opencode")],
    "directories": ["/home/dev"],
    "at_once": 20,
}


@dataclass(frozen=True)
class Recording:
    """One recorded session: what its agent is called, what its runner tells, and what its agent asked."""

    agent: str
    updates: list[dict[str, Any]]
    questions: list[dict[str, Any]]


def recording(name: str, *, run_id: str = "run_1") -> Recording:
    """Return a recording as its runner would tell it."""
    told, questions = list[dict[str, Any]](), list[dict[str, Any]]()
    sent: dict[int, str] = {}
    for line in (RECORDED / f"{name}.jsonl").open():
        entry = json.loads(line)
        message, mine = entry["message"], entry["from"] == "client"
        method = message.get("method")
        if mine and method:
            sent[message["id"]] = method
        if mine and method == "session/prompt":
            told.append(
                {
                    "sessionUpdate": "signalbox/turn_started",
                    "runId": run_id,
                    "prompt": message["params"]["prompt"],
                }
            )
        elif method == "session/update":
            told.append(message["params"]["update"])
        elif method == "session/request_permission":
            questions.append({**message["params"], "after": len(told)})
        elif method:
            if not mine:
                told.append({"sessionUpdate": "signalbox/unknown", "message": message})
        elif not mine and "result" in message:
            told += _of_answer(sent[message["id"]], message["result"], name.partition("-")[0], run_id)
    return Recording(name.partition("-")[0], [*numbered(told)], questions)


def _of_answer(method: str, result: dict[str, Any], agent: str, run_id: str) -> list[dict[str, Any]]:
    if method == "initialize":
        about = {name: result[name] for name in ("agentInfo", "agentCapabilities")}
        return [{"sessionUpdate": "signalbox/agent", "agent": agent, **about}]
    if method == "session/new":
        named: dict[str, Any] = {
            name: result[name] for name in ("modes", "models", "configOptions") if name in result
        }
        return [{"sessionUpdate": "signalbox/agent", "agentSessionId": result["sessionId"], **named}]
    if method == "session/prompt":
        return [{"sessionUpdate": "signalbox/turn_ended", "runId": run_id, **result}]
    return []


def numbered(updates: list[dict[str, Any]], first: int = 1) -> Iterator[dict[str, Any]]:
    """Yield updates as the runner posts them, 10 ms apart."""
    for n, update in enumerate(updates, first):
        at = BEGAN + timedelta(milliseconds=10 * n)
        yield {"n": n, "at": at.isoformat(), "update": update}
