"""The served wait for messages shows secrets only to agents."""

from __future__ import annotations

import pytest

from tests.chat.rows import text
from tests.chat.test_waiting import THREAD, agents_client

pytestmark = pytest.mark.served
TOKEN = "ghp_" + "a1B2" * 9


def test_a_served_wait_shows_secrets_of_people_to_agents_alone(served):
    robot, person, reader = agents_client(served), served.client("operator"), served.client("read")
    person.post(THREAD, json={"content": text(f"Use {TOKEN}.")}).raise_for_status()
    assert TOKEN not in reader.get(THREAD).text
    assert TOKEN in robot.get(f"{THREAD}/wait", params={"timeout": 0, "after": "0"}).text
    assert TOKEN not in reader.get(f"{THREAD}/wait", params={"timeout": 0, "after": "0"}).text
