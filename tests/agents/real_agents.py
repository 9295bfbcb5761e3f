"""Real agents at work: each in a home of its own, led by a scripted model, reporting to the server of a test.

`Run` starts a program headless and lets it do what its own rules would stop nowhere: what holds a call back is
Signalbox. Nothing of this machine's environment reaches it, so that no key of the machine is used, and nothing but
the made-up home and the work folder is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents import programs
from tests.agents.scripted_models import Command, Script, scripted
from tests.served import ROOT

PROMPT = "Do as the script says."
KEY_OF_A_MODEL = "made-up"
ENDED_WITHIN = 180.0


def _codex(home: Path, work: Path, address: str) -> dict[str, str]:
    _write(
        home / ".codex" / "config.toml",
        f"""# a comment that stays
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.scripted]
name = "scripted"
base_url = "{address}/v1"
env_key = "MODEL_KEY"
wire_api = "responses"

[projects."{work}"]
trust_level = "trusted"
""",
    )
    return {"MODEL_KEY": KEY_OF_A_MODEL}


def _gemini(home: Path, _work: Path, address: str) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    _write(home / ".gemini" / "settings.json", json.dumps(settings, indent=2))
    return {
        "GOOGLE_GEMINI_BASE_URL": address,
        "GEMINI_API_KEY": KEY_OF_A_MODEL,
        "GEMINI_CLI_NO_RELAUNCH": "true",  # else it starts a second time, below itself, with more memory
    }


def _opencode(home: Path, _work: Path, address: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{address}/v1", "apiKey": KEY_OF_A_MODEL},
        "models": {"scripted": {"name": "scripted"}},
    }
    settings = {"model": "scripted/scripted", "autoupdate": False, "provider": {"scripted": provider}}
    folder = home / ".config" / "opencode"
    _write(folder / "opencode.json", json.dumps(settings, indent=2))
    _has_dependency(folder, "@opencode-ai/plugin")
    _write(home / "models.json", "{}")  # reading the thousands that it brings along takes a third of a run
    return {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_MODELS_PATH": str(home / "models.json"),
    }


def _has_dependency(folder: Path, package: str) -> None:
    """Leave it as where the agent has run before: else each start fetches a package from npm first."""
    (folder / "node_modules").mkdir(exist_ok=True)
    installed = {"packages": {"": {"dependencies": {package: "*"}}}}
    _write(folder / "package-lock.json", json.dumps(installed))


def _kilo(home: Path, _work: Path, address: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{address}/v1", "apiKey": KEY_OF_A_MODEL},
        "models": {"scripted": {"name": "scripted"}},
    }
    settings = {"model": "scripted/scripted", "autoupdate": False, "provider": {"scripted": provider}}
    folder = home / ".config" / "kilo"
    _write(folder / "kilo.json", json.dumps(settings, indent=2))
    _has_dependency(folder, "@kilocode/plugin")
    _write(home / "models.json", "{}")
    away = "http://127.0.0.1:9"  # its makers' services
    return {
        "KILO_MODELS_PATH": str(home / "models.json"),
        "KILO_TELEMETRY_LEVEL": "off",
        **dict.fromkeys((f"KILO_DISABLE_{what}" for what in _KILO_NEEDS_NO), "1"),
        **dict.fromkeys(("http_proxy", "https_proxy"), away),
        "no_proxy": "127.0.0.1",
    }


_KILO_NEEDS_NO = (
    "AUTOUPDATE", "CODEBASE_INDEXING", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "MODELS_FETCH", "PRESENCE", "SESSION_INGEST",
    "SHARE",
)  # fmt: skip


def _claude(home: Path, _work: Path, address: str) -> dict[str, str]:
    _write(
        home / ".claude" / "settings.json",
        json.dumps({"permissions": {"allow": ["Bash", "mcp__signalbox"]}}, indent=2),
    )
    return {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": KEY_OF_A_MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _copilot(home: Path, _work: Path, address: str) -> dict[str, str]:
    # Its program unpacks itself, 235 MB, where it starts first: for all homes once.
    unpacked = programs.folder() / "unpacked"
    unpacked.mkdir(parents=True, exist_ok=True)
    _write(home / ".copilot" / "settings.json", "{}")
    return {
        "COPILOT_PROVIDER_BASE_URL": f"{address}/v1",
        "COPILOT_PROVIDER_API_KEY": KEY_OF_A_MODEL,
        "COPILOT_MODEL": "scripted",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "XDG_CACHE_HOME": str(unpacked),
    }


def _qwen_code(home: Path, _work: Path, address: str) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": "scripted"},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    _write(home / ".qwen" / "settings.json", json.dumps(settings, indent=2))
    return {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": KEY_OF_A_MODEL,
        "OPENAI_MODEL": "scripted",
    }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@dataclass(frozen=True)
class Program:
    """An agent's program: its words for a headless run, and what it finds in its home and its environment.

    `settings` writes its own settings, with the model's address, and returns variables; `tool` is what it calls the
    tool that runs a command. `files` are those of its home that are written when it is connected.
    """

    name: str
    words: tuple[str, ...]
    settings: Callable[[Path, Path, str], dict[str, str]]
    tool: str
    files: tuple[str, ...]


AGENTS = {
    one.name: one
    for one in (
        Program(
            "claude-code",
            ("-p", PROMPT, "--output-format", "stream-json", "--verbose"),
            _claude,
            "Bash",
            (".claude/settings.json",),
        ),
        Program(
            "codex",
            # Hooks that no person has looked at in its screen run only so.
            ("exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", "--json", PROMPT),
            _codex,
            "Bash",
            (".codex/hooks.json",),
        ),
        Program(
            "gemini",
            ("-p", PROMPT, "--yolo", "-m", "scripted"),
            _gemini,
            "run_shell_command",
            (".gemini/settings.json",),
        ),
        Program("opencode", ("run", PROMPT), _opencode, "bash", (".config/opencode/plugins/signalbox.js",)),
    )
}
# Those that a test of their own runs, once.
MORE_AGENTS = {
    one.name: one
    for one in (
        Program(
            "copilot",
            ("-p", PROMPT, "--allow-all-tools"),
            _copilot,
            "Bash",
            (".copilot/hooks/signalbox.json",),
        ),
        Program("kilo", ("run", PROMPT), _kilo, "bash", (".config/kilo/plugins/signalbox.js",)),
        Program("qwen-code", (PROMPT, "--yolo"), _qwen_code, "run_shell_command", (".qwen/settings.json",)),
    )
}


class Home:
    """The home of one agent, as it is on the machine of a person who uses it."""

    def __init__(self, agent: str, folder: Path, program: str = "") -> None:
        """Make the home of an agent; `program`: another version of its program, by its name in PACKAGES."""
        self.agent = (AGENTS | MORE_AGENTS)[agent]
        self.command = programs.command(program or agent)
        self.path = folder / "home"
        self.work = folder / "work"
        self.path.mkdir(parents=True)
        self.work.mkdir()
        self.model = contextlib.ExitStack()
        self.script: Script = self.model.enter_context(scripted())
        beside = {str(Path(one).parent) for one in (sys.executable, *self.command[:-1])}
        self.environment = {
            "HOME": str(self.path),
            "PATH": os.pathsep.join([*sorted(beside), os.defpath]),
            "HOSTNAME": "laptop",
            "PYTHONPATH": str(ROOT),  # for the hook: this work tree's
            **self.agent.settings(self.path, self.work, self.script.address),
        }

    def settings_files(self) -> list[Path]:
        """Return the files with the agent's settings that are there."""
        return [self.path / one for one in self.agent.files if (self.path / one).exists()]

    def starts(self, *commands: Command, prompt: str = PROMPT, **variables: str) -> Run:
        """Start the agent with a prompt; its model wants to run these commands, or to use these tools."""
        self.script.commands, self.script.waits = commands, 0
        self.script.requests.clear()
        return Run(self, variables, prompt)

    def ran(self, name: str) -> bool:
        """Say whether a command made the file of that name in the work folder."""
        return (self.work / name).exists()

    def close(self) -> None:
        """Remove what lies in it, and its model."""
        self.model.close()
        shutil.rmtree(self.path, ignore_errors=True)


class Run:
    """One headless run of an agent."""

    def __init__(self, home: Home, variables: dict[str, str], prompt: str = PROMPT) -> None:
        self.home = home
        self.said = home.path / "said"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [*home.command, *(prompt if word == PROMPT else word for word in home.agent.words)],
                cwd=home.work,
                env=home.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self, within: float = ENDED_WITHIN) -> list[Any]:
        """Wait until it has ended by itself, and return what its model was asked, request by request."""
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.home.agent.name} still runs: {self.output()}") from None
        return [json.loads(body) for body in self.home.script.requests]

    def output(self) -> str:
        """Return what it printed."""
        return self.said.read_text(errors="replace")

    def close(self) -> None:
        """End it and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
