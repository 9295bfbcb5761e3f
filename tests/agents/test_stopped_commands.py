"""`Stop this turn` ends what the real Codex runs, which goes on beyond a turn that is cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.asking import decide, hold
from tests.agents.driven import Machine
from tests.client.programs import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
COMMAND = "touch begun; exec sleep 98765"


@pytest.fixture
def machine(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    names = ("codex-acp", "codex")
    programs.needed(*names)
    monkeypatch.setattr("tests.agents.driven.ON_PATH", names)
    hold(served)
    one = Machine(served, tmp_path, ("codex",))
    one.start()
    yield one
    one.close()


def sleeping() -> list[str]:
    """Return the processes that run the command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found += [process.name] if words[:2] == [b"sleep", b"98765"] else []
    return found


def test_a_stopped_turn_of_codex_leaves_no_command_and_the_next_prompt_goes_on(machine: Machine) -> None:
    machine.scripts["codex"].commands = [COMMAND]
    run, session = machine.order("codex", "Do it, blue heron.")
    decide(machine.served.sign_in("approver"), machine.asked(run, session, COMMAND), "approved")
    machine.until(lambda: len(sleeping()) == 1, "the command runs", run, session)
    assert machine.http.post(f"/runs/{run}/stop").status_code == 200
    assert machine.ended(run, session) == "stopped"
    with until() as pause:
        while sleeping():
            pause()
    assert machine.served.sql("SELECT status FROM sessions") == [("idle",)]
    machine.scripts["codex"].starts_again("touch later")
    run, _ = machine.order("codex", "And more.", session)
    decide(machine.served.sign_in("approver"), machine.asked(run, session, "touch later"), "approved")
    assert machine.ended(run, session) == "completed", machine.told(run, session)
    assert (machine.project("codex") / "later").exists()
    assert "blue heron" in machine.scripts["codex"].requests[-1]
