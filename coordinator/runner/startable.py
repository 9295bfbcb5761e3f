"""The agents that a runner can start: how each speaks the Agent Client Protocol, what it is passed, how to get it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.runner.options import AgentOptions


@dataclass(frozen=True, slots=True)
class KnownAgentProgram:
    """An agent program that we know.

    `needs` are the programs that must be on the PATH, the one to start first; `names` passes the paths of some to the
    first in a variable. `passes` are the variables that it may have of the runner's; one that ends in `*` begins so.
    `asking_modes` are the modes in which a person is asked, the preferred one first; empty: its
    settings say, not its modes.
    `opens_once_a_minute`: a conversation that it opens twice within one minute of the clock is lost.
    `keeps_commands`: commands of a turn go on when that is cancelled. `brings` is the
    package next to the program to start that brings the agent itself, and the field of it that says its version;
    `instead` is the variable that names another program in its place. `store` is the database below $XDG_DATA_HOME
    with its messages, for an agent whose answers count the last step's tokens alone. `sets` are variables that it
    has whatever the runner's say. `login` is the command by which a person signs in.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    how: str
    arguments: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    passes: tuple[str, ...] = ()
    asking_modes: tuple[str, ...] = ()
    opens_once_a_minute: bool = False
    keeps_commands: bool = False
    brings: tuple[str, str] | None = None
    instead: str = ""
    store: str = ""
    sets: Mapping[str, str] = field(default_factory=dict)
    login: str = ""


