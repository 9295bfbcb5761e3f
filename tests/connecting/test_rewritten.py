"""Agents write their settings anew: what they and people put there stays, wherever it stands, and ours alone goes.

The files in tests/data/codex/settings are what Codex 0.171.0 wrote (`codex features enable`, `codex mcp add`) into
settings that an older Signalbox had connected, with comments around its entries, and into the same ones without it.
"""

from __future__ import annotations

import socket
import tomllib
from pathlib import Path

import pytest

from coordinator.client import settings
from coordinator.client.connecting import connect, toml_tables, yaml_entries
from coordinator.client.connecting.connectable_agents import CONNECTABLE_AGENTS, HookInvocation
from coordinator.client.connecting.jsonc import UnreadableSettings
from coordinator.client.connecting.record import EditedFile, save_edited_files_record
from coordinator.client.connecting.toml_tables import BEGIN, END, MARK, TomlTable, TomlValue
from coordinator.client.settings import ClientSettings
from tests.connecting.homes import KEY, PROGRAM, URL, connected, disconnected, machine, written
from tests.served import ROOT

__all__ = ["machine"]
RECORDED = Path(ROOT, "tests/data/codex/settings")
CONFIG = ".codex/config.toml"
FORMER_PROGRAM = ["/usr/bin/python3", "-I", "-S", "/opt/signalbox/coordinator/client/launch.py"]
BEFORE = '# how I like it\nmodel = "gpt-5"\n'


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]


def connected_by_an_older_version(home: Path, text: str) -> Path:
    """Return the settings of Codex on a machine that an older Signalbox connected and Codex wrote to since."""
    file = written(home, CONFIG, text, mode=0o600)
    settings.save_client_settings(
        ClientSettings(URL, KEY, {"codex": {"program": FORMER_PROGRAM, "gateway": True}})
    )
    save_edited_files_record(
        {str(file): EditedFile("codex", BEFORE.encode(), "of-what-was-written", [], 0o644)}
    )
    return file


@pytest.mark.parametrize("what", ["features", "mcp"])
@pytest.mark.parametrize("again", [False, True])
def test_what_codex_wrote_into_an_older_installation_stays(machine: Path, what: str, again: bool) -> None:
    file = connected_by_an_older_version(machine, (RECORDED / f"connected-then-{what}.toml").read_text())
    alone = (RECORDED / f"{what}-alone.toml").read_text()
    if again:
        assert connected("codex") == 0
        assert connect.run(["--check"]) == 0
        now = tomllib.loads(file.read_text())
        assert now["mcp_servers"]["signalbox"]["command"] == PROGRAM
        assert {**now, "mcp_servers": dict(now["mcp_servers"])}["otel"]["log_user_prompt"] is True
    assert disconnected() == 0
    left = file.read_text()
    assert tomllib.loads(left) == tomllib.loads(alone)
    assert sorted(comments(left)) == sorted(comments(alone))
    assert not again or disconnected() == 1


INSIDE = '[projects."/home/dev"]\ntrust_level = "trusted" # mine\n'


@pytest.mark.parametrize("again", [False, True])
def test_tables_that_stand_inside_the_comments_of_an_older_version_stay(machine: Path, again: bool) -> None:
    server = f'command = "{FORMER_PROGRAM[0]}"\nargs = ["-I", "-S", "{FORMER_PROGRAM[3]}", "mcp"]\n'
    text = f"{BEFORE}\n{BEGIN}\n[mcp_servers.signalbox]\n{server}\n# a note\n{INSIDE}{END}\n"
    file = connected_by_an_older_version(machine, text)
    if again:
        assert connected("codex") == 0
    assert disconnected() == 0
    assert file.read_text() == f"{BEFORE}\n# a note\n{INSIDE}"


def test_a_check_needs_no_comments_of_ours(machine: Path) -> None:
    file = written(machine, CONFIG, BEFORE)
    assert connected("codex") == 0
    text = file.read_text()
    assert not {BEGIN, END, MARK} & set(text.splitlines())
    file.write_text(f"{text}\n[features]\nundo = true\n".replace("3600", "3600.0"))
    assert connect.run(["--check"]) == 0


