"""What OpenCode 1.18.33 told a plugin, as recorded, posted to the served program: heard, held and answered."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.claude_code.test_deciding import rules
from tests.dialects import opencode as plugin
from tests.dialects.agent import Agent
from tests.served import Served

pytestmark = pytest.mark.served

# What the second recorded session comes to, however its hooks arrive: the recording breaks off in its third call.
STORY = [
    ("message", None, "assistant"),
    ("message", None, "assistant"),
    ("message", None, "user"),
    ("model_request", None, None),
    ("model_request", None, None),
    ("permission_request", "bash", None),
    ("post_tool", "bash", None),
    ("post_tool", "invalid", None),
    ("pre_tool", "bash", None),
    ("pre_tool", "bash", None),
    ("pre_tool", "invalid", None),
    ("session_start", None, None),
]


class OpenCode(Agent):
    name = "opencode"

    def recorded(self, name: str = "", number: int = 0, session: str = plugin.RAN) -> Any:
        """Return the hooks of a recorded session as of this one, or one of them."""
        found = [
            hook | {"session_id": self.session} for hook in plugin.posted() if hook["session_id"] == session
        ]
        return [hook for hook in found if hook["hook_event_name"] == name][number] if name else found


@pytest.fixture
def opencode(served: Served) -> OpenCode:
    return OpenCode(served)


@pytest.mark.parametrize("seed", range(4))
def test_what_it_tells_makes_one_session_in_any_order_and_posted_twice(opencode: OpenCode, seed: int) -> None:
    told = opencode.recorded() * 2
    if seed:
        random.Random(seed).shuffle(told)
    assert [opencode.post(hook) for hook in told] == [{}] * len(told)
    assert sorted(opencode.told("e.event_type, e.tool_name, e.role"), key=str) == STORY
    assert opencode.calls() == (2, 0, 1)


def test_a_call_that_its_own_person_refused_has_failed_and_its_turn_ended(opencode: OpenCode) -> None:
    for hook in opencode.recorded(session=plugin.DENIED):
        opencode.post(hook)
    assert opencode.calls() == (1, 1, 0)
    assert "The user rejected permission" in opencode.page()
    kinds = [kind for (kind,) in opencode.told("e.event_type")]
    assert kinds.count("turn_end") == 1


def test_its_tokens_count_once_a_message(opencode: OpenCode) -> None:
    for hook in opencode.recorded() * 2:
        opencode.post(hook)
    counted = [row for row in opencode.told("c.model, c.input_tokens, c.output_tokens") if row[0]]
    assert [row for row in counted if row[1] is not None] == [("gpt-x", 1200, 40)] * 2


def test_a_call_that_a_rule_wants_asked_runs_when_approved_or_as_it_was_edited(opencode: OpenCode) -> None:
    rules(opencode.served, {"tool": "bash", "pattern": "git push", "verdict": "ask"})
    hook = opencode.recorded("tool.execute.before", 2)
    assert opencode.held(hook, "approved") == {"decision": "allow"}
    again = hook | {"tool_use_id": "another", "timestamp": plugin.posted()[-1]["timestamp"]}
    answer = opencode.held(again, "approved", edited="git push --dry-run", edited_field="command")
    assert answer == {
        "decision": "allow",
        "args": {"command": "git push --dry-run", "description": "Push"},
    }


def test_a_call_that_a_rule_wants_asked_is_denied_by_a_person_or_by_silence(opencode: OpenCode) -> None:
    rules(opencode.served, {"tool": "bash", "pattern": "git push", "verdict": "ask"})
    hook = opencode.recorded("tool.execute.before", 2)
    answer = opencode.held(hook, "denied", reason="Not from here.")
    assert answer["decision"] == "deny"
    assert answer["reason"].endswith("in Signalbox: Not from here.")
    assert opencode.calls() == (1, 1, 0)
    silent = opencode.post(hook | {"tool_use_id": "another"}, wait=0.2)
    assert silent["decision"] == "deny"
    assert "Nobody answered in Signalbox" in silent["reason"]


def test_what_it_asks_its_person_is_answered_here(opencode: OpenCode) -> None:
    asked = opencode.recorded("permission.asked")
    opencode.post(opencode.recorded("tool.execute.before"))
    assert opencode.held(asked, "approved") == {"decision": "allow"}
    assert opencode.post(asked | {"tool_use_id": "another"}, wait=0) == {}


def test_the_plugin_is_there_for_whoever_asks_and_names_those_there_are(served: Served) -> None:
    http = served.client(None)
    script = http.get("/hooks/opencode/plugin.js")
    assert (script.status_code, script.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert "export const SignalboxPlugin" in script.text
    missing = http.get("/hooks/hal-9000/plugin.js")
    assert (missing.status_code, "opencode" in missing.json()["detail"]) == (404, True)
