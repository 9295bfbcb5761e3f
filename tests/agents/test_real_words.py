"""All that Codex and Gemini CLI say is there while they are watched, each text once and in its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents import programs
from tests.agents.scripted_models import USED
from tests.patience import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
AGENTS = ("codex", "gemini")


@pytest.fixture(scope="module", autouse=True)
def agents() -> None:
    programs.needed(*AGENTS)


def said(served: Served, agent: str) -> list[str]:
    """Return what the agent said and called, in order."""
    rows = served.sql(
        "SELECT e.event_type, e.role, e.content FROM events e JOIN event_context c ON c.event_id = e.id"
        " JOIN sessions s ON s.session_id = e.session_id WHERE s.executor_profile = ?"
        " ORDER BY c.instant_us, e.id",
        (agent,),
    )
    found = []
    for kind, role, content in rows:
        if kind == "pre_tool":
            found.append("call")
        elif kind == "message" and role == "assistant":
            found += [block["text"] for block in json.loads(content) if block["type"] == "text"]
    return found


def test_texts_between_calls_are_told_once_each_in_their_place(
    served: Served, homes: Any, start: Any, subtests: Any
) -> None:
    connected = {name: homes(served, only=name)[name] for name in AGENTS}
    for home in connected.values():
        home.script.says = "Now step #."
    runs = start(connected, "touch one", "touch two")
    story = ["Now step 0.", "call", "Now step 1.", "call", "Done."]
    for name, run in runs.items():
        with subtests.test(agent=name):
            run.ended()
            until(
                lambda name=name: len(said(served, name)) >= len(story), lambda name=name: said(served, name)
            )
            assert said(served, name) == story


def test_the_tokens_of_each_request_are_told_once(served: Served, homes: Any, start: Any) -> None:
    (run,) = start(homes(served, only="gemini"), "touch one").values()
    run.ended()
    told = (
        "SELECT c.input_tokens, c.output_tokens FROM event_context c JOIN sessions s ON s.session_id = c.session_id"
        " JOIN events e ON e.id = c.event_id WHERE s.executor_profile = 'gemini' AND e.event_type = 'model_request'"
    )
    until(lambda: len(served.sql(told)) >= 2, lambda: served.sql(told))
    assert served.sql(told) == [(USED, USED)] * 2
