"""`signalbox connect --status-line` has Claude Code's status line report limits, and a person's own goes on showing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.connecting import connect, status_lines
from coordinator.client.connecting.connect import build_client_command as program_of_connect
from tests.connecting.homes import CLAUDE, connected, disconnected, everything, machine, written
from tests.usage.test_limits import DOCUMENT

__all__ = ["machine"]
OURS = "'/opt/sign box/bin/signalbox' status-line"
OWN = """printf '%s' "mine: $(cat | head -c 1)" """.strip()


def status_line(home: Path) -> Any:
    return json.loads((home / CLAUDE).read_text()).get("statusLine")


def settings_text(command: str) -> str:
    return json.dumps({"statusLine": {"type": "command", "command": command, "padding": 0}}, indent=2) + "\n"


def test_a_status_line_is_installed_where_there_is_none_and_taken_out_again(machine: Path) -> None:
    written(machine, CLAUDE, '{"model": "opus"}\n')
    before = everything(machine)
    assert connected("claude-code", "--status-line") == 0
    assert status_line(machine) == {"type": "command", "command": OURS}
    assert connect.run(["--check"]) == 0
    assert disconnected() == 0
    assert everything(machine) == before


def test_without_the_option_the_status_line_is_left_alone(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(machine, CLAUDE, settings_text(OWN))
    assert connected("claude-code") == 0
    assert status_line(machine)["command"] == OWN
    assert "signalbox connect claude-code --status-line" in capsys.readouterr().out


def test_a_person_s_own_status_line_becomes_the_argument_of_ours(machine: Path) -> None:
    written(machine, CLAUDE, settings_text(OWN))
    before = everything(machine)
    assert connected("claude-code", "--status-line") == 0
    first = status_line(machine)
    assert first["padding"] == 0
    assert status_lines.extract_personal_status_line(first["command"]) == OWN
    # Connected again without the option, it stays.
    assert connected("claude-code") == 0
    assert status_line(machine) == first
    assert connect.run(["--check"]) == 0
    assert disconnected() == 0
    assert everything(machine) == before


def test_of_settings_that_were_edited_since_only_ours_is_taken_out(machine: Path) -> None:
    file = written(machine, CLAUDE, settings_text(OWN))
    connected("claude-code", "--status-line")
    file.write_text(file.read_text().replace('"padding": 0', '"padding": 2'))
    assert disconnected() == 0
    assert status_line(machine) == {"type": "command", "command": OWN, "padding": 2}


def test_it_can_be_taken_out_alone(machine: Path) -> None:
    written(machine, CLAUDE, settings_text(OWN))
    connected("claude-code", "--status-line")
    assert connected("claude-code", "--no-status-line") == 0
    assert status_line(machine)["command"] == OWN
    assert connect.run(["--check"]) == 0


@pytest.mark.parametrize("odd", ['{"statusLine": null}', '{"statusLine": {"type": "static", "text": "x"}}'])
def test_a_status_line_of_another_kind_is_left_alone(odd: str) -> None:
    assert status_lines.add_or_wrap_status_line(odd, "signalbox status-line") == odd
    assert status_lines.restore_personal_status_line(odd) == odd


@pytest.mark.parametrize(
    ("former", "own"),
    [
        ("signalbox status-line", ""),
        ("signalbox status-line 'my command'", "my command"),
        (
            "/old/python -I -S /old/coordinator/client/launch.py --settings /s/a.json status-line 'x | y'",
            "x | y",
        ),
        ("signalbox status-line -- starship prompt", "starship prompt"),
        ("my-signalbox-like-tool", "my-signalbox-like-tool"),
    ],
)
def test_an_older_line_of_ours_is_replaced_and_not_wrapped_twice(former: str, own: str) -> None:
    text = status_lines.add_or_wrap_status_line(settings_text(former), OURS)
    command = json.loads(text)["statusLine"]["command"]
    assert command.startswith(OURS)
    assert status_lines.extract_personal_status_line(command) == own
    assert status_lines.add_or_wrap_status_line(text, OURS) == text


def test_what_is_installed_shows_the_person_s_line(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "build_client_command", program_of_connect)
    written(machine, CLAUDE, settings_text(OWN))
    connected("claude-code", "--status-line")
    shown = subprocess.run(
        ["/bin/sh", "-c", status_line(machine)["command"]],
        input=json.dumps(DOCUMENT),
        text=True,
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(machine)},
    )
    assert shown.stdout == "mine: {"
