"""What Goose says at the end of two turns."""

from __future__ import annotations

import uuid

import pytest

from tests.dialects.test_unreadable import body_of
from tests.served import Served


@pytest.mark.served
def test_the_same_words_at_the_end_of_two_turns_are_two_messages(one_server: Served) -> None:
    session = str(uuid.uuid4())
    client = one_server.client("agent")
    for number in range(2):
        for event, more in (
            ("UserPromptSubmit", {"message": f"Do step {number}."}),
            ("Stop", {"last_assistant_message": "All done."}),
        ):
            body = body_of({"event": event, "session_id": session, **more})
            headers = {"X-Signalbox-Hook-Id": uuid.uuid4().hex}
            assert client.post("/hooks/goose", content=body, headers=headers).status_code == 200
    roles = one_server.sql(
        "SELECT e.role FROM events e JOIN sessions s ON s.session_id = e.session_id"
        " WHERE s.executor_session_id = ? AND e.event_type = 'message' ORDER BY e.id",
        (session,),
    )
    assert [role for (role,) in roles] == ["user", "assistant", "user", "assistant"]
