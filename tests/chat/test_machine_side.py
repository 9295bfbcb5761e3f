"""Chats over HTTP: status codes as recorded, and every key in its own place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions.agents import agents
from coordinator.actions.people import keys
from coordinator.actions.policy import agent_power
from coordinator.identity.actors import system_actor
from coordinator.models import AuditLog, ChatAttachment, ChatMessage
from tests.chat.rows import ANNA, NOW, add_agent, add_messages, case, png, say, text, upload
from tests.unbound import accept_unbound_keys

pytestmark = pytest.mark.django_db
THREAD = "/api/chat/agent.robot/messages"


@pytest.fixture(autouse=True)
def folder(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    add_agent()
    return tmp_path


def client(*scopes: str, agent_id: str | None = None) -> Client:
    accept_unbound_keys()
    _, raw = keys.issue_api_key(
        name=f"k-{agent_id}-{'-'.join(scopes)}",
        scopes=scopes or ("operator",),
        agent_id=agent_id,
        actor=system_actor("tests"),
        now=timezone.now(),
    )
    return Client(headers={"authorization": f"Bearer {raw}"})


def post(body: Any, path: str = THREAD, by: Client | None = None) -> Any:
    return (by or client()).post(path, json.dumps(body), content_type="application/json")


def test_cm_1_a_message_is_answered_with_its_id_and_instant():
    asked = case("chat_post", "cm-1")
    answer = post({"source": asked["source"], "content": asked["content"]})
    assert answer.status_code == asked["http"]
    assert set(answer.json()) == {"id", "created_at"}
    assert ChatMessage.objects.get().user_id == "key:k-None-"


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("cm-2", {"source": "bot", "content": text("x")}),
        ("cm-3", {"content": "hi"}),
        ("cm-5", {"content": text("x") * 21}),
    ],
)
def test_what_is_no_message_is_400_as_recorded(name, body):
    assert post(body).status_code == case("chat_post", name)["http"]


def test_cm_6_a_taken_id_is_409():
    by = client()
    post({"id": "m", "content": text("x")}, by=by)
    assert (
        post({"id": "m", "content": text("x")}, by=by).status_code
        == case("chat_post", "cm-6")["expected_http"]
    )


def test_cm_7_an_unknown_agent_is_404():
    answer = post({"content": text("x")}, "/api/chat/agent.nobody/messages")
    assert answer.status_code == case("chat_post", "cm-7")["expected_http"]


@pytest.mark.parametrize("source", ["agent", "system"])
def test_cm_9_nobody_speaks_as_somebody_else(source):
    assert post({"source": source, "content": text("x")}).status_code == 403
    assert not ChatMessage.objects.exists()


def test_cm_10_an_id_that_climbs_is_refused():
    assert post({"id": "../../x", "content": text("x")}).status_code == 400


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"id": 3, "content": []}', b"\xff"])
def test_a_body_that_is_none_is_400(body):
    assert client().post(THREAD, body, content_type="application/json").status_code == 400


def test_an_agents_key_speaks_as_the_agent_in_its_own_thread_alone():
    add_agent("agent.other")
    by = client("agent", agent_id="agent.robot")
    assert post({"content": text("hello"), "user_id": "anna"}, by=by).status_code == 200
    message = ChatMessage.objects.get()
    assert (message.source, message.user_id) == ("agent", "anna")
    assert post({"content": text("x")}, "/api/chat/agent.other/messages", by=by).status_code == 403
    assert by.get("/api/chat/agent.other/messages").status_code == 403


def test_a_reading_key_says_nothing():
    assert post({"content": text("x")}, by=client("read")).status_code == 403


def test_pages_walk_through_the_thread_both_ways():
    add_messages(120)
    by = client("read")
    newest = by.get(THREAD, {"limit": 100}).json()
    assert (len(newest["messages"]), newest["has_more"]) == (100, True)
    older = by.get(THREAD, {"before": newest["messages"][0]["place"], "limit": 100}).json()
    assert [one["id"] for one in older["messages"]] == [f"m{n:06}" for n in range(1, 21)]
    newer = by.get(THREAD, {"after": older["messages"][-1]["place"], "limit": 3}).json()
    assert [one["id"] for one in newer["messages"]] == ["m000021", "m000022", "m000023"]


def test_files_come_by_multipart():
    form = {"text": "look", "files": [one.file for one in (upload(png()), upload(b"x" * 70_000))]}
    assert client().post(THREAD, form).status_code == 200
    content = ChatMessage.objects.get().content
    assert [block["type"] for block in content] == ["text", "image", "file"]
    assert ChatAttachment.objects.count() == 2


def attached(data: bytes, name: str = "f.bin", mime_type: str = "") -> ChatAttachment:
    from coordinator.actions.chat import chat

    chat.submit_chat_message("agent.robot", [], speaker=ANNA, files=[upload(data, name, mime_type)], now=NOW)
    return ChatAttachment.objects.latest("created_at")


def fetch(row: ChatAttachment, by: Client | None = None, **headers: str) -> Any:
    answer = (by or client("read")).get(f"/api/chat/attachments/{row.pk}", headers=headers)
    answer.body = answer.getvalue() if answer.streaming else answer.content
    return answer


def test_at_10_an_attachment_is_a_private_download_that_runs_nothing():
    answer = fetch(attached(png(), "chart.png"))
    assert answer.body == png()
    assert answer["Content-Type"] == "image/png"
    assert answer["Content-Disposition"] == 'attachment; filename="chart.png"'
    assert answer["Cache-Control"] == "no-store"
    assert answer["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("data", "declared"),
    [(b"<svg onload='x()'/>", "image/svg+xml"), (b"<script>x()</script>", "text/html")],
)
def test_at_6_what_could_run_is_a_sandboxed_download(data, declared):
    answer = fetch(attached(data, "x", declared))
    assert answer["Content-Disposition"].startswith("attachment")
    assert "sandbox" in answer["Content-Security-Policy"]
    assert "allow-scripts" not in answer["Content-Security-Policy"]


def test_a_row_of_another_program_is_not_shown_as_what_it_claims():
    row = attached(b"<script>x()</script>")
    ChatAttachment.objects.filter(pk=row.pk).update(mime_type="image/png\r\nX: y", filename='a"\r\n.png')
    answer = fetch(row)
    assert answer["Content-Type"] == "application/octet-stream"
    assert "\n" not in answer["Content-Disposition"]


def test_at_11_an_unknown_attachment_is_404():
    assert (
        client("read").get("/api/chat/attachments/nope").status_code == case("attachments", "at-11")["http"]
    )


@pytest.mark.parametrize("size", [1000, 200_000])
@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=990-", 990, None),
        ("bytes=-10", -10, None),
        ("bytes=5-99999999", 5, None),
    ],
)
def test_a_range_is_answered_with_that_part(size, asked, start, end):
    data = bytes(number % 251 for number in range(size))
    answer = fetch(attached(data), Range=asked)
    assert answer.status_code == 206
    assert answer.body == data[start:end]
    assert answer["Content-Range"].endswith(f"/{size}")
    assert int(answer["Content-Length"]) == len(answer.body)


@pytest.mark.parametrize("asked", ["bytes=0-1,5-6", "bytes=", "lines=1-2", "bytes=9-2", "bytes=-"])
def test_what_is_no_range_gets_the_whole_file(asked):
    answer = fetch(attached(b"x" * 100), Range=asked)
    assert (answer.status_code, len(answer.body)) == (200, 100)


@pytest.mark.parametrize("asked", ["bytes=100-", "bytes=-0"])
def test_a_range_beyond_the_file_is_416(asked):
    answer = fetch(attached(b"x" * 100), Range=asked)
    assert (answer.status_code, answer["Content-Range"]) == (416, "bytes */100")


def test_an_attachment_that_is_known_is_not_sent_again():
    row = attached(b"x")
    assert fetch(row, **{"If-None-Match": f'"{row.pk}"'}).status_code == 304


def test_an_agents_key_fetches_no_file_of_another_thread():
    add_agent("agent.other")
    row = attached(b"x")
    assert fetch(row, client("agent", agent_id="agent.other")).status_code == 404
    assert fetch(row, client("agent", agent_id="agent.robot")).status_code == 200


def test_a_message_to_an_agent_that_is_off_is_refused_visibly():
    agent_power.set_agent_enabled("agent.robot", False, actor=ANNA.actor, now=NOW)
    answer = post({"content": text("x")})
    assert answer.status_code == 409
    assert "switched off" in answer.json()["detail"]


def test_a_heartbeat_keeps_an_agent_online_and_tells_it_that_it_is_off():
    by = client("agent", agent_id="agent.robot")
    answer = by.post("/api/agents/agent.robot/heartbeat").json()
    assert (answer["status"], answer["enabled"]) == ("online", True)
    agent_power.set_agent_enabled("agent.robot", False, actor=ANNA.actor, now=NOW)
    assert by.post("/api/agents/agent.robot/heartbeat").json()["status"] == "offline"
    assert by.post("/api/agents/agent.other/heartbeat").status_code == 403


def test_pw_8_the_hash_of_a_switch_is_never_told():
    agent_power.set_power_switch_password("agent.robot", "hunter2", actor=ANNA.actor, now=NOW)
    answer = client("read").get("/api/agents")
    assert b"argon2" not in answer.content
    by_id = {one["id"]: one for one in answer.json()}
    assert by_id["agent.robot"]["metadata"]["has_power_password"] == "true"


def test_waiting_answers_what_stands_already():
    say("are you there?")
    by = client("agent", agent_id="agent.robot")
    answer = by.get(f"{THREAD}/wait").json()
    assert [one["content"][0]["text"] for one in answer["messages"]] == ["are you there?"]
    assert by.get(f"{THREAD}/wait", {"after": answer["after"]}).json()["messages"] == []


def test_an_agent_that_is_deleted_leaves_no_messages_to_its_successor():
    say("secret")
    agents.delete_agent_with_data("agent.robot", actor=ANNA.actor)
    add_agent()
    assert client("read").get(THREAD).json()["messages"] == []
    assert AuditLog.objects.filter(event_type="AGENT_DELETED").exists()
