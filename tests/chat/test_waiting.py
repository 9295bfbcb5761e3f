"""Waiting for messages on the served program: woken at once, by any worker, and nothing lost by a restart."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from tests.chat.rows import png, text
from tests.served import Served

pytestmark = pytest.mark.served
AGENT = "agent.cloto_default"
THREAD = f"/api/chat/{AGENT}/messages"


def agents_client(served: Served) -> httpx.Client:
    """Return a client with a key that speaks as the agent."""
    served.sql(f"UPDATE api_keys SET agent_id = '{AGENT}' WHERE name = 'test-agent'")
    return served.client("agent")


def wait_in_a_thread(client: httpx.Client, after: str) -> tuple[threading.Thread, list[dict[str, Any]]]:
    answers: list[dict[str, Any]] = []

    def wait() -> None:
        answers.append(client.get(f"{THREAD}/wait", params={"after": after, "timeout": 15}).json())

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, answers


def said(answer: dict[str, Any]) -> list[str]:
    return [one["content"][0]["text"] for one in answer["messages"]]


def test_an_agent_that_waits_hears_a_message_when_it_is_said(served):
    robot, person = agents_client(served), served.client("operator")
    after = robot.get(f"{THREAD}/wait", params={"timeout": 0}).json()["after"]
    thread, answers = wait_in_a_thread(robot, after)
    posted = person.post(THREAD, json={"content": text("hello")})
    assert posted.status_code == 200
    thread.join(60)
    assert said(answers[0]) == ["hello"]


def test_a_message_is_delivered_by_the_answer_and_seen_by_the_next_wait(served):
    robot, person, reader = agents_client(served), served.client("operator"), served.sign_in("viewer")

    def delivery() -> str:
        return " ".join(reader.get(f"/ui/chat/with/{AGENT}/delivery/").text.split())

    person.post(THREAD, json={"content": text("hello")})
    assert "Not delivered yet" in delivery()
    person.get(f"{THREAD}/wait", params={"timeout": 0})  # somebody else's look at the thread
    assert "Not delivered yet" in delivery()
    heard = robot.get(f"{THREAD}/wait", params={"timeout": 0}).json()
    assert "Delivered to" in delivery()
    robot.get(f"{THREAD}/wait", params={"timeout": 0, "after": heard["after"]})
    assert "Seen by" in delivery()


def test_what_is_said_around_a_restart_is_heard_once(served):
    robot, person = agents_client(served), served.client("operator")
    person.post(THREAD, json={"content": text("before")})
    heard = robot.get(f"{THREAD}/wait", params={"timeout": 0}).json()
    served.stop()
    served.start()
    person.post(THREAD, json={"content": text("after")})
    assert said(heard) == ["before"]
    assert said(robot.get(f"{THREAD}/wait", params={"after": heard["after"]}).json()) == ["after"]


@pytest.mark.parametrize("size", [1, 64 * 1024, 64 * 1024 + 1, 20 * 1024 * 1024])
def test_files_of_every_size_come_back_as_they_were_sent(served, size):
    person = served.client("operator")
    data = (png() if size > 1000 else b"x").ljust(size, b"\0")
    posted = person.post(THREAD, data={"text": "see"}, files={"files": ("f.png", data, "image/png")})
    assert posted.status_code == 200, posted.text
    content = person.get(THREAD).json()["messages"][-1]["content"]
    assert person.get(content[1]["url"]).content == data


def test_more_than_the_limit_is_413(served):
    data = b"x" * (25 * 1024 * 1024 + 1)
    answer = served.client("operator").post(THREAD, files={"files": ("f", data)})
    assert answer.status_code == 413
    assert served.client("operator").get(THREAD).json()["messages"] == []


def test_a_wait_for_an_unknown_agent_is_404(served):
    assert served.client("operator").get("/api/chat/agent.nobody/messages/wait").status_code == 404
