"""OpenCode itself with Signalbox's plugin: the same wait, the same words, and the same end as the other agents."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.hook import BLOCKED_BY_RULE
from tests.agents import programs
from tests.agents.asking import asked, decide, hold
from tests.agents.real_agents import Home, Run
from tests.patience import PATIENCE, until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
LONG = 10.0  # seconds that a person thinks, or the server is away: longer than the plugin once tried


@pytest.fixture(scope="module", autouse=True)
def opencode() -> None:
    programs.needed("opencode")


def rows(served: Served, columns: str) -> list[tuple[Any, ...]]:
    """Return these columns of the events of the session that OpenCode was asked in."""
    return served.sql(
        f"SELECT {columns} FROM events WHERE session_id ="
        " (SELECT session_id FROM permission_context JOIN sessions USING (session_id)"
        " WHERE executor_profile = 'opencode' LIMIT 1) ORDER BY id"
    )


def held(served: Served, run: Run, command: str) -> str:
    request_id = asked(served, "opencode", command)
    assert request_id is not None, run.output()
    return request_id


def test_a_held_call_outlasts_a_server_that_is_killed_and_away_for_long(
    serve: Any, homes: Any, start: Any
) -> None:
    served = serve()
    hold(served)
    (run,) = start(homes(served, only="opencode"), "touch approved", "touch denied").values()
    request_id = held(served, run, "touch approved")
    for pid in [served.process.pid, *served.worker_pids()]:
        os.kill(pid, signal.SIGKILL)
    served.process.wait()
    served.process = None
    time.sleep(LONG)
    assert not run.home.ran("approved")
    served.start()
    approver = served.sign_in("approver")
    request_id = held(served, run, "touch approved")
    decide(approver, request_id, "approved")
    request_id = held(served, run, "touch denied")
    assert run.home.ran("approved")
    decide(approver, request_id, "denied", reason="Not on a Friday.")
    assert "Not on a Friday." in json.dumps(run.ended()[-1])
    assert not run.home.ran("denied")
    until(lambda: ("session_stop",) in rows(served, "event_type"))
    kinds = [kind for (kind,) in rows(served, "event_type")]
    assert kinds.count("session_start") == kinds.count("session_stop") == 1


def test_what_happened_while_the_server_was_away_is_there_later(serve: Any, homes: Any, start: Any) -> None:
    served = serve()
    (home,) = (connected := homes(served, only="opencode")).values()
    served.stop()
    (run,) = start(connected, "touch free").values()
    run.ended()
    assert home.ran("free")
    until(lambda: kept(home))
    served.start()
    start(connected, "touch again")["opencode"].ended()
    sessions = "SELECT session_id FROM sessions WHERE executor_profile = 'opencode'"
    ended = "SELECT session_id FROM events WHERE event_type = 'session_stop'"
    # Beside both runs the session of connect's own test.
    until(lambda: len(set(served.sql(sessions)) & set(served.sql(ended))) == 3)
    calls = served.sql("SELECT tool_input FROM events WHERE event_type = 'post_tool' ORDER BY id")
    assert [json.loads(given)["command"] for (given,) in calls] == ["touch free", "touch again"]
    assert not kept(home)


def kept(home: Home) -> list[Path]:
    """Return the hooks that wait to be sent."""
    return list((home.path / ".local/state/signalbox").glob("*/spool/[0-9]*"))


def test_a_call_held_for_certain_is_denied_in_the_words_of_the_other_agents(
    serve: Any, homes: Any, start: Any
) -> None:
    served = serve()
    hold(served)
    connected = homes(served, only="opencode", deadline=4)
    served.stop()
    (run,) = start(connected, "touch certain").values()
    words = json.dumps(run.ended()[-1])
    assert BLOCKED_BY_RULE in words
    assert "Unable to connect" not in words
    assert not run.home.ran("certain")


def test_a_session_ends_with_its_program_also_where_that_is_killed(
    served: Served, homes: Any, start: Any
) -> None:
    hold(served)
    (run,) = start(homes(served, only="opencode"), "touch held").values()
    request_id = held(served, run, "touch held")
    run.close()
    until(lambda: ("session_stop",) in rows(served, "event_type"), within=PATIENCE)
    status = "SELECT status FROM permission_requests WHERE request_id = ?"
    until(lambda: served.sql(status, (request_id,)) != [("pending",)])
