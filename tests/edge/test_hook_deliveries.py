"""Hooks that a program beside an agent delivers: again under the same id, later, and waiting through a restart."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.claude_code.test_deciding import decide, rules
from tests.dialects.test_codex import Codex
from tests.served import Served

pytestmark = pytest.mark.served

HOLD = {"tool": "Bash", "pattern": "push", "verdict": "ask", "deny_at_deadline": True}
ASK = {"tool": "Bash", "pattern": "push", "verdict": "ask"}


class Delivered(Codex):
    """A session of Codex whose hooks the program beside it delivers."""

    def deliver(
        self, hook: dict[str, Any], *, sent_as: str = "", wait: float = 0, **more: Any
    ) -> httpx.Response:
        """Post a hook under an id, with more headers (`age`, `denied`)."""
        headers = {"X-Signalbox-Hook-Id": sent_as or uuid.uuid4().hex}
        headers |= {f"X-Signalbox-{name}": str(value) for name, value in more.items()}
        return self.http.post("/hooks/codex", params={"wait": wait}, json=hook, headers=headers)


def push(codex: Codex) -> dict[str, Any]:
    """Return a call that the rules above are about."""
    call = codex.recorded("PreToolUse")
    return call | {"tool_use_id": uuid.uuid4().hex, "tool_input": {"command": "git push"}}


def test_what_is_delivered_twice_is_written_once_however_much_later(served: Served) -> None:
    codex, sent_as = Delivered(served), uuid.uuid4().hex
    prompt = codex.recorded("UserPromptSubmit") | {"prompt": "Go."}
    codex.deliver(prompt, sent_as=sent_as)
    codex.deliver(prompt, sent_as=sent_as, age=1)
    codex.deliver(prompt, sent_as=uuid.uuid4().hex, age=3600)
    assert [kind for (kind,) in codex.told("event_type")] == ["message", "message"]


def test_what_is_told_late_bears_its_own_time_and_asks_nobody(served: Served) -> None:
    rules(served, HOLD)
    codex = Delivered(served)
    call = push(codex)
    answer = codex.deliver(call, age=7200, denied="Signalbox%20was%20away.", wait=30)
    assert (answer.status_code, answer.text) == (200, "")
    later = codex.deliver(push(codex), age=0.5)
    assert later.text == ""
    told = codex.told("event_type, e.timestamp, e.error")
    assert [(kind, error) for kind, _, error in told] == [
        ("pre_tool", None),
        ("post_tool", "Signalbox was away."),
        ("pre_tool", None),
    ]
    assert told[0][1] < told[2][1]
    assert served.sql("SELECT count(*) FROM permission_requests")[0][0] == 0


def test_who_is_known_is_told_which_tools_are_held(served: Served) -> None:
    rules(served, {"tool": "Read", "verdict": "allow"}, HOLD)
    codex = Delivered(served)
    told = codex.deliver(codex.recorded("UserPromptSubmit")).headers["x-signalbox-held"]
    assert json.loads(told) == [["free", "Read"], ["hold", "Bash"]]
    plain = codex.http.post("/hooks/codex", json=codex.recorded("Stop"))
    assert plain.headers["x-signalbox-held"] == told
    stranger = httpx.post(f"{served.url}/hooks/codex", json=codex.recorded("Stop"), verify=False)
    assert "x-signalbox-held" not in stranger.headers


@pytest.mark.parametrize(("rule", "holds"), [(HOLD, "yes"), (ASK, "ask")])
def test_a_line_that_waits_gives_signs_of_life_before_the_verdict(
    served: Served, rule: dict[str, Any], holds: str
) -> None:
    rules(served, rule)
    codex, approver = Delivered(served), served.sign_in("approver")
    headers = {"X-Signalbox-Hook-Id": uuid.uuid4().hex}
    with codex.http.stream("POST", "/hooks/codex?wait=30", json=push(codex), headers=headers) as answer:
        assert answer.headers["x-signalbox-holds-this"] == holds
        assert json.loads(answer.headers["x-signalbox-held"])[:1] == (
            [["hold", "Bash"]] if holds == "yes" else []
        )
        parts = answer.iter_text()
        assert next(parts) == " "
        decide(approver, codex.pending(), "denied", reason="Not today.")
        said = json.loads("".join(parts))
    assert "Not today." in said["hookSpecificOutput"]["permissionDecisionReason"]


def test_a_held_call_finds_its_question_again_after_a_restart(serve: Callable[..., Served]) -> None:
    served = serve(workers=1)
    rules(served, HOLD)
    codex, sent_as = Delivered(served), uuid.uuid4().hex
    call = push(codex)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(codex.deliver, call, sent_as=sent_as, wait=60)
        asked = codex.pending()
        served.stop()
        told = waiting.result()
        assert (told.status_code if told.status_code != 200 else told.json()["signalbox"]["status"]) == 503
        served.start()
        again = pool.submit(codex.deliver, call, sent_as=sent_as, wait=60)
        assert codex.pending() == asked
        decide(served.sign_in("approver"), asked, "denied", reason="No.")
        assert "No." in again.result().text
    assert served.sql("SELECT count(*) FROM permission_requests")[0][0] == 1
