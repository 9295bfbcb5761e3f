"""Where the program beside an agent finds its server and its key, and which file it refuses."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from coordinator.client import settings
from coordinator.client.settings import ClientSettings, NotConnected


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return where the settings file belongs, in an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "SIGNALBOX_URL", "SIGNALBOX_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".config/signalbox/client.json"


def test_what_is_saved_is_found_again_and_is_its_owner_s_alone(path: Path) -> None:
    settings.save_client_settings(ClientSettings("http://one", "sbx_1", {"codex": {"hold": False}}))
    found = settings.resolve_client_settings()
    assert (found.url, found.key, found.agents) == ("http://one", "sbx_1", {"codex": {"hold": False}})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_saving_over_an_open_file_closes_it(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    path.chmod(0o644)
    settings.save_client_settings(ClientSettings("http://one", "sbx_1"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_environment_goes_before_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.save_client_settings(ClientSettings("http://one", "sbx_1"))
    monkeypatch.setenv("SIGNALBOX_KEY", "sbx_2")
    assert (settings.resolve_client_settings().url, settings.resolve_client_settings().key) == (
        "http://one",
        "sbx_2",
    )
    monkeypatch.setenv("SIGNALBOX_URL", "https://two/")
    assert (settings.resolve_client_settings().url, settings.resolve_client_settings().key) == (
        "https://two",
        "sbx_2",
    )


def test_the_file_s_key_is_for_the_file_s_server_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.save_client_settings(ClientSettings("http://one", "sbx_1"))
    monkeypatch.setenv("SIGNALBOX_URL", "http://two")
    assert settings.resolve_client_settings().key == ""
    monkeypatch.setenv("SIGNALBOX_URL", "http://one/")
    assert settings.resolve_client_settings().key == "sbx_1"


def test_without_either_it_says_what_to_do(path: Path) -> None:
    with pytest.raises(NotConnected, match="signalbox connect"):
        settings.resolve_client_settings()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_can_read_is_refused(path: Path, mode: int) -> None:
    settings.save_client_settings(ClientSettings("http://one", "sbx_1"))
    path.chmod(mode)
    with pytest.raises(NotConnected, match="chmod 600"):
        settings.resolve_client_settings()


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"url": 1}', '{"url": "http://x", "key": 2}', "[" * 9999]
)
def test_a_broken_file_is_told_and_nothing_is_guessed(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(NotConnected, match="cannot be understood"):
        settings.resolve_client_settings()


def test_a_pipe_in_the_file_s_place_does_not_keep_an_agent_waiting(path: Path) -> None:
    path.parent.mkdir(parents=True)
    os.mkfifo(path, 0o600)
    with pytest.raises(NotConnected, match="not a file"):
        settings.resolve_client_settings()


def test_an_address_that_is_no_web_address_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_URL", "127.0.0.1:8765")
    with pytest.raises(NotConnected, match="http://"):
        settings.resolve_client_settings()


def test_calls_are_held_unless_connect_wrote_otherwise(path: Path) -> None:
    path.parent.mkdir(parents=True)
    agents = {"codex": {"hold": False}, "gemini": {"hold": True}, "goose": {}, "cursor": {"hold": None}}
    path.write_text(json.dumps({"url": "http://x", "key": "", "agents": agents}))
    path.chmod(0o600)
    found = settings.resolve_client_settings()
    assert [name for name in [*agents, "copilot"] if not found.should_block_offline_by_default(name)] == [
        "codex"
    ]


@pytest.mark.parametrize("named", ["", "relative"])
def test_the_state_lies_in_the_home_unless_named_in_full(
    path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", named)
    assert settings.client_state_folder() == str(path.parents[2] / ".local/state/signalbox")
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert settings.client_state_folder() == "/elsewhere/signalbox"
