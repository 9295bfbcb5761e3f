"""Waits for messages show secrets only to agents, as lists of messages do."""

from __future__ import annotations

import pytest

from coordinator.actions.people import key_binding
from coordinator.identity.actors import Actor
from tests.chat.rows import NOW, add_agent, text
from tests.chat.test_machine_side import THREAD, attached, client, fetch, post

pytestmark = pytest.mark.django_db
TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture(autouse=True)
def folder(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    add_agent()
    return tmp_path


@pytest.mark.parametrize("scope", ["read", "operator"])
def test_a_wait_shows_secrets_of_people_to_agents_alone(scope):
    assert post({"content": text(f"Use {TOKEN}.")}).status_code == 200
    reader = client(scope)
    assert TOKEN not in reader.get(THREAD).content.decode()
    assert TOKEN not in reader.get(f"{THREAD}/wait?timeout=0&after=0").content.decode()
    robot = client("agent", agent_id="agent.robot")
    assert TOKEN in robot.get(f"{THREAD}/wait?timeout=0&after=0").content.decode()


def test_a_key_of_several_agents_downloads_no_file_of_another_agents_thread():
    for agent in ("agent.a", "agent.b"):
        add_agent(agent)
    row = attached(b"not theirs")
    by = client("agent")
    key_binding.bind_key_to_agents(
        "k-None-agent", ["agent.a", "agent.b"], actor=Actor("user", "anna"), now=NOW
    )
    assert by.get(THREAD).status_code == 403
    assert fetch(row, by).status_code == 404
    assert fetch(row, client("agent", agent_id="agent.a")).status_code == 404
    assert fetch(row, client("agent", agent_id="agent.robot")).status_code == 200
