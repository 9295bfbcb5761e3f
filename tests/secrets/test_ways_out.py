"""Whatever a secret was sent to, none comes out again: not in logs, exports, streams, pages or errors."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from tests.secrets.corpus import SECRETS
from tests.served import KEYS, PEOPLE, Served, running

pytestmark = pytest.mark.served

TOKEN, WORD = SECRETS["github"], "canary-" + SECRETS["word"]
STRANGER = "sbx_" + "nobodyskey" * 4
PASSWORD = "wrong-" + WORD


@pytest.fixture(scope="module")
def served(served_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("ways-out") / "server"
    with running(
        served_template,
        folder,
        SIGNALBOX_LOG_LEVEL="DEBUG",
        SIGNALBOX_ACCESS_LOG="all",
        SIGNALBOX_LOG_FORMAT="json",
    ) as server:
        yield server


def told_by_a_stream(served: Served, session_id: str, event: dict[str, Any]) -> str:
    """Return what a stream tells of an event that is posted while it is open."""
    told: list[str] = []
    with served.client().stream("GET", f"/sse/sessions?session_id={session_id}") as stream:
        lines = stream.iter_lines()
        next(lines)  # it is open
        post = threading.Thread(
            target=lambda: served.client().post(f"/sessions/{session_id}/events", json=event)
        )
        post.start()
        for line in lines:
            told.append(line)
            if "marker-of-the-end" in line:
                break
        post.join()
    return "\n".join(told)


def test_a_secret_in_an_event_is_in_no_export_stream_or_page(served: Served) -> None:
    machine = served.client()
    session_id = machine.post("/runs", json={"type": "start_session", "prompt": "x"}).json()["session_id"]
    command = f"curl -H 'Authorization: Bearer {TOKEN}' -d password={WORD} # marker-of-the-end"
    event = {
        "event_type": "pre_tool",
        "session_id": session_id,
        "timestamp": "2026-01-01T00:00:00Z",
        "tool_name": "Bash",
        "tool_input": {"command": command},
    }
    told = {"stream": told_by_a_stream(served, session_id, event)}
    admin = served.sign_in("admin")
    event_id = served.sql("SELECT max(id) FROM events")[0][0]
    for place in (
        f"/ui/sessions/{session_id}/",
        f"/ui/sessions/{session_id}/-/export.ndjson",
        f"/ui/sessions/{session_id}/-/export.md",
        f"/ui/sessions/{session_id}/-/print/",
        "/ui/search/?q=curl",
        "/ui/audit/",
        f"/admin/coordinator/event/{event_id}/change/",
    ):
        answer = admin.get(place)
        assert answer.status_code == 200, place
        told[place] = answer.text
    told["api"] = machine.get(f"/sessions/{session_id}/events").text
    assert [place for place, text in told.items() if TOKEN in text or WORD in text] == []
    whole = [f"/ui/sessions/{session_id}/", f"/ui/sessions/{session_id}/-/export.ndjson", "stream", "api"]
    assert [place for place in whole if "marker-of-the-end" not in told[place]] == []  # or it was never told


def test_what_is_refused_is_neither_logged_nor_audited_nor_shown(served: Served) -> None:
    machine = served.client(key=None)
    refused = [
        machine.get("/sessions", headers={"Authorization": f"Bearer {STRANGER}"}),
        machine.get("/sessions", headers={"X-API-Key": STRANGER}),
        machine.post("/hooks/claude-code", content=b"{", headers={"Authorization": f"Bearer {STRANGER}"}),
        machine.get(f"/sse/sessions?api_key={STRANGER}"),
        machine.get(f"/ui/sessions/?api_key={STRANGER}&token={WORD}"),
        machine.get(f"/ui/setup/?token={WORD}"),
        machine.post(
            "/ui/sign-in/", data={"username": "admin", "password": PASSWORD}
        ),  # without the page's token
        machine.get("/nothing/", headers={"Authorization": f"Bearer {KEYS['all']}", "Cookie": f"x={WORD}"}),
        machine.post("/runs", content=b"\xff\x00", headers={"Authorization": f"Bearer {KEYS['all']}"}),
    ]
    refused.append(sign_in_badly(served))
    assert all(answer.status_code in {302, 400, 401, 403, 404, 409, 422, 429} for answer in refused), refused
    canaries = (STRANGER, WORD, PASSWORD, KEYS["all"], PEOPLE["admin"])
    shown = [str(answer.url) for answer in refused if any(one in answer.text for one in canaries)]
    assert shown == []
    kept = repr(served.sql("SELECT * FROM audit_logs")) + served.output()
    assert [one for one in canaries if one in kept] == []
    assert '"request_id"' in served.output()  # the log is there at all


def sign_in_badly(served: Served) -> httpx.Response:
    """Try a wrong password on the real form."""
    client = served.client(key=None)
    client.get("/ui/sign-in/")
    form = {
        "username": "admin",
        "password": PASSWORD,
        "csrfmiddlewaretoken": client.cookies["signalbox_csrf"],
    }
    return client.post("/ui/sign-in/", data=form, headers={"Referer": served.url})
