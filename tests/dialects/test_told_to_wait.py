"""A call that nobody answered in time, of every agent: denied with a number, approved later, then run, once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coordinator.lib import instants
from tests.claude_code.test_deciding import rules
from tests.dialects.test_documented import HELD, SHELLS, Documented
from tests.served import Served

pytestmark = pytest.mark.served
# Of each agent the name of its shell, its hook about a call, and what it is answered where the call may run.
AGENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "codex": ("Bash", "PreToolUse", {}),
    "gemini": ("run_shell_command", "BeforeTool", {"decision": "allow"}),
    "opencode": ("bash", "tool.execute.before", {"decision": "allow"}),
    "kilo": ("bash", "tool.execute.before", {"decision": "allow"}),
    "copilot": ("Bash", "PreToolUse", {"permissionDecision": "allow"}),
    "qwen-code": ("run_shell_command", "PreToolUse", {}),
    **{name: (SHELLS[name], HELD[name][0], HELD[name][1]) for name in HELD},
}


class Caller(Documented):
    """A session that calls its shell, each time as a new call."""

    calls_made = 0

    def call(self) -> dict[str, Any]:
        """Call, and return what the agent is answered when nobody decides at once."""
        self.calls_made += 1
        at = instants.format_canonical_instant(datetime.now(UTC) + timedelta(seconds=self.calls_made))
        call_id = f"call_{self.calls_made}"
        if self.name in HELD:
            hook = self.hooks(HELD[self.name][0])
        else:
            hook = {"session_id": self.session, "cwd": "/home/dev/project", "tool_use_id": call_id}
            hook |= {"hook_event_name": AGENTS[self.name][1], "timestamp": at}
            hook |= {"tool_name": AGENTS[self.name][0], "tool_input": {"command": "ls -la"}}
        ids = {"timestamp": at, "tool_call_id": call_id, "tool_use_id": call_id, "generation_id": call_id}
        return self.post(hook | {name: value for name, value in ids.items() if name in hook}, wait=0.2)


@pytest.mark.parametrize("name", AGENTS)
def test_it_is_denied_with_a_number_and_runs_once_after_the_approval(served: Served, name: str) -> None:
    shell, _, allowed = AGENTS[name]
    rules(served, {"tool": shell, "pattern": "ls -la", "verdict": "ask", "deny_at_deadline": True})
    agent = Caller(served, name)
    denied = agent.call()
    request_id = agent.pending()
    assert f"request {request_id}, " in json.dumps(denied)
    agent.decide(request_id, "approved")
    answer = agent.call()
    assert answer.items() >= allowed.items()
    assert "deny" not in json.dumps(answer)
    if name != "cursor":  # which tells a call of its shell by no id and no time
        assert "So this call did not run" in json.dumps(agent.call())
