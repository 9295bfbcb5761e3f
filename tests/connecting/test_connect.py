"""Connecting merges into what is there, disconnecting leaves it byte for byte as it was; nothing is half done."""

from __future__ import annotations

import io
import json
import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator.client import settings
from coordinator.client.connecting import connect, files, http_requests, jsonc, merging, record
from coordinator.client.connecting.connect import build_client_command as program_of_connect
from coordinator.client.connecting.connectable_agents import CONNECTABLE_AGENTS, HookInvocation
from tests.connecting.homes import (
    ABSENT,
    CLAUDE,
    CODEX,
    CURSOR,
    FOREIGN,
    GEMINI,
    KEY,
    ODD,
    PROGRAM,
    URL,
    connected,
    disconnected,
    everything,
    machine,
    written,
)
from tests.served import ROOT

__all__ = ["machine"]
MERGED = {"claude-code": CLAUDE, "codex": CODEX, "gemini": GEMINI, "cursor": CURSOR}


def commands(value: Any) -> list[str]:
    """Return every command in some settings."""
    if isinstance(value, dict):
        own = [value[name] for name in ("command", "bash") if isinstance(value.get(name), str)]
        return own + [one for item in value.values() for one in commands(item)]
    return [one for item in value for one in commands(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("odd", ODD)
def test_a_disconnect_leaves_every_byte_as_it_was(machine: Path, odd: str) -> None:
    path, text = ODD[odd]
    written(machine, path, text, mode=0o640)
    before = everything(machine)
    assert connected() == 0
    assert everything(machine) != before
    assert disconnected() == 0
    assert everything(machine) == before
    assert not Path(record.edited_files_record_path()).exists()
    assert not Path(settings.client_settings_path()).exists()


@pytest.mark.parametrize("odd", ODD)
def test_connected_twice_nothing_changes_and_a_check_is_content(
    machine: Path, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(machine, *ODD[odd])
    connected()
    once = everything(machine)
    capsys.readouterr()
    assert connected() == 0
    assert everything(machine) == once
    assert "@@" not in capsys.readouterr().out
    assert connect.run(["--check"]) == 0


@pytest.mark.parametrize("odd", ODD)
def test_what_is_there_stays_there(machine: Path, odd: str) -> None:
    path, text = ODD[odd]
    file = written(machine, path, text)
    connected()
    after = file.read_bytes().decode()
    value = jsonc.load_jsonc_value(after)
    agent = next(name for name, one in MERGED.items() if one == path)
    events = CONNECTABLE_AGENTS[agent].build_entries(HookInvocation((PROGRAM,), URL)).hooks  # type: ignore[misc]
    assert set(events) <= set(value["hooks"])
    ours = [one for one in commands(value["hooks"]) if merging.is_signalbox_entry({"command": one}, agent)]
    assert all(shlex.split(one)[0] in {PROGRAM, "/bin/sh"} for one in ours)
    assert len(ours) == len(events)
    for line in text.replace("\0", "").splitlines() if "older page" not in odd else []:
        if "//" in line or "/*" in line or "lint" in line or "stop.sh" in line:
            assert line.strip().rstrip("]}") in after
    assert (b"\r\n" in file.read_bytes()) == ("\r\n" in text)


def test_every_agent_is_connected_and_disconnected_again(machine: Path) -> None:
    assert connected(*CONNECTABLE_AGENTS) == 0
    for name in CONNECTABLE_AGENTS:
        folder = CONNECTABLE_AGENTS[name].settings_folder(str(machine), {})
        ours = [path for path in Path(folder).rglob("*") if path.is_file()]
        assert ours, name
    assert connect.run(["--check"]) == 0
    assert disconnected() == 0
    assert everything(machine) == {}


def test_agents_are_found_by_their_folders_and_programs(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert connected() == 1
    assert "None of the known agents was found" in capsys.readouterr().err
    (machine / ".codex").mkdir()
    (machine / "bin").mkdir()
    for program in ("gemini", "goose"):  # a database tool is called goose, too
        (machine / "bin" / program).touch(mode=0o755)
    connected()
    assert "Found here: Codex, Gemini CLI.\n" in capsys.readouterr().out
    assert connected("emacs") == 1
    assert "There is no agent 'emacs'" in capsys.readouterr().err


def test_an_agent_whose_hooks_would_be_blocked_is_not_connected(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connect.hook_agents, "HOOK_AGENTS", {})
    written(machine, CODEX, "{}")
    assert connected("codex") == 1
    assert "There is no agent 'codex'" in capsys.readouterr().err


def test_moved_settings_are_found(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(machine / "elsewhere"))
    connected("codex")
    assert (machine / "elsewhere" / "hooks.json").exists()
    assert not (machine / ".codex").exists()


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"hooks": {}', "line 1, column 13"),
        ("[1]", "not a JSON object"),
        ('{"hooks": []}', "hooks are not an object"),
        ('{"hooks": {"Stop": {"command": "x"}}}', "hooks for Stop are not a list"),
        ('{"env": 1}', "env is not an object"),
        ("\x00\x01", "line 1"),
    ],
)
def test_settings_that_cannot_be_merged_into_are_left_alone_with_all_others(
    machine: Path, text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(machine, GEMINI, "{}")
    file = machine / CLAUDE
    file.parent.mkdir()
    file.write_text(text)
    before = everything(machine)
    assert connected() == 1
    assert why in capsys.readouterr().err
    assert everything(machine) == before
    assert not Path(record.edited_files_record_path()).exists()


@pytest.mark.parametrize("content", [b'{"a": "\xff"}', b"\xff\xfe{\x00}\x00"])
def test_other_encodings_are_left_alone(
    machine: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(machine, CODEX, "")
    file.write_bytes(content)
    assert connected() == 1
    assert "not UTF-8" in capsys.readouterr().err
    assert file.read_bytes() == content


def test_a_read_only_file_and_a_hard_link_are_left_alone(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(machine, CODEX, "{}", mode=0o444)
    assert connected() == 1
    assert "read-only" in capsys.readouterr().err
    file.chmod(0o644)
    os.link(file, machine / "twin")
    assert connected() == 1
    assert "hard links" in capsys.readouterr().err
    assert file.read_text() == "{}"


def test_a_folder_or_a_pipe_in_the_place_of_a_file_stops_nobody_for_long(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / CODEX).mkdir(parents=True)
    assert connected() == 1
    os.rmdir(machine / CODEX)
    os.mkfifo(machine / CODEX)
    assert connected() == 1
    assert capsys.readouterr().err.count("is not a file") == 2


def test_a_foreign_file_in_the_place_of_ours_is_not_overwritten(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(machine, ".copilot/hooks/signalbox.json", '{"mine": true}')
    assert connected("copilot") == 1
    assert "was not made by Signalbox" in capsys.readouterr().err
    assert file.read_text() == '{"mine": true}'


def test_one_failing_file_undoes_the_others(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(machine, CLAUDE, '{"a": 1}')
    written(machine, CODEX, "{}")
    before, real = everything(machine), os.replace

    def replace(source: str, target: str) -> None:
        if str(target).endswith("hooks.json"):
            raise OSError(28, "No space left on device", target)
        real(source, target)

    monkeypatch.setattr(files.os, "replace", replace)
    assert connected() == 1
    assert everything(machine) == before
    assert record.load_edited_files_by_path() == {}


def test_a_file_that_changes_meanwhile_is_not_overwritten(machine: Path) -> None:
    file = written(machine, CODEX, "{}")
    found = files.read_file_snapshot(str(file))
    file.write_text('{"hooks": {}}')
    with pytest.raises(files.FileRefused, match="changed meanwhile"):
        files.write_or_delete_unchanged_file(found, b"ours")
    assert file.read_text() == '{"hooks": {}}'


# --- files ------------------------------------------------------------------------------------------------


def test_a_link_is_followed_and_stays_a_link_and_the_mode_stays(machine: Path) -> None:
    real = written(machine, "dotfiles/claude.json", '{\n  "a": 1\n}\n', mode=0o664)
    link = machine / CLAUDE
    link.parent.mkdir()
    link.symlink_to(real)
    connected()
    assert link.is_symlink()
    assert "hooks" in json.loads(real.read_text())
    assert stat.S_IMODE(real.stat().st_mode) == 0o664
    disconnected()
    assert link.is_symlink()
    assert real.read_text() == '{\n  "a": 1\n}\n'


def test_what_holds_the_key_can_be_read_by_its_owner_alone(machine: Path) -> None:
    written(machine, CLAUDE, '{"env": {"TOKEN": "mine"}}')
    connected(*CONNECTABLE_AGENTS)
    for path in (record.edited_files_record_path(), settings.client_settings_path()):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
    assert settings.resolve_client_settings().key == KEY
    holding = {name: mode for name, (content, mode) in everything(machine).items() if KEY.encode() in content}
    assert sorted(holding) == [".codex/config.toml"]  # it takes the key from nowhere else
    assert {stat.S_IMODE(mode) for mode in holding.values()} == {0o600}


# --- edited since -----------------------------------------------------------------------------------------


def test_edited_since_only_ours_goes_and_it_says_so(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(machine, CODEX, f'{{\n  // mine\n  "hooks": {{\n    "PreToolUse": [{FOREIGN}]\n  }}\n}}\n')
    connected()
    text = file.read_text().replace("// mine", "// mine, still")
    file.write_text(
        jsonc.append_jsonc_element(
            text, ["hooks", "Stop"], {"hooks": [{"type": "command", "command": "say done"}]}
        )
    )
    capsys.readouterr()
    assert disconnected() == 0
    assert "was edited after" in capsys.readouterr().out
    left = file.read_text()
    assert "// mine, still" in left
    assert sorted(commands(jsonc.load_jsonc_value(left))) == ["/usr/local/bin/lint --hook codex", "say done"]


def test_our_telemetry_goes_and_what_was_there_before_stays(machine: Path) -> None:
    file = written(machine, CLAUDE, '{\n  "env": {"OTEL_LOGS_EXPORTER": "otlp"}\n}\n')
    connected()
    value = jsonc.load_jsonc_value(file.read_text())
    assert value["env"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == URL
    assert value["otelHeadersHelper"] == f"'{PROGRAM}' headers"
    file.write_text(jsonc.set_jsonc_value(file.read_text(), ["model"], "opus"))
    disconnected()
    assert jsonc.load_jsonc_value(file.read_text()) == {
        "env": {"OTEL_LOGS_EXPORTER": "otlp"},
        "model": "opus",
    }


def test_connected_again_after_an_edit_the_edit_is_what_comes_back(machine: Path) -> None:
    file = written(machine, GEMINI, '{\n  "ui": 1\n}\n')
    connected()
    file.write_text(jsonc.set_jsonc_value(file.read_text(), ["ui"], 2))
    connected()
    disconnected()
    assert file.read_text() == '{\n  "ui": 2\n}\n'


def test_a_file_that_somebody_deleted_stays_deleted(machine: Path) -> None:
    file = written(machine, CODEX, "{}")
    connected()
    file.unlink()
    assert disconnected() == 0
    assert not file.exists()


def test_one_agent_may_leave_alone_and_the_key_stays_for_the_others(machine: Path) -> None:
    claude, codex = written(machine, CLAUDE, "{}"), written(machine, CODEX, "{}")
    connected()
    assert disconnected("codex") == 0
    assert codex.read_text() == "{}"
    assert "signalbox" in claude.read_text()
    assert set(settings.resolve_client_settings().agents) == {"claude-code"}
    assert disconnected("codex") == 1


# --- drift ------------------------------------------------------------------------------------------------


def test_a_check_tells_what_is_missing(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(machine, CODEX, "{}")
    connected()
    file.write_text(jsonc.remove_jsonc_item(file.read_text(), ["hooks", "PreToolUse"]))
    capsys.readouterr()
    assert connect.run(["--check"]) == 1
    told = capsys.readouterr().out
    assert "Codex: differs." in told
    assert '+    "PreToolUse": [' in told
    connected()
    assert connect.run(["--check"]) == 0


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        (CLAUDE, '{"disableAllHooks": true}', "disableAllHooks"),
        (GEMINI, '{"hooksConfig": {"enabled": false}}', "hooksConfig.enabled"),
        (".codex/config.toml", "# mine\n[features]\nhooks = false\n", "features.hooks"),
    ],
)
def test_a_switch_that_turns_hooks_off_is_told_and_is_drift(
    machine: Path, path: str, text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(machine, path, text)
    assert connected() == 0
    assert why in capsys.readouterr().out
    assert connect.run(["--check"]) == 1


IN_PROJECTS = {
    "claude-code": (".claude/settings.local.json", '{"disableAllHooks": true}', "disableAllHooks"),
    "codex": (".codex/config.toml", "[features]\nhooks = false\n", "features.hooks"),
    "gemini": (".gemini/settings.json", '{"hooksConfig": {"enabled": false}}', "hooksConfig.enabled"),
    "copilot": (".github/copilot/settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
    "qwen-code": (".qwen/settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
}


@pytest.mark.parametrize("agent", IN_PROJECTS)
def test_a_project_that_switches_hooks_off_is_told_where_it_is(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], agent: str
) -> None:
    path, text, why = IN_PROJECTS[agent]
    project = machine / "src" / "project" / "below"
    project.mkdir(parents=True)
    connected(agent)
    monkeypatch.chdir(project)
    capsys.readouterr()
    assert connect.run(["--check"]) == 0
    assert CONNECTABLE_AGENTS[agent].from_projects in capsys.readouterr().out
    written(machine / "src" / "project", path, text)
    assert connect.run(["--check"]) == 1
    assert f"{why} in ~/src/project/{path} switches all hooks off" in capsys.readouterr().out


def test_another_program_or_server_replaces_what_was_there(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(machine, CLAUDE, '{\n  "model": "opus"\n}\n')
    connected()
    monkeypatch.setattr(connect, "build_client_command", lambda: ("/new/signalbox",))
    assert connect.run(["--check"]) == 1
    connected()
    text = file.read_text()
    assert PROGRAM not in text
    assert jsonc.load_jsonc_value(text)["otelHeadersHelper"] == "/new/signalbox headers"
    disconnected()
    assert file.read_text() == '{\n  "model": "opus"\n}\n'


def test_hooks_of_an_older_version_are_named_and_written_anew(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(machine, CLAUDE, "{}")
    connected()
    monkeypatch.setattr(connect, "build_client_command", program_of_connect)
    assert connect.run(["--check"]) == 1
    assert connect.TRUSTS_ENVIRONMENT in capsys.readouterr().out
    connected()
    for command in commands(jsonc.load_jsonc_value(file.read_text())["hooks"]):
        words = shlex.split(command)
        words = shlex.split(words[2]) if words[:2] == ["/bin/sh", "-c"] else words
        assert words[:3] == [sys.executable, "-I", "-S"]
        assert words[4:7] == ["--settings", settings.client_settings_path(), "hook"]
    capsys.readouterr()
    assert connect.run(["--check"]) == 0
    assert connect.TRUSTS_ENVIRONMENT not in capsys.readouterr().out
    disconnected()
    assert file.read_text() == "{}"


def test_gemini_cli_shows_where_a_call_that_waits_is_decided(machine: Path) -> None:
    file = written(machine, GEMINI, "{}")
    connected("gemini")
    hooks = jsonc.load_jsonc_value(file.read_text())["hooks"]
    (holding,) = hooks["BeforeTool"][0]["hooks"]
    assert holding["name"] == f"Signalbox (approvals: {URL}/ui/approvals/)"
    assert "name" not in hooks["AfterTool"][0]["hooks"][0]
    del holding["name"]  # as an older version wrote it
    file.write_text(json.dumps({"hooks": hooks}))
    connected("gemini")
    assert [
        one["name"]
        for group in jsonc.load_jsonc_value(file.read_text())["hooks"]["BeforeTool"]
        for one in group["hooks"]
    ]


def test_the_plugin_of_opencode_is_told_how_to_call_us_apart_from_the_environment(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connect, "build_client_command", program_of_connect)
    connected("opencode")
    plugin = Path(
        CONNECTABLE_AGENTS["opencode"].settings_folder(str(machine), {}), "plugins/signalbox.js"
    ).read_text()
    launcher = str(ROOT / "coordinator/client/launch.py")
    words = [sys.executable, "-I", "-S", launcher, "--settings", settings.client_settings_path()]
    assert f"const HOOK_PROGRAM = {json.dumps(words)} //" in plugin
    assert 'const AGENT = "opencode" //' in plugin
    assert connect.run(["--check"]) == 0
    monkeypatch.setattr(http_requests, "send_server_request", lambda *_: b'const CONNECTED_FILE = ""')
    assert connect.run(["--check"]) == 1
    assert "is older than this program" in capsys.readouterr().err


def test_nothing_is_written_without_a_yes(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(machine, CODEX, "{}")
    key = machine / ".config" / "key"
    key.parent.mkdir()
    key.write_text(KEY)
    before = everything(machine)
    assert connect.run(["--url", URL, "--key-file", str(key)]) == 1
    assert "--yes" in capsys.readouterr().err
    assert everything(machine) == before


def test_a_refused_code_changes_nothing(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(machine, CODEX, "{}")
    key = machine / ".config" / "key"
    key.parent.mkdir()
    key.write_text("WRONG")
    before = everything(machine)
    assert connect.run(["--url", URL, "--yes", "--key-file", str(key)]) == 1
    assert "not valid" in capsys.readouterr().err
    assert everything(machine) == before


def test_a_diff_cannot_move_the_terminals_cursor() -> None:
    assert connect.escape_control_characters("a\x1b[2J\tb\n") == "a\\x1b[2J\tb\n"


def test_ours_are_known_and_others_are_not() -> None:
    def ours(command: str) -> bool:
        return merging.is_signalbox_entry({"command": command}, "codex")

    assert all(
        map(
            ours,
            ["signalbox hook codex", "'/a b/signalbox' hook codex --timeout 5", "/x/signalbox hook codex"],
        )
    )
    assert ours("/usr/bin/python3 -m coordinator.client.main hook codex")
    assert ours(HookInvocation((PROGRAM,), URL).fail_closed_hook_command("codex", 5))
    assert not any(
        map(
            ours,
            ["lint hook codex", "signalbox hook codex-like", "signalbox hook cursor", "signalbox connect"],
        )
    )


def test_absent_is_no_text_that_a_file_could_hold() -> None:
    with pytest.raises(jsonc.UnreadableSettings):
        jsonc.parse_jsonc(ABSENT)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1), ("no\n", 1), ("", 1)])
def test_at_a_terminal_it_asks_for_the_code_unseen_and_then_for_a_yes(
    machine: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(machine, CODEX, "{}")
    keyboard = io.StringIO(answer)
    monkeypatch.setattr(keyboard, "isatty", lambda: True)
    monkeypatch.setattr(connect.sys, "stdin", keyboard)
    monkeypatch.setattr(connect.getpass, "getpass", lambda _prompt: "CODE-OF-ONE")
    assert connect.run(["--url", URL]) == code
    told = capsys.readouterr()
    assert f"{URL}/ui/connections/" in told.out
    assert told.out.index('+    "PreToolUse": [') < told.out.index("Change these files? [y/N]")
    assert (file.read_text() == "{}") == bool(code)
    # The code was used up: what it brought is there for the next try.
    assert settings.resolve_client_settings().key == KEY
    assert set(settings.resolve_client_settings().agents) == (set() if code else {"codex"})


def test_a_key_goes_to_no_other_place_than_its_server(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(machine, CODEX, "{}")
    connected()
    assert connect.run(["--url", "http://signalbox.example", "--yes", "--key-file", os.devnull]) == 1
    told = capsys.readouterr().err
    assert "is not encrypted" in told
    assert "A connect code is needed" in told
    assert settings.resolve_client_settings().url == URL


@pytest.mark.parametrize(
    "url", ["ftp://x", "x", "http://", "http://me:secret@x", "http://x:99999", "http://x/?a=1"]
)
def test_what_is_no_address_is_refused(machine: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    written(machine, CODEX, "{}")
    assert connect.run(["--url", url, "--yes"]) == 1
    assert "is not an address" in capsys.readouterr().err
