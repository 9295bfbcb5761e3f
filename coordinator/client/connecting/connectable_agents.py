"""Agents that can be connected: how each is found, what its settings must hold, and what people must do next. Pure.

Codex 0.169.0, Gemini CLI 0.61.0, OpenCode 1.18.33, Claude Code 2.1.197, GitHub Copilot CLI 1.0.102, Qwen Code 0.24.4
and Kilo 7.7.9 were run. For Cursor (cursor.com, hooks) and Goose (its repository, guides/hooks) only the
documentation was read, in November 2026.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from coordinator.client.connecting.lines import FormerLines
from coordinator.client.connecting.merging import SettingsEntries
from coordinator.client.connecting.toml_tables import TomlTable, TomlValue
from coordinator.client.connecting.yaml_entries import YamlEntry

WAITING = 590  # seconds that a hook which holds a call may take; most agents' own limit is 600
# Qwen Code 0.24.4 lets the call run after 60 s, whatever timeout its settings give the hook.
WAITING_IN_QWEN_CODE = 50
QUICK = 10  # seconds for one that only reports
HOOK_FAILED = (
    "The hook that asks Signalbox was killed or did not work, so this call did not run."
    " Try again. If that does not help, run: signalbox connect --check"
)

# A Codex in the background ends a session when it unloads it, long after /quit unless its settings say otherwise.
CODEX_UNLOADS_AFTER = 15  # seconds
HOME = "~/"  # begins a file that is next to the agent's folder, not in it
MCP_SECONDS = 3600  # that a call of an MCP tool may take: a person may have to be asked
TAKEN = "an MCP server called signalbox is set up there already, so the gateway was not added"

Entries = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A file that is ours alone: its place below the agent's folder, and what it holds."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class HookInvocation:
    """How hooks call us: the program (its words), and which server's the telemetry is, with which key ("": none).

    With `gateway` the agent is given Signalbox's MCP servers, too, and with `status_line` the status line that reports
    the limits of its subscription.
    """

    program: tuple[str, ...]
    url: str
    key: str = ""
    gateway: bool = False
    status_line: bool = False

    def hook_command(self, agent: str, seconds: float) -> str:
        """Return the shell command of a hook whose agent waits `seconds` for it."""
        return shlex.join([*self.program, "hook", agent, "--timeout", f"{seconds:g}"])

    def fail_closed_hook_command(self, agent: str, seconds: float) -> str:
        """Return the same for an agent that goes on where its hook fails, and that exit code 2 stops.

        The hook ends with 0 where it has answered, or has nothing to say. Every other end blocks the call: killed,
        crashed, or not there any more.
        """
        blocks = f'{{ echo "{HOOK_FAILED}" >&2; exit 2; }}'
        return shlex.join(["/bin/sh", "-c", f"{self.hook_command(agent, seconds)} || {blocks}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectableAgent:
    """An agent: it keeps its settings in `home` (below the person's; `variable` may move it).

    `programs` on the PATH and folders in `signs` (default: `home`) show that it is on this machine.
    `file` are the settings that are merged into, below that folder, where it has some; `build_entries` says with what,
    `telemetry` which table of the TOML file `mcp_file` sends its telemetry here, `toml_value` which value that file
    is to hold, too, `former_lines` what older versions wrote, `own` which files are ours alone, and `plugin` where the
    server's plugin file goes, which was made for `plugin_of` (this agent, or the one that it is a fork of).
    `background` is where a server of its own listens in the background, and the command that restarts it. `trial`
    makes the hooks of a session that begins and ends, by its id and folder. `afterwards` is what a person must do,
    `switches` are settings that turn hooks off: (file, path, the value that does); `project_switches` are those of a
    project's own files, and `from_projects` says what a project can do against the hooks, and what holds against that.
    `mcp` is how the agent is given the gateway, in the file `mcp_file`. One that `has_status_line` reports the limits
    of its subscription by it alone.
    """

    name: str
    title: str
    programs: tuple[str, ...]
    home: str
    afterwards: str
    signs: tuple[str, ...] = ()
    variable: str | None = None
    file: str | None = None
    build_entries: Callable[[HookInvocation], SettingsEntries] | None = None
    telemetry: Callable[[HookInvocation], TomlTable] | None = None
    toml_value: TomlValue | None = None
    background: tuple[str, str] | None = None
    former_lines: tuple[FormerLines, ...] = ()
    own: Callable[[HookInvocation], list[GeneratedFile]] = lambda _call: []
    switches: tuple[tuple[str, tuple[str, ...], Any], ...] = ()
    project_switches: tuple[tuple[str, tuple[str, ...], Any], ...] = ()
    from_projects: str = ""
    plugin: str | None = None
    plugin_of: str = "opencode"
    mcp: Callable[[HookInvocation], SettingsEntries | TomlTable | YamlEntry] | None = None
    mcp_file: str | None = None
    trial: Callable[[str, str], list[dict[str, Any]]] | None = None
    has_status_line: bool = False
    was_run: bool = True

    def settings_folder(self, home: str, environment: Mapping[str, str]) -> str:
        """Return where the agent keeps its settings."""
        moved = environment.get(self.variable or "", "")
        return os.path.expanduser(moved) if moved else os.path.join(home, self.home)

    def separate_mcp_path_or_none(self, home: str, environment: Mapping[str, str]) -> str | None:
        """Return the file with the agent's MCP servers; None where it is the one with its hooks."""
        if self.mcp_file is None:
            return None
        moved = environment.get(self.variable or "", "")
        name = self.mcp_file.removeprefix(HOME)
        if name != self.mcp_file and not moved:
            return os.path.join(home, name)
        return os.path.join(self.settings_folder(home, environment), name)

    def is_agent_installed(self, home: str, environment: Mapping[str, str]) -> bool:
        """Say whether the agent seems to be used on this machine."""
        signs = [os.path.join(home, program_name) for program_name in self.signs] or [
            self.settings_folder(home, environment)
        ]
        if any(os.path.isdir(one) for one in signs):
            return True
        search_folders = environment.get("PATH", "").split(os.pathsep)
        return any(
            os.access(os.path.join(p, one), os.X_OK) for p in search_folders if p for one in self.programs
        )


def fill_plugin_template(text: str, agent: str, call: HookInvocation) -> str:
    """Return the plugin file for an agent, with the words by which it calls us.

    Raises ValueError where the file has no place for them: an older server made it.
    """
    values = {"AGENT": agent, "HOOK_PROGRAM": list(call.program), "SERVER": call.url}
    for name, value in values.items():
        match = re.search(rf"^const {name} = (.*?) //", text, re.MULTILINE)
        if match is None:
            raise ValueError(name)
        text = text[: match.start(1)] + json.dumps(value) + text[match.end(1) :]
    return text


# --- entries ----------------------------------------------------------------------------------------------


def build_claude_style_hook_entries(
    agent: str,
    call: HookInvocation,
    events: Mapping[str, int],
    unit: int = 1,
    *,
    blocks_itself: bool = False,
    shows_status: bool = False,
) -> Entries:
    """Return entries in Claude Code's form: `{"hooks": [{type, command, timeout}]}`; `unit` is a second's length.

    An agent that `blocks_itself` has a setting by which it denies the call where the hook does not decide. One that
    `shows_status` shows what a hook says of itself in the terminal while the hook runs.
    """
    return {
        event: {
            "hooks": [
                {
                    "type": "command",
                    "command": choose_hook_command(agent, call, seconds, blocks_itself=blocks_itself),
                    "timeout": seconds * unit,
                    **({"on_failure": "block"} if blocks_itself and seconds > QUICK else {}),
                    **(
                        {"statusMessage": waiting_message_with_approvals_url(call.url)}
                        if shows_status and seconds > QUICK
                        else {}
                    ),
                }
            ]
        }
        for event, seconds in events.items()
    }


def waiting_message_with_approvals_url(url: str) -> str:
    """Return what an agent's terminal shows while a hook of ours holds a call."""
    return f"Waiting for approval in Signalbox: {url}/ui/approvals/"


def choose_hook_command(
    agent: str, call: HookInvocation, seconds: float, *, blocks_itself: bool = False
) -> str:
    if seconds <= QUICK or blocks_itself:
        return call.hook_command(agent, seconds)
    return call.fail_closed_hook_command(agent, seconds)


_ELSEWHERE = "it sends its telemetry elsewhere, so Signalbox will not see its tokens and costs"


def claude_code_settings_entries(call: HookInvocation) -> SettingsEntries:
    return SettingsEntries(
        "claude-code",
        build_claude_style_hook_entries("claude-code", call, CLAUDE_CODE_EVENTS, shows_status=True),
        values={
            ("env", "CLAUDE_CODE_ENABLE_TELEMETRY"): "1",
            ("env", "OTEL_LOGS_EXPORTER"): "otlp",
            ("env", "OTEL_EXPORTER_OTLP_PROTOCOL"): "http/json",
            ("env", "OTEL_EXPORTER_OTLP_ENDPOINT"): call.url,
            ("otelHeadersHelper",): shlex.join([*call.program, "headers"]),
        },
        given_way=_ELSEWHERE,
        status_line=shlex.join([*call.program, "status-line"]) if call.status_line else "",
    )


def codex_settings_entries(call: HookInvocation) -> SettingsEntries:
    return SettingsEntries(
        "codex", build_claude_style_hook_entries("codex", call, CODEX_EVENTS, shows_status=True)
    )


def codex_telemetry_table(call: HookInvocation) -> TomlTable:
    """Return what sends Codex's telemetry here; its settings fill in no variables, so they hold the key itself."""

    def build_codex_exporter(signal: str) -> dict[str, Any]:
        sends: dict[str, Any] = {"endpoint": f"{call.url}/v1/{signal}", "protocol": "json"}
        if call.key:
            sends["headers"] = {"Authorization": f"Bearer {call.key}"}
        return {"otlp-http": sends}

    values = {
        "exporter": build_codex_exporter("logs"),
        "trace_exporter": build_codex_exporter("traces"),
        "log_user_prompt": True,
    }

    def is_signalbox_telemetry_table(table: Mapping[str, Any]) -> bool:
        return any(
            is_exporter_to_signalbox(table.get(name), call.url) for name in ("exporter", "trace_exporter")
        )

    return TomlTable("codex", ("otel",), values, is_signalbox_telemetry_table, call.key, is_whole=False)


def is_exporter_to_signalbox(exporter: Any, url: str) -> bool:
    """Say whether an exporter of Codex sends to Signalbox: to this address, or with a key of Signalbox's."""
    sends = exporter.get("otlp-http") if isinstance(exporter, dict) else None
    if not isinstance(sends, dict):
        return False
    headers = sends.get("headers")
    key = headers.get("Authorization") if isinstance(headers, dict) else None
    return str(sends.get("endpoint")).startswith(f"{url}/v1/") or str(key).startswith("Bearer sbx_")


def gemini_settings_entries(call: HookInvocation) -> SettingsEntries:
    """Return Gemini CLI's entries, without telemetry: its exporter holds up its end where the server is away."""
    former: dict[tuple[str, ...], Any] = {
        ("telemetry", "enabled"): True,
        ("telemetry", "target"): "local",
        ("telemetry", "otlpEndpoint"): call.url,
        ("telemetry", "otlpProtocol"): "http",
    }
    return SettingsEntries(
        "gemini",
        gemini_hook_entries(call),
        values=gemini_mcp_command_entry(call),
        given_way=TAKEN,
        is_ours=build_gateway_server_predicate(call),
        former_values=former,
    )


def gemini_hook_entries(call: HookInvocation) -> Entries:
    """Return the hooks, with a name for the one that holds calls: while it runs, Gemini CLI shows that on its screen.

    It reads "Executing Hook: Signalbox (…)"; without a name it would show the whole command.
    """
    entries = build_claude_style_hook_entries("gemini", call, GEMINI_EVENTS, unit=1000)
    name = f"Signalbox (approvals: {call.url}/ui/approvals/)"
    for event, seconds in GEMINI_EVENTS.items():
        if seconds == WAITING:
            entries = {
                **entries,
                event: {"hooks": [{"name": name, **hook} for hook in entries[event]["hooks"]]},
            }
    return entries


def qwen_code_settings_entries(call: HookInvocation) -> SettingsEntries:
    return SettingsEntries(
        "qwen-code",
        build_claude_style_hook_entries("qwen-code", call, QWEN_CODE_EVENTS),
        values=gemini_mcp_command_entry(call),  # whose form it has kept
        given_way=TAKEN,
        is_ours=build_gateway_server_predicate(call),
    )


def gemini_mcp_command_entry(call: HookInvocation) -> dict[tuple[str, ...], Any]:
    program, *arguments = call.program
    server = {"command": program, "args": [*arguments, "mcp"], "timeout": MCP_SECONDS * 1000}
    return {("mcpServers", "signalbox"): server} if call.gateway else {}


# The gateway: agents that ask a program for headers are given its address; for others a program of ours speaks to it,
# so that the key is in no settings.


def build_mcp_server_settings(
    agent: str, at: tuple[str, ...], server: Mapping[str, Any], call: HookInvocation
) -> SettingsEntries:
    return SettingsEntries(
        agent, {}, values={at: server}, given_way=TAKEN, is_ours=build_gateway_server_predicate(call)
    )


def build_gateway_server_predicate(call: HookInvocation) -> Callable[[Mapping[str, Any]], bool]:
    """Return a matcher for the MCP server in an agent's settings that is the gateway, whichever version wrote it.

    Agents rewrite their settings, with members of their own and without our comments. The command that it starts
    identifies it.
    """

    def is_gateway_server(server: Mapping[str, Any]) -> bool:
        begins = server.get("command", server.get("cmd"))
        program_words = begins if isinstance(begins, list) else [begins, *(server.get("args") or [])]
        helper, ends = server.get("headersHelper"), " headers --mcp"
        if isinstance(helper, str) and helper.endswith(ends):
            with suppress(ValueError):
                program_words = [*shlex.split(helper.removesuffix(ends)), "mcp"]
        return program_words[-1:] == ["mcp"] and (
            tuple(program_words[:-1]) == call.program
            or any(
                str(word).replace(os.sep, "/").endswith("coordinator/client/launch.py")
                for word in program_words
            )
        )

    return is_gateway_server


def claude_code_mcp_entries(call: HookInvocation) -> SettingsEntries:
    helper = shlex.join([*call.program, "headers", "--mcp"])
    server = {"type": "http", "url": f"{call.url}/mcp", "headersHelper": helper}
    return build_mcp_server_settings("claude-code", ("mcpServers", "signalbox"), server, call)


def codex_mcp_table(call: HookInvocation) -> TomlTable:
    program, *arguments = call.program
    values = {"command": program, "args": [*arguments, "mcp"], "tool_timeout_sec": MCP_SECONDS}
    return TomlTable("codex", ("mcp_servers", "signalbox"), values, build_gateway_server_predicate(call))


def opencode_mcp_entries(call: HookInvocation) -> SettingsEntries:
    server = {"type": "local", "command": [*call.program, "mcp"], "enabled": True}
    return build_mcp_server_settings("opencode", ("mcp", "signalbox"), server, call)


def kilo_mcp_entries(call: HookInvocation) -> SettingsEntries:
    return replace(opencode_mcp_entries(call), agent="kilo")


def copilot_mcp_entries(call: HookInvocation) -> SettingsEntries:
    program, *arguments = call.program
    server = {"type": "local", "command": program, "args": [*arguments, "mcp"], "tools": ["*"]}
    return build_mcp_server_settings("copilot", ("mcpServers", "signalbox"), server, call)


def cursor_mcp_entries(call: HookInvocation) -> SettingsEntries:
    program, *arguments = call.program
    server = {"command": program, "args": [*arguments, "mcp"]}
    return build_mcp_server_settings("cursor", ("mcpServers", "signalbox"), server, call)


def goose_mcp_entry(call: HookInvocation) -> YamlEntry:
    program, *arguments = call.program
    values = {
        "enabled": True,
        "type": "stdio",
        "name": "signalbox",
        "description": "MCP servers through Signalbox",
        "cmd": program,
        "args": [*arguments, "mcp"],
        "envs": {},
        "timeout": MCP_SECONDS,
    }
    return YamlEntry("goose", ("extensions", "signalbox"), values, build_gateway_server_predicate(call))


def cursor_settings_entries(call: HookInvocation) -> SettingsEntries:
    hooks = {
        event: {"command": choose_hook_command("cursor", call, seconds), "timeout": seconds}
        for event, seconds in CURSOR_EVENTS.items()
    }
    return SettingsEntries("cursor", hooks, basics={("version",): 1})


def copilot_hook_files(call: HookInvocation) -> list[GeneratedFile]:
    # It denies a call whose hook crashes by itself.
    hooks = {
        event: [{"type": "command", "bash": call.hook_command("copilot", seconds), "timeoutSec": seconds}]
        for event, seconds in COPILOT_EVENTS.items()
    }
    return [GeneratedFile("hooks/signalbox.json", format_indented_json({"version": 1, "hooks": hooks}))]


def goose_plugin_files(call: HookInvocation) -> list[GeneratedFile]:
    # Without a decision from our hook Goose then denies the call, also where the hook was killed.
    entries = build_claude_style_hook_entries("goose", call, GOOSE_EVENTS, blocks_itself=True)
    manifest = {"name": "signalbox", "version": "1.0.0", "description": "Reports to Signalbox and asks it."}
    return [
        GeneratedFile("plugins/signalbox/plugin.json", format_indented_json(manifest)),
        GeneratedFile(
            "plugins/signalbox/hooks/hooks.json",
            format_indented_json({"hooks": {event: [entry] for event, entry in entries.items()}}),
        ),
    ]


def format_indented_json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def make_test_hook_payload_builder(
    session: str, event: str, begins: str, ends: str, **more: Any
) -> Callable[[str, str], list[dict[str, Any]]]:
    return lambda mark, folder: [
        {session: mark, event: name, "cwd": folder, **more} for name in (begins, ends)
    ]


# --- events: how many seconds each agent gives the hook ------------------------------------------------------

CLAUDE_CODE_EVENTS = {
    "SessionStart": QUICK,
    "UserPromptSubmit": QUICK,
    "PreToolUse": WAITING,
    "PermissionRequest": WAITING,
    "PreSkillShellCommand": WAITING,
    "UserPromptExpansion": WAITING,
    "PostToolUse": QUICK,
    "PostToolUseFailure": QUICK,
    "PermissionDenied": QUICK,
    "Notification": QUICK,
    "MessageDisplay": QUICK,
    "SubagentStart": QUICK,
    "SubagentStop": QUICK,
    "Stop": QUICK,
    "StopFailure": QUICK,
    "PreCompact": QUICK,
    "PostCompact": QUICK,
    # What these report is on the timeline. Names that the installed version does not know are not registered.
    "PostModelSwitch": QUICK,
    "ConfigChange": QUICK,
    "DirectoryAdded": QUICK,
    "CwdChanged": QUICK,
    "InstructionsLoaded": QUICK,
    "TaskCreated": QUICK,
    "TaskCompleted": QUICK,
    "TeammateIdle": QUICK,
    "Elicitation": QUICK,
    "ElicitationResult": QUICK,
    "SessionEnd": QUICK,
}
CODEX_EVENTS = {
    "SessionStart": QUICK,
    "UserPromptSubmit": QUICK,
    "PreToolUse": WAITING,
    "PermissionRequest": WAITING,
    "PostToolUse": QUICK,
    "Stop": QUICK,
    "SessionEnd": 3,  # more it does not give
}
GEMINI_EVENTS = {
    "SessionStart": QUICK,
    "BeforeAgent": QUICK,
    "BeforeTool": WAITING,
    "AfterTool": QUICK,
    "AfterAgent": QUICK,
    "Notification": QUICK,
    "SessionEnd": QUICK,
}
# Not PermissionRequest: while it waits, nobody at the terminal could answer.
QWEN_CODE_EVENTS = {
    "SessionStart": QUICK,
    "UserPromptSubmit": QUICK,
    "PreToolUse": WAITING_IN_QWEN_CODE,
    "PostToolUse": QUICK,
    "PostToolUseFailure": QUICK,
    "Notification": QUICK,
    "SubagentStop": QUICK,
    "Stop": QUICK,
    "StopFailure": QUICK,
    "SessionEnd": QUICK,
}
# Not PermissionRequest: it comes for nearly every call that PreToolUse has reported already.
COPILOT_EVENTS = {
    "SessionStart": QUICK,
    "UserPromptSubmit": QUICK,
    "PreToolUse": WAITING,
    "PostToolUse": QUICK,
    "PostToolUseFailure": QUICK,
    "ErrorOccurred": QUICK,
    "Notification": QUICK,
    "Stop": QUICK,
    "SubagentStop": QUICK,
    "SessionEnd": QUICK,
}
# Cursor reports each call twice: by these, for every tool, and by hooks of its kind, which edits of files do not have.
CURSOR_EVENTS = {
    "sessionStart": QUICK,
    "beforeSubmitPrompt": QUICK,
    "preToolUse": WAITING,
    "postToolUse": QUICK,
    "postToolUseFailure": QUICK,
    "afterAgentResponse": QUICK,
    "stop": QUICK,
    "sessionEnd": QUICK,
}
GOOSE_EVENTS = {
    "SessionStart": QUICK,
    "UserPromptSubmit": QUICK,
    "PreToolUse": WAITING,
    "PostToolUse": QUICK,
    "PostToolUseFailure": QUICK,
    "Stop": QUICK,
    "SessionEnd": QUICK,
}

# Hooks that agents know and that we leave out: they report nothing more, or change what the agent does (a hook for
# WorktreeCreate has to make the work tree itself).
LEFT_OUT = {
    "claude-code": frozenset(
        {"PostToolBatch", "PreModelSwitch", "WorktreeCreate", "WorktreeRemove", "FileChanged", "Setup"}
    ),
    "gemini": frozenset({"PreCompress", "BeforeModel", "AfterModel", "BeforeToolSelection"}),
    "qwen-code": frozenset(
        {
            "InstructionsLoaded",
            "MessageDisplay",
            "PermissionDenied",
            "PermissionRequest",
            "PostCompact",
            "PostToolBatch",
            "PreCompact",
            "SessionDelete",
            "SubagentStart",
            "TodoCompleted",
            "TodoCreated",
            "UserPromptExpansion",
        }
    ),
}
# The hooks that we use, of agents whose program says which it knows.
READABLE_HOOKS = {
    "claude-code": frozenset(CLAUDE_CODE_EVENTS),
    "gemini": frozenset(GEMINI_EVENTS),
    "qwen-code": frozenset(QWEN_CODE_EVENTS),
}

# --- the agents -------------------------------------------------------------------------------------------

_RESTART = "Restart {0}: sessions that run now are not reported."

CONNECTABLE_AGENTS: dict[str, ConnectableAgent] = {
    agent.name: agent
    for agent in (
        ConnectableAgent(
            name="claude-code",
            trial=make_test_hook_payload_builder(
                "session_id", "hook_event_name", "SessionStart", "SessionEnd"
            ),
            title="Claude Code",
            programs=("claude",),
            home=".claude",
            variable="CLAUDE_CONFIG_DIR",
            file="settings.json",
            build_entries=claude_code_settings_entries,
            has_status_line=True,
            mcp=claude_code_mcp_entries,
            mcp_file=f"{HOME}.claude.json",
            afterwards=_RESTART.format("Claude Code"),
            switches=(("settings.json", ("disableAllHooks",), True),),
            project_switches=(
                (".claude/settings.json", ("disableAllHooks",), True),
                (".claude/settings.local.json", ("disableAllHooks",), True),
            ),
            from_projects=(
                "A project's .claude/settings.json or settings.local.json can switch all hooks off (disableAllHooks)."
                " Hooks in managed settings stay on: the page Connections has them ready to paste."
            ),
        ),
        ConnectableAgent(
            name="codex",
            trial=make_test_hook_payload_builder(
                "session_id", "hook_event_name", "SessionStart", "SessionEnd"
            ),
            title="Codex",
            programs=("codex",),
            home=".codex",
            variable="CODEX_HOME",
            file="hooks.json",
            build_entries=codex_settings_entries,
            telemetry=codex_telemetry_table,
            toml_value=TomlValue("codex", "thread_unload_delay_secs", CODEX_UNLOADS_AFTER),
            background=("app-server-control/app-server-control.sock", "codex app-server daemon restart"),
            mcp=codex_mcp_table,
            mcp_file="config.toml",
            afterwards="Start Codex, enter /hooks and trust the new hooks: until then Codex skips them.",
            switches=(
                ("config.toml", ("features", "hooks"), False),
                ("config.toml", ("features", "codex_hooks"), False),
            ),
            project_switches=(
                (".codex/config.toml", ("features", "hooks"), False),
                (".codex/config.toml", ("features", "codex_hooks"), False),
            ),
            from_projects=(
                "The .codex/config.toml of a project that you trust can switch all hooks off (features.hooks)."
                " `[features] hooks = true` in /etc/codex/requirements.toml holds against that."
            ),
        ),
        ConnectableAgent(
            name="gemini",
            trial=make_test_hook_payload_builder(
                "session_id", "hook_event_name", "SessionStart", "SessionEnd"
            ),
            title="Gemini CLI",
            programs=("gemini",),
            home=".gemini",
            file="settings.json",
            build_entries=gemini_settings_entries,
            former_lines=(FormerLines("gemini", ".env", "OTEL_EXPORTER_OTLP_HEADERS"),),
            afterwards=_RESTART.format("Gemini CLI"),
            switches=(
                ("settings.json", ("hooksConfig", "enabled"), False),
                ("settings.json", ("tools", "enableHooks"), False),
            ),
            project_switches=(
                (".gemini/settings.json", ("hooksConfig", "enabled"), False),
                (".gemini/settings.json", ("tools", "enableHooks"), False),
            ),
            from_projects=(
                "A project's .gemini/settings.json can switch all hooks off (hooksConfig.enabled), or ours alone"
                " (hooksConfig.disabled). `hooksConfig` in /etc/gemini-cli/settings.json holds against that, and"
                " security.folderTrust in your own settings has you asked first."
            ),
        ),
        ConnectableAgent(
            name="opencode",
            trial=make_test_hook_payload_builder(
                "session_id", "hook_event_name", "session.created", "session.deleted"
            ),
            title="OpenCode",
            programs=("opencode",),
            home=".config/opencode",
            variable="OPENCODE_CONFIG_DIR",
            plugin="plugins/signalbox.js",
            mcp=opencode_mcp_entries,
            mcp_file="opencode.json",
            from_projects=(
                "A project's plugins (.opencode/plugins, opencode.json) run in the same process and can undo ours."
                " Nothing holds against that: start OpenCode only in projects that you trust."
            ),
            afterwards=_RESTART.format("OpenCode"),
        ),
        ConnectableAgent(
            name="copilot",
            trial=make_test_hook_payload_builder(
                "session_id", "hook_event_name", "SessionStart", "SessionEnd"
            ),
            title="GitHub Copilot CLI",
            programs=("copilot",),
            home=".copilot",
            variable="COPILOT_HOME",
            own=copilot_hook_files,
            mcp=copilot_mcp_entries,
            mcp_file="mcp-config.json",
            afterwards=_RESTART.format("Copilot CLI"),
            project_switches=tuple(
                (file, ("disableAllHooks",), True)
                for folder in (".github/copilot", ".claude")
                for file in (f"{folder}/settings.json", f"{folder}/settings.local.json")
            ),
            from_projects=(
                "The .github/copilot/settings.json or .claude/settings.json of a project that you trust, and the"
                " settings.local.json beside each, can switch all hooks off (disableAllHooks)."
            ),
        ),
        ConnectableAgent(
            name="qwen-code",
            trial=make_test_hook_payload_builder(
                "session_id", "hook_event_name", "SessionStart", "SessionEnd"
            ),
            title="Qwen Code",
            programs=("qwen",),
            home=".qwen",
            file="settings.json",
            build_entries=qwen_code_settings_entries,
            afterwards=_RESTART.format("Qwen Code"),
            switches=(("settings.json", ("disableAllHooks",), True),),
            project_switches=((".qwen/settings.json", ("disableAllHooks",), True),),
            from_projects=(
                "A project's .qwen/settings.json can switch all hooks off (disableAllHooks). The options --bare and"
                " --safe-mode switch them off, too."
            ),
        ),
        ConnectableAgent(
            name="kilo",
            trial=make_test_hook_payload_builder(
                "session_id", "hook_event_name", "session.created", "session.deleted"
            ),
            title="Kilo",
            programs=("kilo",),
            home=".config/kilo",
            variable="KILO_CONFIG_DIR",
            plugin="plugins/signalbox.js",
            mcp=kilo_mcp_entries,
            mcp_file="kilo.json",
            from_projects=(
                "A project's plugins (.kilo/plugins, .kilocode/plugins) run in the same process and can undo ours."
                " Nothing holds against that: start Kilo only in projects that you trust."
            ),
            afterwards=_RESTART.format("Kilo"),
        ),
        ConnectableAgent(
            name="cursor",
            trial=make_test_hook_payload_builder(
                "conversation_id", "hook_event_name", "sessionStart", "sessionEnd"
            ),
            title="Cursor",
            programs=("cursor", "cursor-agent"),
            home=".cursor",
            file="hooks.json",
            build_entries=cursor_settings_entries,
            mcp=cursor_mcp_entries,
            mcp_file="mcp.json",
            afterwards="Restart Cursor. Its settings list the hooks under Hooks.",
            was_run=False,
        ),
        ConnectableAgent(
            name="goose",
            trial=make_test_hook_payload_builder("session_id", "event", "SessionStart", "SessionEnd"),
            title="Goose",
            programs=(),  # another well-known program is called goose, too
            home=".agents",
            signs=(".config/goose",),
            own=goose_plugin_files,
            mcp=goose_mcp_entry,
            mcp_file=f"{HOME}.config/goose/config.yaml",
            afterwards=_RESTART.format("Goose"),
            was_run=False,
        ),
    )
}