def test_what_codex_keeps_about_our_server_stays_until_it_goes(machine: Path) -> None:
    """It keeps a tool's approval mode in a table below the server's, which alone it could not read."""
    file = written(machine, CONFIG, BEFORE)
    connected("codex")
    added = '\n[mcp_servers.signalbox.tools.release]\napproval_mode = "approve"\n'
    file.write_text(file.read_text() + added)
    connect_again = connected("codex")
    assert (connect_again, added in file.read_text()) == (0, True)
    assert disconnected() == 0
    assert tomllib.loads(file.read_text()) == tomllib.loads(BEFORE)


TABLE = TomlTable(
    "codex", ("mcp_servers", "signalbox"), {"command": "us"}, lambda one: one.get("command") == "us"
)
OURS = '[mcp_servers.signalbox]\ncommand = "us"\n'


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (OURS, ""),
        (f"a = 1\n\n{OURS}", "a = 1\n"),
        (f"[a]\nb = 1\n\n{OURS}\n# about c\n[c]\n", "[a]\nb = 1\n\n# about c\n[c]\n"),
        (f"[mcp_servers.a]\n[z]\n\n{OURS}\n[mcp_servers.b]\n", "[mcp_servers.a]\n[z]\n\n[mcp_servers.b]\n"),
        (f"a = 1\r\n\r\n{OURS}# end\n".replace("\n", "\r\n").replace("\r\r", "\r"), "a = 1\r\n# end\r\n"),
        ("\ufeffa = 1\n\n" + OURS, "\ufeffa = 1\n"),
        ("[mcp_servers]\n# mine\n\n" + OURS, "[mcp_servers]\n# mine\n"),
        ('[mcp_servers.signalbox]\ncommand = "theirs"\n', '[mcp_servers.signalbox]\ncommand = "theirs"\n'),
        ('a = """\n[mcp_servers.signalbox]\ncommand = "us"\n"""\n', None),
    ],
)  # fmt: skip
def test_a_table_is_taken_out_of_where_it_stands(text: str, left: str | None) -> None:
    assert toml_tables.remove_toml_table(text, TABLE) == (text if left is None else left)


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = {signalbox = {command = "us"}}\n',
        "mcp_servers = 1\n",
        f"[[x]]\na = 1\n\n{OURS}\n[[x]]\na = 2\n",  # tomlkit 0.15.2 would move the second one
    ],
)
def test_a_form_that_has_no_room_is_refused(text: str) -> None:
    with pytest.raises(UnreadableSettings):
        toml_tables.add_toml_table(toml_tables.remove_toml_table(text, TABLE), TABLE)


def test_a_value_of_ours_is_changed_in_place_and_comments_stay() -> None:
    table = TomlTable("codex", TABLE.path, {"command": "us", "args": ["mcp"]}, TABLE.is_ours)
    text = f"{OURS}# behind\n\n[mcp_servers.signalbox.env]\nA = 1 # mine\n\n[z]\n"
    after = toml_tables.add_toml_table(text, table)
    assert tomllib.loads(after)["mcp_servers"]["signalbox"] == {
        "command": "us", "args": ["mcp"], "env": {"A": 1},
    }  # fmt: skip
    assert [line for line in text.splitlines() if line not in after.splitlines()] == []


GOOSE = ".config/goose/config.yaml"
# As Goose's own serializer writes it: comments go, members that it knows are added.
REWRITTEN = f"""GOOSE_PROVIDER: openai
extensions:
  developer:
    enabled: true
    type: builtin
  signalbox:
    enabled: true
    type: stdio
    name: signalbox
    description: MCP servers through Signalbox
    cmd: {PROGRAM}
    args:
    - mcp
    envs: {{}}
    env_keys: []
    timeout: 3600
    bundled: null
# mine
GOOSE_MODEL: o
"""


def test_what_goose_wrote_anew_is_still_known_and_taken_out(machine: Path) -> None:
    file = written(machine, GOOSE, "GOOSE_PROVIDER: openai\n")
    connected("goose")
    file.write_text(REWRITTEN)
    assert connect.run(["--check"]) == 0
    assert disconnected() == 0
    at = REWRITTEN.index("  signalbox:")
    assert file.read_text() == REWRITTEN[:at] + REWRITTEN[REWRITTEN.index("# mine") :]


