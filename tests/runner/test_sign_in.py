"""An agent that nobody has signed in to says so in its own way; the run that fails says by which command to sign in.

Recorded (tests/data/acp_until_login) with Auggie 0.36.0, Cline 3.0.65, Factory Droid 0.215.0, Kimi Code 2.1.0, Mistral
Vibe 3.0.2 and Qoder CLI 1.1.52. That a run fails with these words is in test_runs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from acp.exceptions import RequestError

from coordinator.runner.process import LOGIN_NEEDED, describe_required_login
from coordinator.runner.startable import KNOWN, StartableAgent

RECORDED = Path(__file__).parents[1] / "data" / "acp_until_login"
BY_NAME = {known.name: known for known in KNOWN}


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.iterdir()))
def test_the_command_by_which_to_sign_in_is_named(name: str) -> None:
    known = BY_NAME[name]
    frames = [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]
    *_, refused = frames
    error = refused["message"]["error"]
    assert error["code"] == LOGIN_NEEDED
    agent = StartableAgent(known.name, known.title, ("x",), login=known.login)
    words = describe_required_login(agent, RequestError(error["code"], error["message"]))
    assert words.startswith(f"Sign in to {known.title} on the runner's machine first: run `{known.login}`")
    assert error["message"].rstrip(".") in words


def test_every_agent_that_is_known_has_such_a_command() -> None:
    assert [known.name for known in KNOWN if not known.login] == []
