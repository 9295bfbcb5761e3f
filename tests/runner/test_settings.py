"""What a runner is told, which agents it finds, and where they may work."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from coordinator.runner import environment, modes, options, startable
from coordinator.runner.directories import AllowedDirectories
from coordinator.runner.errors import RunnerRefused
from coordinator.runner.options import AgentOptions
from coordinator.runner.startable import KNOWN, StartableAgent

pytestmark = pytest.mark.one_engine


def told(*flags: str, **environ: str) -> options.RunnerOptions:
    return options.parse_runner_arguments(flags, environ)[0]


def test_a_flag_counts_before_the_environment_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "runner.toml"
    file.write_text(
        'url = "http://file"\nat_once = 3\ntags = ["a"]\n[agents.mine]\ncommand = ["x"]\nmode = "ask"\n'
    )
    config = {"SIGNALBOX_RUNNER_CONFIG": str(file)}
    assert told(**config).url == "http://file"
    assert told(**config, SIGNALBOX_URL="http://environ/").url == "http://environ"
    given = told("--url", "http://flag", "--at-once", "4", **config, SIGNALBOX_URL="http://environ")
    assert (given.url, given.at_once, given.tags) == ("http://flag", 4, ("a",))
    assert given.agents["mine"] == AgentOptions(command=("x",), mode="ask")
    assert given.directories == (os.getcwd(),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("adress = 'x'", "unknown names: adress"),
        ("key = 'sbx_x'", "chmod 600"),
        ("at_once = 0", "at_once must be a number from 1 to 200"),
        ("directories = ['/no/such']", "/no/such is not a directory"),
        ("[agents.x]\ncommand = 'x --acp'", "command must be a list of strings"),
        ("[agents.'x y']\ncommand = ['x']", "an agent's name has up to 50"),
        ("url = 3", "url must be a string"),
        ("= 3", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_words(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "runner.toml"
    file.write_text(text)
    file.chmod(0o644)
    with pytest.raises(RunnerRefused, match=words):
        told("--config", str(file))


def test_an_agent_is_a_name_and_a_command_line_that_no_shell_reads(tmp_path: Path) -> None:
    file = tmp_path / "runner.toml"
    file.write_text('[agents.mine]\ncommand = ["old"]\nmode = "ask"\nenabled = false\n')
    flags = ("--agent", 'mine="/opt/my agent" --acp "$HOME"; rm', "--agent", "x.1_a=goose acp")
    given = told("--config", str(file), *flags, "--pass", "MY_KEY", "--pass", "THEIR_*")
    assert given.agents == {
        "mine": AgentOptions(command=("/opt/my agent", "--acp", "$HOME;", "rm"), mode="ask"),
        "x.1_a": AgentOptions(command=("goose", "acp")),
    }
    assert given.passes == ("MY_KEY", "THEIR_*")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["goose acp"], "an agent's name has up to 50"),
        (["=goose acp"], "an agent's name has up to 50"),
        (["a b=goose"], "an agent's name has up to 50"),
        (["../x=goose"], "an agent's name has up to 50"),
        (["a" * 51 + "=goose"], "an agent's name has up to 50"),
        (["goose"], "needs a command"),
        (["goose="], "needs a command"),
        (["goose=''"], "needs a command"),
        (["goose=goose 'acp"], "cannot be read: No closing quotation"),
        (["goose=a", "goose=b"], "names goose twice"),
    ],
)
def test_an_agent_without_a_name_or_a_command_is_refused(flags: list[str], words: str) -> None:
    with pytest.raises(RunnerRefused, match=words):
        told(*(word for flag in flags for word in ("--agent", flag)))


def test_what_is_known_of_a_program_holds_under_any_name(tmp_path: Path) -> None:
    (tmp_path / "gemini").write_text("#!/bin/sh\n")
    (tmp_path / "gemini").chmod(0o755)
    wanted = {
        "gemini": AgentOptions(enabled=False),
        "mine": AgentOptions(command=(str(tmp_path / "gemini"), "--acp")),
    }
    (agent,), _ = startable.find_startable_and_missing_agents(wanted, str(tmp_path))
    assert (agent.name, agent.title, agent.is_configured) == ("mine", "mine", True)
    assert agent.opens_once_a_minute
    assert agent.asking_modes == ("default", "plan")
    assert "command" not in agent.build_agent_offer()


def test_agents_are_found_and_those_that_are_missing_say_how_to_get_them(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "gemini"
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"version": "0.61.0"}))
    for path in (package / "run.js", tmp_path / "codex", tmp_path / "mine"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (tmp_path / "gemini").symlink_to(package / "run.js")
    wanted = {
        "mine": AgentOptions(command=(str(tmp_path / "mine"), "--acp"), title="Mine"),
        "other": AgentOptions(command=("no-such-program",)),
        "goose": AgentOptions(enabled=False),
    }
    found, missing = startable.find_startable_and_missing_agents(wanted, str(tmp_path))
    assert [(one.name, one.version) for one in found] == [("gemini", "0.61.0"), ("mine", "")]
    assert found[0].command == (str(tmp_path / "gemini"), "--acp")
    lacking = {one["name"]: one["how"] for one in missing}
    others = {one.name for one in startable.KNOWN} - {"gemini", "goose"}
    assert set(lacking) == {*others, "other"}
    assert "codex-acp" in lacking["codex"], "codex without its adapter is not enough"


def test_no_variable_of_its_person_has_copilot_ask_nobody(tmp_path: Path) -> None:
    (tmp_path / "copilot").write_text("#!/bin/sh\n")
    (tmp_path / "copilot").chmod(0o755)
    (agent,), _ = startable.find_startable_and_missing_agents({}, str(tmp_path))
    environ = {"COPILOT_ALLOW_ALL": "true", "COPILOT_MODEL": "m"}
    env = environment.build_agent_environment(agent, environ, passes=(), key="", session_id="s", mark="m")
    assert (env["COPILOT_ALLOW_ALL"], env["COPILOT_MODEL"]) == ("false", "m")


@pytest.mark.parametrize("is_nested", [True, False])
def test_an_adapter_s_version_is_not_its_agent_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_nested: bool
) -> None:
    monkeypatch.delenv("CLAUDE_CODE_EXECUTABLE", raising=False)
    adapter = tmp_path / "node_modules/@agentclientprotocol/claude-agent-acp"
    sdk = (adapter if is_nested else tmp_path) / "node_modules/@anthropic-ai/claude-agent-sdk"
    other = tmp_path / "other"
    for folder, told in (
        (adapter, {"version": "0.101.0"}),
        (sdk, {"version": "0.3.332", "claudeCodeVersion": "2.1.332"}),
        (other, {"version": "2.1.197"}),
    ):
        (folder / "dist").mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps(told))
        (folder / "dist/index.js").write_text("#!/bin/sh\n")
        (folder / "dist/index.js").chmod(0o755)
    (tmp_path / "claude-agent-acp").symlink_to(adapter / "dist/index.js")
    (tmp_path / "codex-acp").symlink_to(adapter / "dist/index.js")
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)

    def versions() -> dict[str, str]:
        return {
            one.name: one.version for one in startable.find_startable_and_missing_agents({}, str(tmp_path))[0]
        }

    assert versions() == {"claude": "2.1.332", "codex": ""}
    monkeypatch.setenv("CLAUDE_CODE_EXECUTABLE", str(other / "dist/index.js"))
    assert versions()["claude"] == "2.1.197"
    (sdk / "package.json").write_text("{}")
    monkeypatch.delenv("CLAUDE_CODE_EXECUTABLE")
    assert versions()["claude"] == ""


def test_a_directory_is_allowed_by_where_it_really_is(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "inside-too-by-its-name"
    inside.mkdir()
    outside.mkdir()
    (inside / "way-out").symlink_to(outside)
    (outside / "way-in").symlink_to(inside)
    places = AllowedDirectories([str(inside)])
    assert places.resolve_allowed_directory(None) == str(inside)
    assert places.resolve_allowed_directory(str(outside / "way-in")) == str(inside)
    for path in (outside, inside / "way-out", inside / "..", tmp_path):
        with pytest.raises(RunnerRefused):
            places.resolve_allowed_directory(str(path))
    with pytest.raises(RunnerRefused):
        places.resolve_allowed_file(str(inside / "way-out" / "new.txt"))


def opened(current: str, *others: str, as_option: bool = False) -> dict[str, Any]:
    ids = (current, *others)
    if as_option:
        values = [{"value": one, "name": one} for one in ids]
        option = {"id": "mode", "category": "mode", "currentValue": current, "options": values}
        return {"configOptions": [option]}
    return {"modes": {"currentModeId": current, "availableModes": [{"id": one} for one in ids]}}


@pytest.mark.parametrize(
    ("name", "told", "chosen"),
    [
        ("claude", opened("default", "auto", "acceptEdits"), None),
        ("claude", opened("auto", "default", "plan"), "default"),
        ("claude", opened("acceptEdits", "default"), "default"),
        ("codex", opened("agent", "read-only", "workspace-write", as_option=True), "workspace-write"),
        ("gemini", opened("yolo", "default"), "default"),
        ("opencode", opened("build", "plan", as_option=True), None),
        ("mine", opened("careful", "yolo"), None),
        ("mine", opened("full-auto", "ask"), "ask"),
        ("mine", {}, None),
        ("mine", opened("auto", "plan", "yolo", "default"), "default"),  # in a plan an agent only reads
    ],
)
def test_a_session_begins_in_a_mode_that_asks(name: str, told: dict[str, Any], chosen: str | None) -> None:
    asks = next((one.asking_modes for one in KNOWN if one.name == name), ())
    assert (
        modes.choose_initial_mode(StartableAgent(name, name, ("x",), asking_modes=asks), told, None) == chosen
    )


def test_an_agent_whose_modes_all_review_themselves_is_not_started_by_default() -> None:
    agent = StartableAgent("mine", "Mine", ("x",))
    with pytest.raises(RunnerRefused, match=r"\[agents.mine\] mode"):
        modes.choose_initial_mode(agent, opened("yolo", "bypass"), None)
    assert modes.choose_initial_mode(agent, opened("yolo", "bypass"), "bypass") == "bypass"
    with pytest.raises(RunnerRefused, match="has no mode 'x'"):
        modes.choose_initial_mode(agent, opened("yolo"), "x")


def test_an_agent_is_given_neither_the_key_nor_what_is_signalboxs_own(tmp_path: Path) -> None:
    data, key = tmp_path / "data", tmp_path / "data" / "runner_key"
    data.mkdir()
    key.write_text("sbx_secret")
    key.chmod(0o600)
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    given = told("--directory", str(tmp_path), "--key-file", str(key), "--private", str(data), **state)
    places = AllowedDirectories(given.directories, given.private)
    tree = f"{given.state}/worktrees/s/tree"
    (tmp_path / "link").symlink_to(data)
    settings = tmp_path / "config" / "signalbox" / "runner.toml"
    for path in (key, data / "coordinator.db", tmp_path / "link" / "runner_key", f"{tree}/a", settings):
        with pytest.raises(RunnerRefused, match="not in a directory that this runner is allowed"):
            places.resolve_allowed_file(str(path))
    assert places.with_additional_allowed_directory(tree).resolve_allowed_file(f"{tree}/a") == f"{tree}/a"
    assert places.resolve_allowed_file(str(tmp_path / "a.txt"))
