"""Connecting also has Codex and Gemini CLI send their telemetry here, and gives way to what is set up already."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from coordinator.client.connecting import connect, jsonc
from coordinator.client.connecting.lines import MARK
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
    "gemini with variables": (GEMINI_ENV, "GEMINI_API_KEY=1\n"),
    "gemini without any": (GEMINI_ENV, ABSENT),
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


def test_they_send_logs_and_traces_here_over_http(machine: Path) -> None:
    codex, gemini = written(machine, CODEX, MINE), written(machine, GEMINI, "{}")
    connected()
    otel = tomllib.loads(codex.read_text())["otel"]
    for name, signal in (("exporter", "logs"), ("trace_exporter", "traces")):
        sends = otel[name]["otlp-http"]
        assert (sends["endpoint"], sends["headers"]) == (
            f"{URL}/v1/{signal}",
            {"Authorization": f"Bearer {KEY}"},
        )
    assert otel["log_user_prompt"] is True
    assert jsonc.loads(gemini.read_text())["telemetry"] == {
        "enabled": True, "target": "local", "otlpEndpoint": URL, "otlpProtocol": "http",
    }  # fmt: skip
    variables = (machine / GEMINI_ENV).read_text()
    assert f'OTEL_EXPORTER_OTLP_HEADERS="Authorization=Bearer%20{KEY}"' in variables


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        (CODEX, '[otel]\nenvironment = "mine"\n', "[otel] is set there already"),
        (CODEX, 'otel.environment = "mine"\n', "[otel] is set there already"),
        (CODEX, "model = \n", "it is not TOML"),
        (GEMINI_ENV, "export OTEL_EXPORTER_OTLP_HEADERS=a=b\n", "is set there already"),
        (GEMINI, '{"telemetry": {"enabled": false}}', "sends its telemetry elsewhere"),
        (".env", "GEMINI_API_KEY=1\n", "Gemini CLI would no longer read ~/.env"),
    ],
)
def test_what_is_set_up_already_stays_and_it_says_so(
    machine: Path, path: str, text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(machine, GEMINI, "{}")
    file = written(machine, path, text)
    before = file.read_text()
    assert connected("codex" if path == CODEX else "gemini", "--no-gateway") == 0
    assert reason in capsys.readouterr().out
    if path != GEMINI:
        assert file.read_text() == before
    keys = [content for content, _ in everything(machine).values() if KEY.encode() in content]
    assert keys == []
    if path != CODEX:
        assert "otlpEndpoint" not in (machine / GEMINI).read_text()
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
    file.write_text(file.read_text() + 'environment = "mine"\n')
    disconnected()
    assert tomllib.loads(file.read_text())["otel"] == {"environment": "mine"}


def test_another_server_and_key_replace_the_former_ones(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(machine, CODEX, MINE)
    written(machine, GEMINI, "{}")
    connected()
    other = URL.replace("127.0.0.1", "localhost")
    monkeypatch.setattr("coordinator.client.connecting.talk.exchange", lambda *_: "sbx_another")
    monkeypatch.setattr("coordinator.client.connecting.talk.opens", lambda *_: None)
    key = machine / ".config" / "key-of-the-test"
    assert connect.run(["--url", other, "--yes", "--key-file", str(key)]) == 0
    texts = [path.read_text() for path in (file, machine / GEMINI, machine / GEMINI_ENV)]
    assert [text.count(MARK) for text in texts] == [1, 0, 1]
    assert URL not in "".join(texts)
    assert [KEY in text for text in texts] == [False] * 3
    assert [other in texts[0], other in texts[1], "sbx_another" in texts[2]] == [True] * 3


@pytest.mark.parametrize("path", [CODEX, GEMINI_ENV])
@pytest.mark.parametrize("how", ["a file", "a folder", "a repository"])
def test_no_key_is_written_through_a_link_or_into_a_repository(
    machine: Path, path: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, dotfiles = written(machine, path, "# mine\n"), machine / "dotfiles"
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
    assert file.read_text().startswith("# mine\n")
    for found in machine.rglob("*"):
        assert not (found.is_file() and KEY in found.read_text()) or ".config" in found.parts
    assert connect.run(["--check"]) == 0
    assert disconnected() == 0
    assert everything(machine) == before
