"""`signalbox mcp-ask` answers each question under an id of its own."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from coordinator.client import mcp_ask
from tests.patience import PATIENCE, until

pytestmark = pytest.mark.one_engine


def test_a_second_question_under_an_open_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    decided, written = threading.Event(), list[dict[str, Any]]()

    def answer(question: mcp_ask.OpenQuestion) -> dict[str, Any]:
        decided.wait(PATIENCE)
        return {"behavior": "allow", "updatedInput": question._question["input"]}

    monkeypatch.setattr(mcp_ask.OpenQuestion, "wait_for_permission_answer", answer)
    monkeypatch.setattr(
        mcp_ask.QuestionServer, "_write_message", lambda _server, message: written.append(message)
    )
    server = mcp_ask.QuestionServer()
    for command in ("ls", "rm -rf ~"):
        asked = {"tool_name": "Bash", "input": {"command": command}}
        params = {"name": mcp_ask.TOOL, "arguments": asked}
        server.handle_and_answer_mcp_message(
            json.dumps({"id": 1, "method": "tools/call", "params": params}).encode()
        )
    assert "error" in written[0]
    decided.set()
    until(lambda: len(written) == 2)
    assert "rm -rf" not in str(written)
