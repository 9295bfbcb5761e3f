"""Texts and files that stopped the served program: its pages go on answering while somebody opens them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.served import Served

pytestmark = pytest.mark.served
ENDLESS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 600 40\n%%EndComments\n{1 pop} loop\nshowpage\n%%EOF\n"
)
PATIENCE = 60.0  # seconds, on a machine that does much else; the bombs took minutes, or for ever
THREAD = "/ui/chat/with/agent.cloto_default/"


def opened_by_many(person: httpx.Client, path: str) -> list[int]:
    """Open a page eight times at once, more often than there are threads, and return the answers' statuses."""

    def open_it(_number: int) -> int:
        return person.get(path, timeout=PATIENCE).status_code

    with ThreadPoolExecutor(8) as many:
        return list(many.map(open_it, range(8)))


def test_an_edit_that_is_slow_to_compare_stops_no_page(one_server: Served) -> None:
    bomb = {"file_path": "/x/a.txt", "old_string": "a\n" * 990, "new_string": "a\nb\n" * 495}
    asked: dict[str, Any] = {"plugin_id": "claude-code", "permission_type": "ToolCall", "tool_name": "Edit"}
    with one_server.client("agent") as agent:
        for number in range(4):
            given = bomb | {"new_string": bomb["new_string"] + f"c{number}"}
            answer = agent.post(
                "/api/permission-requests", json=asked | {"tool_input": given, "justification": "j"}
            )
            assert answer.status_code == 201, answer.text
    with closing(one_server.sign_in("viewer")) as viewer:
        assert opened_by_many(viewer, "/ui/approvals/") == [200] * 8
        assert viewer.get("/health/ready").status_code == 200


def test_code_that_is_slow_to_colour_stops_no_page(one_server: Served) -> None:
    fences = [f"```autoit\nx = {number}" + "\n" * 6_000 + "y\n```\n" for number in range(6)]
    with one_server.client("agent") as agent:
        for text in fences:
            message = {"content": [{"type": "text", "text": text}]}
            assert agent.post("/api/chat/agent.cloto_default/messages", json=message).status_code == 200
    with closing(one_server.sign_in("viewer")) as viewer:
        assert opened_by_many(viewer, THREAD) == [200] * 8
        assert viewer.get("/health/ready").status_code == 200


def test_postscript_that_never_ends_stops_no_page(one_server: Served) -> None:
    with one_server.client("agent") as agent:
        for number in range(8):
            files = {"files": (f"{number}.png", ENDLESS, "image/png")}
            sent = agent.post("/api/chat/agent.cloto_default/messages", data={"text": "x"}, files=files)
            assert sent.status_code == 200, sent.text
    rows = one_server.sql("SELECT id FROM chat_attachments")
    with closing(one_server.sign_in("viewer")) as viewer:
        for (attachment_id,) in rows:
            assert viewer.get(f"/ui/chat/files/{attachment_id}/thumbnail/").status_code == 404
        assert opened_by_many(viewer, THREAD) == [200] * 8
