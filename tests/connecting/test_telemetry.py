"""Connecting also has Codex send its telemetry here, and gives way to what is set up already."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest

from coordinator.client.connecting import connect, jsonc
from coordinator.client.connecting.toml_tables import MARK
from tests.connecting.homes import (
    ABSENT,
    GEMINI,
    KEY,
    URL,
    connected,
    disconnected,
    everything,
    machine,
    written,
)

__all__ = ["machine"]
CODEX, GEMINI_ENV = ".codex/config.toml", ".gemini/.env"
MINE = '# how I like it\nmodel = "gpt-5"\n\n[projects."/home/dev"]\ntrust_level = "trusted"'
ODD = {
    "codex without an end of line": (CODEX, MINE),
    "codex with a table": (CODEX, f"{MINE}\n\n# that is all\n"),
    "codex without any": (CODEX, ABSENT),
}


@pytest.mark.parametrize("odd", ODD)
def test_the_key_is_in_files_that_their_owner_alone_can_read_and_gone_afterwards(
    machine: Path, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(machine, *ODD[odd], mode=0o644)
    before = everything(machine)
    assert connected() == 0
    assert "sbx_…" in capsys.readouterr().out
    assert KEY in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    once = everything(machine)
    assert connected() == 0
    assert connect.run(["--check"]) == 0
    assert KEY not in capsys.readouterr().out
    assert everything(machine) == once
    assert disconnected() == 0
    assert everything(machine) == before


def test_codex_sends_logs_and_traces_here_over_http(machine: Path) -> None:
    codex = written(machine, CODEX, MINE)
    connected()
    otel = tomllib.loads(codex.read_text())["otel"]
    for name, signal in (("exporter", "logs"), ("trace_exporter", "traces")):
        sends = otel[name]["otlp-http"]
        assert (sends["endpoint"], sends["headers"]) == (
            f"{URL}/v1/{signal}",
            {"Authorization": f"Bearer {KEY}"},
        )
    assert otel["log_user_prompt"] is True


FORMER = f"""{{
  "telemetry": {{
    "enabled": true,
    "target": "local",
    "otlpEndpoint": "{URL}",
    "otlpProtocol": "http"
  }}
}}
"""
FORMER_ENV = f"""GEMINI_API_KEY=1

{MARK}
OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer%20{KEY}"
"""


def test_gemini_cli_is_given_no_exporter_and_loses_that_of_an_older_version(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gemini, env = written(machine, GEMINI, "{}"), machine / GEMINI_ENV
    connected()
    assert "telemetry" not in gemini.read_text()
    assert not env.exists()
    gemini.write_text(
        jsonc.set_jsonc_value(gemini.read_text(), ["telemetry"], json.loads(FORMER)["telemetry"])
    )
    env.write_text(FORMER_ENV)
    capsys.readouterr()
    assert connect.run(["--check"]) == 1
    assert '-    "otlpEndpoint"' in capsys.readouterr().out
    connected()
    assert "telemetry" not in gemini.read_text()
    assert env.read_text() == "GEMINI_API_KEY=1\n"
    assert connect.run(["--check"]) == 0
    disconnected()
    assert (jsonc.load_jsonc_value(gemini.read_text()), env.read_text()) == ({}, "GEMINI_API_KEY=1\n")


def test_telemetry_of_gemini_that_goes_elsewhere_stays(machine: Path) -> None:
    mine = FORMER.replace(URL, "http://otel.example:4318")
    gemini = written(machine, GEMINI, mine)
    connected()
    assert jsonc.load_jsonc_value(gemini.read_text())["telemetry"] == json.loads(mine)["telemetry"]
    disconnected()
    assert gemini.read_text() == mine


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        (CODEX, '[otel]\nenvironment = "mine"\n', "[otel] is set there already"),
        (CODEX, 'otel.environment = "mine"\n', "[otel] is set there already"),
        (CODEX, "model = \n", "it is not TOML"),
    ],
)
def test_what_is_set_up_already_stays_and_it_says_so(
    machine: Path, path: str, text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(machine, path, text)
    before = file.read_text()
    assert connected("codex", "--no-gateway") == 0
    assert reason in capsys.readouterr().out
    assert file.read_text().replace("thread_unload_delay_secs = 15\n", "") == before
    keys = [content for content, _ in everything(machine).values() if KEY.encode() in content]
    assert keys == []
    assert connect.run(["--check"]) == 0
    disconnected()
    assert file.read_text() == before


def test_what_codex_writes_behind_our_lines_stays(machine: Path) -> None:
    file = written(machine, CODEX, f"{MINE}\n", mode=0o644)
    connected("codex")
    more = '\n[projects."/home/dev/new"]\ntrust_level = "trusted"\n'
    file.write_text(file.read_text() + more)
    connected("codex")
    disconnected()
    assert file.read_text() == f"{MINE}\n{more}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_what_somebody_adds_to_our_table_stays_in_it(machine: Path) -> None:
    file = written(machine, CODEX, f"{MINE}\n")
    connected("codex")
    file.write_text(file.read_text().replace("[otel]\n", '[otel]\nenvironment = "mine"\n'))
    disconnected()
    assert tomllib.loads(file.read_text())["otel"] == {"environment": "mine"}


def test_another_server_and_key_replace_the_former_ones(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(machine, CODEX, MINE)
    connected()
    other = URL.replace("127.0.0.1", "localhost")
    monkeypatch.setattr(
        "coordinator.client.connecting.http_requests.exchange_connect_code_for_key", lambda *_: "sbx_another"
    )
    monkeypatch.setattr("coordinator.client.connecting.http_requests.require_working_key", lambda *_: None)
    key = machine / ".config" / "key-of-the-test"
    assert connect.run(["--url", other, "--yes", "--key-file", str(key)]) == 0
    text = file.read_text()
    assert text.count("[otel]") == 1
    assert [URL in text, KEY in text, other in text, "sbx_another" in text] == [False, False, True, True]


@pytest.mark.parametrize("how", ["a file", "a folder", "a repository"])
def test_no_key_is_written_through_a_link_or_into_a_repository(
    machine: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, dotfiles = written(machine, CODEX, "# mine\n"), machine / "dotfiles"
    if how == "a repository":
        (file.parent / ".git").mkdir()
    elif how == "a folder":
        file.parent.rename(dotfiles)
        file.parent.symlink_to(dotfiles)
    else:
        dotfiles.mkdir()
        file.rename(dotfiles / file.name)
        file.symlink_to(dotfiles / file.name)
    before = everything(machine)
    assert connected() == 0
    assert "so the key is not written there" in " ".join(capsys.readouterr().out.split())
    assert "# mine\n" in file.read_text()
    for found in machine.rglob("*"):
        assert not (found.is_file() and KEY in found.read_text()) or ".config" in found.parts
    assert connect.run(["--check"]) == 0
    assert disconnected() == 0
    assert everything(machine) == before