_COPILOT_MODES = "https://agentclientprotocol.com/protocol/session-modes#"
KNOWN = (
    KnownAgentProgram(
        "claude",
        "Claude Code",
        ("claude-agent-acp",),
        "npm install -g @agentclientprotocol/claude-agent-acp",
        passes=("ANTHROPIC_*", "CLAUDE_*", "DISABLE_AUTOUPDATER", "AWS_*", "CLOUD_ML_REGION"),
        asking_modes=("default", "plan"),
        brings=("@anthropic-ai/claude-agent-sdk", "claudeCodeVersion"),
        instead="CLAUDE_CODE_EXECUTABLE",
        login="claude",
    ),
    KnownAgentProgram(
        "codex",
        "Codex",
        ("codex-acp", "codex"),
        "npm install -g @openai/codex @agentclientprotocol/codex-acp",
        names={"CODEX_PATH": "codex"},
        passes=("OPENAI_*", "CODEX_*", "AZURE_OPENAI_*"),
        asking_modes=("workspace-write", "read-only"),
        keeps_commands=True,  # seen with 0.169 and codex-acp 2.6: only the end of its process ends them
        login="codex login",
    ),
    KnownAgentProgram(
        "gemini",
        "Gemini CLI",
        ("gemini",),
        "npm install -g @google/gemini-cli",
        ("--acp",),
        passes=("GEMINI_*", "GOOGLE_*"),
        asking_modes=("default", "plan"),
        opens_once_a_minute=True,  # 0.61 names a conversation's file by the minute, and empties one that is there
        login="gemini",
    ),
    KnownAgentProgram(
        "opencode",
        "OpenCode",
        ("opencode",),
        "npm install -g opencode-ai",
        ("acp",),
        passes=("OPENCODE_*", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        asking_modes=("build", "plan"),
        store="opencode/opencode.db",
        login="opencode auth login",
    ),
    KnownAgentProgram(
        "copilot",
        "GitHub Copilot CLI",
        ("copilot",),
        "npm install -g @github/copilot",
        ("--acp",),
        passes=("COPILOT_*", "GH_TOKEN", "GITHUB_TOKEN", "GH_HOST"),
        asking_modes=(f"{_COPILOT_MODES}agent", f"{_COPILOT_MODES}plan"),
        sets={"COPILOT_ALLOW_ALL": "false"},  # else its person's shell could have it ask nobody
        login="copilot login",
    ),
    KnownAgentProgram(
        "qwen",
        "Qwen Code",
        ("qwen",),
        "npm install -g @qwen-code/qwen-code",
        ("--acp",),
        passes=("QWEN_*", "OPENAI_*", "DASHSCOPE_*", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"),
        asking_modes=("default", "plan"),
        login="qwen",
    ),
    KnownAgentProgram(
        "kilo",
        "Kilo",
        ("kilo",),
        "npm install -g @kilocode/cli",
        ("acp",),
        passes=("KILO_*", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
        asking_modes=("code", "plan"),
        store="kilo/kilo.db",
        login="kilo auth login",
    ),
    KnownAgentProgram(
        "goose",
        "Goose",
        ("goose",),
        "Install the goose CLI as its documentation says, then run `goose configure`",
        ("acp",),
        passes=("GOOSE_*", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"),
        login="goose configure",
    ),
    # Run as far as they go without an account: to their answer that somebody has to sign in.
    KnownAgentProgram(
        "droid",
        "Factory Droid",
        ("droid",),
        "npm install -g droid",
        ("exec", "--output-format", "acp"),
        passes=("FACTORY_*",),
        login="droid",
    ),
    KnownAgentProgram(
        "cline",
        "Cline",
        ("cline",),
        "npm install -g cline",
        ("--auto-approve", "false", "--acp"),  # it would ask nobody
        passes=("CLINE_*",),
        login="cline auth",
    ),
    KnownAgentProgram(
        "auggie",
        "Auggie",
        ("auggie",),
        "npm install -g @augmentcode/auggie",
        ("--acp",),
        passes=("AUGMENT_*",),
        login="auggie login",
    ),
    KnownAgentProgram(
        "qoder",
        "Qoder CLI",
        ("qodercli",),
        "npm install -g @qoder-ai/qodercli",
        ("--acp",),
        passes=("QODER_*",),
        login="qodercli login",
    ),
    KnownAgentProgram(
        "kimi",
        "Kimi Code",
        ("kimi",),
        "npm install -g @moonshot-ai/kimi-code",
        ("acp",),
        passes=("KIMI_*", "MOONSHOT_*"),
        login="kimi login",
    ),
    KnownAgentProgram(
        "vibe",
        "Mistral Vibe",
        ("vibe-acp",),
        "Install Mistral Vibe as its documentation says",
        passes=("MISTRAL_*", "VIBE_*"),
        login="vibe --setup",
    ),
)


@dataclass(frozen=True, slots=True)
class StartableAgent:
    """An agent that this machine has. `mode` is the one that the settings want a session to begin in.

    `is_configured`: its command is from the settings of this machine. `abilities` are what it said of itself, where it
    was asked (coordinator.runner.probing).
    """

    name: str
    title: str
    command: tuple[str, ...]
    version: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    passes: tuple[str, ...] = ()
    asking_modes: tuple[str, ...] = ()
    mode: str = ""
    opens_once_a_minute: bool = False
    store: str = ""
    keeps_commands: bool = False
    login: str = ""
    is_configured: bool = False
    abilities: Mapping[str, Any] | None = None

    def build_agent_offer(self) -> dict[str, Any]:
        """Return what the runner registers of it. Its command stays on this machine."""
        offer = {"name": self.name, "title": self.title, "version": self.version}
        return offer if self.abilities is None else {**offer, "abilities": dict(self.abilities)}


def find_startable_and_missing_agents(
    wanted_agents: Mapping[str, AgentOptions], path: str | None = None
) -> tuple[list[StartableAgent], list[dict[str, Any]]]:
    """Return the agents that can be started, and of those that cannot {name, title, how, is_configured}.

    `wanted_agents` is what the settings say of agents by name, known ones or not; `path` the PATH they are
    looked for in.
    """
    startable: list[StartableAgent] = []
    missing: list[dict[str, Any]] = []
    agents_by_name = {known_agent.name: known_agent for known_agent in KNOWN}
    names = [*agents_by_name, *(name for name in wanted_agents if name not in agents_by_name)]
    for name in names:
        agent_options = wanted_agents.get(name, AgentOptions())
        if not agent_options.enabled:
            continue
        agent, how = (
            resolve_configured_agent_or_reason(name, agent_options, path)
            if agent_options.command
            else resolve_known_agent_or_reason(agents_by_name[name], agent_options, path)
        )
        if agent is not None:
            startable.append(agent)
        else:
            title = agent_options.title or (agents_by_name[name].title if name in agents_by_name else name)
            missing.append(
                {"name": name, "title": title, "how": how, "is_configured": bool(agent_options.command)}
            )
    return startable, missing


def resolve_configured_agent_or_reason(
    name: str, options: AgentOptions, path: str | None
) -> tuple[StartableAgent | None, str]:
    """Return the agent whose command the settings name, or what its command lacks.

    What we know of an agent with this name, or of the program that is started, holds for it.
    """
    program = shutil.which(os.path.expanduser(options.command[0]), path=path)
    if program is None:
        return None, f"There is no program {options.command[0]!r}: correct `command` in the runner's settings"
    program_name = os.path.basename(options.command[0])
    known_agent = next((known for known in KNOWN if known.name == name), None) or next(
        (known for known in KNOWN if known.needs == (program_name,)), None
    )
    return StartableAgent(
        name,
        options.title or (known_agent.title if known_agent and known_agent.name == name else name),
        (program, *options.command[1:]),
        agent_package_version_or_empty(known_agent, program, path)
        if known_agent
        else package_version_or_empty(program),
        {**(known_agent.sets if known_agent else {}), **options.env},
        (*(known_agent.passes if known_agent else ()), *options.passes),
        known_agent.asking_modes if known_agent else (),
        options.mode,
        known_agent.opens_once_a_minute if known_agent else False,
        known_agent.store if known_agent else "",
        known_agent.keeps_commands if known_agent else False,
        known_agent.login if known_agent else "",
        is_configured=True,
    ), ""


def resolve_known_agent_or_reason(
    known_program: KnownAgentProgram, options: AgentOptions, path: str | None
) -> tuple[StartableAgent | None, str]:
    programs = {need: shutil.which(need, path=path) for need in known_program.needs}
    if None in programs.values():
        return None, known_program.how
    program_paths = {name: shutil.which(program, path=path) for name, program in known_program.names.items()}
    env = {name: program for name, program in program_paths.items() if program and name not in os.environ}
    program = str(programs[known_program.needs[0]])
    return StartableAgent(
        known_program.name,
        options.title or known_program.title,
        (program, *known_program.arguments),
        agent_package_version_or_empty(known_program, program, path),
        {**env, **known_program.sets, **options.env},
        (*known_program.passes, *options.passes),
        known_program.asking_modes,
        options.mode,
        known_program.opens_once_a_minute,
        known_program.store,
        known_program.keeps_commands,
        known_program.login,
    ), ""


def agent_package_version_or_empty(known_program: KnownAgentProgram, program: str, path: str | None) -> str:
    """Return the version of the agent itself, not of an adapter that speaks for it; "" where nobody says it."""
    if known_program.instead and (other := os.environ.get(known_program.instead)):
        return package_version_or_empty(other)
    if known_program.brings is not None:
        package, field_name = known_program.brings
        return package_version_or_empty(program, os.path.join("node_modules", package), field_name)
    if len(known_program.needs) > 1:
        own = shutil.which(known_program.needs[-1], path=path)
        return package_version_or_empty(own) if own else ""
    return package_version_or_empty(program)


def package_version_or_empty(program: str, program_path: str = "", field_name: str = "version") -> str:
    """Return the version that the package around a program says, without starting it; "" where none does.

    `program_path`: the package's path, seen from the program's folder or one around it.
    """
    folder = os.path.dirname(os.path.realpath(program))
    for _ in range(6 if program_path else 4):
        try:
            with open(os.path.join(folder, program_path, "package.json"), "rb") as file:
                decoded: Any = json.loads(file.read(1 << 20))
            version = decoded.get(field_name) if isinstance(decoded, dict) else None
            if isinstance(version, str):
                return version[:40]
        except (OSError, ValueError, RecursionError):
            pass
        folder = os.path.dirname(folder)
    return ""
