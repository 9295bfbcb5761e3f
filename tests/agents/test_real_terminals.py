"""At a terminal, a person is shown what an agent waits for, and where to answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.asking import decide, hold, waiting
from tests.agents.connected import connect
from tests.agents.real_agents import KEY_OF_A_MODEL, PROMPT, Home
from tests.agents.scripted_models import Use
from tests.agents.terminals import Terminal
from tests.patience import until
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.one_engine]

# A command that Codex asks its person about: it is to run outside of its sandbox.
ESCALATED = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "As asked"}


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def terminal_home(opened: ExitStack, agent: str, folder: Path, program: str) -> Home:
    """Return the home of somebody who has used the agent in a terminal before."""
    home = Home(agent, folder, program)
    opened.callback(home.close)
    known = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [KEY_OF_A_MODEL], "rejected": []},
        "projects": {str(home.work): {"hasTrustDialogAccepted": True}},
    }
    (home.path / ".claude.json").write_text(json.dumps(known))
    return home


def asked_at(served: Served, terminal: Terminal, agent: str) -> str:
    """Return the request that waits for the call, as soon as one does; its terminal is read meanwhile."""
    found = until(lambda: waiting(served, agent, "touch made"), lambda: terminal.text, rest=terminal.read)
    assert found is not None
    return found


@pytest.mark.parametrize("program", ["codex", "codex-newest"])
def test_codex_says_where_its_own_question_is_answered(
    served: Served, opened: ExitStack, tmp_path: Path, program: str
) -> None:
    """It shows no prompt of its own while its hook runs."""
    programs.needed(program)
    home = terminal_home(opened, "codex", tmp_path, program)
    config = home.path / ".codex" / "config.toml"
    config.write_text(
        config.read_text()
        .replace('"never"', '"on-request"')
        .replace('"danger-full-access"', '"workspace-write"')
    )
    connect(home, served)
    home.script.commands = (Use("exec_command", ESCALATED),)
    terminal = Terminal(home, ["--dangerously-bypass-hook-trust", "--no-alt-screen", PROMPT])
    opened.callback(terminal.close)
    terminal.shows(f"Waiting for approval in Signalbox: {served.url}/ui/approvals/")
    request_id = asked_at(served, terminal, "codex")
    assert not home.ran("made")
    decide(served.sign_in("approver"), request_id, "approved")
    terminal.shows("Done.")
    assert home.ran("made")


@pytest.mark.parametrize("answered", ["in the terminal", "here"])
def test_claude_code_asks_in_its_terminal_too_and_the_first_answer_counts(
    served: Served, opened: ExitStack, tmp_path: Path, answered: str
) -> None:
    programs.needed("claude-code-newest")
    home = terminal_home(opened, "claude-code", tmp_path, "claude-code-newest")
    (home.path / ".claude" / "settings.json").write_text("{}")
    connect(home, served)
    home.script.commands = ("touch made",)
    terminal = Terminal(home, ["--permission-mode", "default", PROMPT])
    opened.callback(terminal.close)
    request_id = asked_at(served, terminal, "claude-code")
    terminal.shows("Do you want to proceed?", "Doyouwanttoproceed?")
    assert not home.ran("made")
    if answered == "here":
        decide(served.sign_in("approver"), request_id, "approved")
    else:
        terminal.type("\r")
    terminal.shows("Done.")
    assert home.ran("made")


@pytest.mark.parametrize(
    ("agent", "program"), [("claude-code", "claude-code-newest"), ("codex", "codex-newest")]
)
def test_what_a_rule_holds_is_said_in_the_terminal(
    served: Served, opened: ExitStack, tmp_path: Path, agent: str, program: str
) -> None:
    programs.needed(program)
    home = terminal_home(opened, agent, tmp_path, program)
    connect(home, served)
    hold(served)
    home.script.commands = ("touch made",)
    words = {"claude-code": [], "codex": ["--dangerously-bypass-hook-trust", "--no-alt-screen"]}[agent]
    terminal = Terminal(home, [*words, PROMPT])
    opened.callback(terminal.close)
    asked_at(served, terminal, agent)
    terminal.shows("Waiting for approval in Signalbox", "WaitingforapprovalinSignalbox")
    assert not home.ran("made")


def statuses_of_callers(served: Served, folder: Path) -> list[str]:
    """Return the statuses of the sessions in a folder that made calls."""
    rows = served.sql(
        "SELECT status FROM sessions WHERE project_dir = ?"
        " AND session_id IN (SELECT session_id FROM events WHERE event_type = 'post_tool')",
        (str(folder),),
    )
    return [str(status) for (status,) in rows]


def test_a_session_in_codexs_background_server_ends_after_quit(
    served: Served, opened: ExitStack, tmp_path: Path
) -> None:
    """The server keeps what a terminal has left, and would tell of the session's end long afterwards."""
    programs.needed("codex-newest")
    served.sql("DELETE FROM tool_rules")
    home = terminal_home(opened, "codex", tmp_path, "codex-newest")
    background = subprocess.Popen(
        [*home.command, "app-server", "--listen", "unix://"],
        cwd=home.work,
        env=home.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    opened.callback(background.wait)
    opened.callback(background.kill)
    control = home.path / ".codex" / "app-server-control" / "app-server-control.sock"
    until(control.exists)
    assert "Restart it: codex app-server daemon restart" in connect(home, served)
    home.script.commands = ("touch made",)
    terminal = Terminal(home, ["--no-alt-screen", PROMPT])
    opened.callback(terminal.close)
    terminal.shows("Trust all and continue")
    terminal.type("2")
    terminal.type("\r")
    terminal.shows("Done.")
    until(lambda: statuses_of_callers(served, home.work) == ["running"])
    terminal.type("/quit")
    terminal.shows("/quit")
    terminal.type("\r")
    terminal.ends()
    assert background.poll() is None
    until(lambda: statuses_of_callers(served, home.work) == ["finished"])


def test_an_older_claude_code_starts_without_a_dialog_about_hooks(
    served: Served, opened: ExitStack, tmp_path: Path
) -> None:
    """It opens one where a hook is registered that it does not know."""
    programs.needed("claude-code")
    home = terminal_home(opened, "claude-code", tmp_path, "claude-code")
    (home.path / "bin").mkdir()
    (home.path / "bin" / "claude").symlink_to(home.command[-1])
    home.environment["PATH"] += f":{home.path / 'bin'}"
    connect(home, served)
    home.script.commands = ()
    terminal = Terminal(home, [PROMPT])
    opened.callback(terminal.close)
    assert terminal.shows("Done.", "Settings Warning", "SettingsWarning") == "Done."