def test_the_comments_of_an_older_version_leave_gooses_settings_too() -> None:
    entry = CONNECTABLE_AGENTS["goose"].mcp(HookInvocation((PROGRAM,), URL, gateway=True))  # type: ignore[misc]
    assert isinstance(entry, yaml_entries.YamlEntry)
    body = yaml_entries.format_yaml_entry(entry).partition("\n")[2]
    text = f"a: 1\nextensions:\n  {BEGIN}\n{body}  {END}\n  mine:\n    cmd: x\n"
    assert yaml_entries.add_yaml_entry(text, entry) == text
    assert yaml_entries.remove_yaml_entry(text, entry) == "a: 1\nextensions:\n  mine:\n    cmd: x\n"


UNLOADS = TomlValue("codex", "thread_unload_delay_secs", 15)
LINE = "thread_unload_delay_secs = 15\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", LINE),
        ("a = 1 # mine\n\n# about t\n[t]\n", f"a = 1 # mine\n{LINE}\n# about t\n[t]\n"),
        ("a = 1", f"a = 1\n{LINE}"),
        ("# about t\n[[t]]\n", f"{LINE}# about t\n[[t]]\n"),
        ("a.b = 1\n\n[t]\n", f"a.b = 1\n{LINE}\n[t]\n"),
        ("\ufeffa = [\n 1,\n]\r\n[t]\r\n", f"\ufeffa = [\n 1,\n]\r\n{LINE[:-1]}\r\n[t]\r\n"),
    ],
)
def test_a_value_goes_before_the_first_table_and_out_again(text: str, after: str) -> None:
    assert toml_tables.add_toml_value_if_unset(text, UNLOADS) == after
    left = toml_tables.remove_toml_value(after, UNLOADS)
    assert left == (text if text.endswith("\n") or not text else f"{text}\n")


@pytest.mark.parametrize("mine", [15, 0, 600])
def test_a_value_that_is_set_already_stays_whatever_it_is(machine: Path, mine: int) -> None:
    file = written(machine, CONFIG, f"thread_unload_delay_secs = {mine}\n")
    connected("codex")
    assert tomllib.loads(file.read_text())["thread_unload_delay_secs"] == mine
    file.write_text(file.read_text() + "\n[features]\nundo = true\n")
    connected("codex")
    disconnected()
    assert tomllib.loads(file.read_text()) == {"thread_unload_delay_secs": mine, "features": {"undo": True}}


@pytest.mark.parametrize("listens", [True, False])
def test_a_codex_in_the_background_is_to_be_restarted(
    machine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    folder = machine / ".codex" / "app-server-control"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("app-server-control.sock")
        if listens:
            server.listen()
        monkeypatch.setenv("CODEX_HOME", "..")  # a path of any length: the system takes 108 bytes
        assert connected("codex") == 0
    assert ("Restart it: codex app-server daemon restart" in capsys.readouterr().out) == listens


@pytest.mark.parametrize(
    "before",
    [
        "GOOSE_MODEL: o\nextensions: &mine\n  developer:\n    enabled: true\n",
        "extensions: &mine\n  developer:\n    enabled: true\n",
        "mine: &mine\n  developer:\n    enabled: true\nextensions: *mine\n",
        "GOOSE_MODEL: o\n...\n",
        "  GOOSE_MODEL: o\n",
        "NOTE: |\n  without a last line end",
    ],
)
def test_yaml_that_would_say_something_else_afterwards_is_left_alone(
    machine: Path, before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(machine, GOOSE, before)
    assert connected("goose") == 0
    assert file.read_text() == before
    assert "So Goose is not given Signalbox's MCP servers." in capsys.readouterr().out


@pytest.mark.parametrize("before", ["extensions: {}\n", "extensions:\n", "{extensions: {}}\n", "a: [\n"])
def test_goose_is_not_said_to_have_the_gateway_where_it_has_not(
    machine: Path, before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(machine, GOOSE, before)
    connected("goose")
    assert "So Goose is not given Signalbox's MCP servers." in capsys.readouterr().out
    connect.run(["--check"])
    assert "So Goose is not given Signalbox's MCP servers." in capsys.readouterr().out


def test_comments_above_our_entry_alone_stay_in_gooses_settings(machine: Path) -> None:
    file = written(machine, GOOSE, "a: 1\nextensions:\n  # all of them\n  mine:\n    cmd: x\n")
    connected("goose")
    file.write_text(file.read_text().replace("  mine:\n    cmd: x\n", ""))
    assert disconnected() == 0
    assert file.read_text() == "a: 1\n  # all of them\n"
