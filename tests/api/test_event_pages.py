"""Pages of a session's events say whether there is more and where it goes on; requests are listed to who reads all."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.people import keys
from coordinator.api import permission_requests
from coordinator.identity.actors import key_actor_by_name, system_actor
from coordinator.models import fields
from coordinator.policy.requests.approvals import PermissionSubject
from tests.unbound import accept_unbound_keys
from tests.wire.test_defects import Api, send

pytestmark = pytest.mark.django_db


@pytest.fixture
def api() -> Api:
    return Api()


def pages(api: Api, path: str, word: str) -> list[list[str]]:
    """Follow the pages to their end; return the events' reasons, page by page."""
    seen: list[list[str]] = []
    at = ""
    while True:
        page = api("GET", f"{path}&{at}")
        seen.append([event["reason"] for event in page["events"]])
        assert page["has_more"] == (page[f"next_{word}"] is not None)
        if not page["has_more"]:
            return seen
        at = f"{word}={page[f'next_{word}']}"


def test_following_the_pages_reaches_every_event_once(api: Api) -> None:
    session_id = api.start()["session_id"]
    send(session_id, *["2026-01-06T10:00:00+00:00"] * 7)
    path = f"/sessions/{session_id}/events?limit=3"
    assert pages(api, path, "after") == [["0", "1", "2"], ["3", "4", "5"], ["6"]]
    last = api("GET", f"/sessions/{session_id}/events?limit=7")
    assert (last["has_more"], last["next_after"], last["next_before"]) == (False, None, None)
    end = last["events"][-1]["id"]
    back = api("GET", f"{path}&before={end}")
    assert [event["reason"] for event in back["events"]] == ["3", "4", "5"]
    assert (back["has_more"], back["next_after"]) == (True, None)
    further = api("GET", f"{path}&before={back['next_before']}")
    assert ([event["reason"] for event in further["events"]], further["has_more"]) == (["0", "1", "2"], False)


def ask(number: int) -> str:
    subject = PermissionSubject("p", "NetworkAccess", f"https://{number}.example")
    wanted = approvals.NewPermissionRequest(subject=subject, justification="why")
    return approvals.request_permission(
        wanted, actor=key_actor_by_name("asker"), now=timezone.now()
    ).request.request_id


def client(scope: str) -> Client:
    accept_unbound_keys()
    _, raw = keys.issue_api_key(
        name=f"of-{scope}", scopes=[scope], actor=system_actor("tests"), now=timezone.now()
    )
    return Client(headers={"Authorization": f"Bearer {raw}"})


def listed(client: Client, query: str = "") -> dict[str, Any]:
    answer = client.get(f"/api/permission-requests{query}")
    assert answer.status_code == 200, answer.content
    told: dict[str, Any] = answer.json()
    return told


def test_a_program_that_reads_lists_requests_page_by_page() -> None:
    made = [ask(number) for number in range(3)]
    reader = client("read")
    first = listed(reader, "?limit=2")
    assert [one["request_id"] for one in first["requests"]] == [made[2], made[1]]
    rest = listed(reader, f"?limit=2&cursor={first['next_cursor']}")
    assert ([one["request_id"] for one in rest["requests"]], "next_cursor" in rest) == ([made[0]], False)
    assert len(listed(reader, "?status=pending")["requests"]) == 3
    assert listed(reader, "?status=approved") == {"requests": []}
    assert reader.get("/api/permission-requests?cursor=none").status_code == 400


def test_a_page_of_large_requests_ends_early_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission_requests, "PAGE_CHARACTERS", 25_000)
    decoded: list[int] = []
    decode = fields.decode_stored_json
    monkeypatch.setattr(
        fields, "decode_stored_json", lambda text: (decoded.append(len(text)), decode(text))[1]
    )
    made = []
    for number, length in enumerate((10_000, 1_000, 60_000, 10_000)):
        subject = PermissionSubject("p", "ToolCall", None, "write", {"text": "x" * length, "number": number})
        wanted = approvals.NewPermissionRequest(subject=subject, justification="why")
        made.append(
            approvals.request_permission(
                wanted, actor=key_actor_by_name("asker"), now=timezone.now()
            ).request.request_id
        )
    reader, cursor, seen = client("read"), "", []
    while True:
        decoded.clear()
        page = listed(reader, f"?limit=500{cursor}")
        seen.append([one["request_id"] for one in page["requests"]])
        assert sum(decoded) <= 70_000
        if "next_cursor" not in page:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == [[made[3]], [made[2]], [made[1], made[0]]]


def test_agents_do_not_list_what_others_ask_for() -> None:
    assert client("agent").get("/api/permission-requests").status_code == 403
    assert client("runner").get("/api/permission-requests").status_code == 403


def test_the_document_says_what_a_poll_answers(client: Client) -> None:
    document = client.get("/api/openapi.json").json()
    poll = document["paths"]["/runner/runs"]["get"]["responses"]["200"]["content"]["application/json"][
        "schema"
    ]
    assert set(poll["properties"]) == {"run", "stop_runs", "stop_sessions", "deregistered"}
    for part in (
        poll["properties"]["run"]["allOf"][0],
        poll["properties"]["run"]["properties"]["resolved_agent_blueprint"]["anyOf"][0],
    ):
        assert part["$ref"].rpartition("/")[2] in document["components"]["schemas"]
