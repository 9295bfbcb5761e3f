"""`signalbox connect`: find the agents here, show what would change, ask, merge it in, try it. And `--check`."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.client import hook_agents, launch, settings
from coordinator.client.connecting import (
    connectable_agents,
    connection_test,
    files,
    hook_names,
    http_requests,
    plans,
    record,
)
from coordinator.client.connecting.connectable_agents import (
    CONNECTABLE_AGENTS,
    ConnectableAgent,
    HookInvocation,
)
from coordinator.client.connecting.files import FileRefused
from coordinator.client.connecting.plans import FileChange, UserHome
from coordinator.client.connection import replace_localhost_subdomain
from coordinator.client.settings import ClientSettings, NotConnected

WRONG, USAGE = 1, 2
NOT_THERE = 404
DEFAULT_URL = "http://127.0.0.1:8765"
KEY_MARK = "sbx_"
TRUSTS_ENVIRONMENT = (
    "Its hooks were written by an older Signalbox. Started that way, they trust the environment, which the settings of"
    " a project can change: a denied call could run."
)


class CommandStopped(Exception):
    """The command ends here; the text says why."""


def run(arguments: Sequence[str]) -> int:
    """Connect agents, or check what was connected; return the exit code."""
    args = build_connect_parser().parse_args(list(arguments))
    home = UserHome(os.path.expanduser("~"), os.environ, current_folder_or_empty())
    try:
        return (
            print_differences_and_return_code(args, home)
            if args.check
            else connect_and_test_agents(args, home)
        )
    except (CommandStopped, FileRefused, NotConnected, http_requests.ServerRequestFailed) as problem:
        sys.stderr.write(f"{problem}\n")
    except OSError as problem:
        sys.stderr.write(f"{problem.filename or 'A file'}: {problem.strerror}. Nothing else was changed.\n")
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("\nStopped. Nothing else was changed.\n")
    return WRONG


def current_folder_or_empty() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return ""


def build_connect_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="signalbox connect",
        description="Make the agents on this machine report to Signalbox and ask there. Shows each change first.",
        epilog=f"Agents: {', '.join(CONNECTABLE_AGENTS)}. Without names: those that are found here.",
    )
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="which agents to connect")
    parser.add_argument(
        "--url", help=f"Signalbox's address (default: the one used before, else {DEFAULT_URL})"
    )
    parser.add_argument("--yes", action="store_true", help="change the settings without asking")
    parser.add_argument(
        "--check", action="store_true", help="only say what differs; exit code 1 if anything does"
    )
    parser.add_argument(
        "--no-gateway", action="store_true", help="do not give the agents Signalbox's MCP servers"
    )
    parser.add_argument(
        "--status-line",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="have Claude Code's status line report the limits of its subscription; your own goes on showing",
    )
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="read the code or key from a file (- for standard input), not from the terminal",
    )
    return parser


# --- connecting -------------------------------------------------------------------------------------------


def connect_and_test_agents(options: argparse.Namespace, home: UserHome) -> int:
    client_settings = settings.read_client_settings_or_none()
    url = http_requests.normalize_server_url(
        options.url
        or os.environ.get(settings.URL_VARIABLE)
        or (client_settings.url if client_settings else DEFAULT_URL)
    )
    agents = require_named_or_installed_agents(options.agents, home)
    key = reuse_or_exchange_server_key(url, client_settings, options.key_file)
    call = HookInvocation(
        build_client_command(),
        url,
        key,
        gateway=not options.no_gateway and check_gateway_access_or_warn(url, key),
        status_line=has_status_line(client_settings) if options.status_line is None else options.status_line,
    )
    edited_files = record.load_edited_files_by_path()
    changes = [
        agent_change
        for agent in agents
        for agent_change in download_plugin_and_plan_changes(agent, call, home, edited_files, client_settings)
    ]
    print_changes(changes, home)
    if any(change.has_effect for change in changes) and not options.yes:
        require_user_confirmation_of_changes()
    connected = dict(client_settings.agents) if client_settings else {}
    for agent in agents:
        settings_record: dict[str, Any] = {"program": list(call.program), "gateway": call.gateway}
        if agent.file:  # `signalbox hook` looks there which hooks are registered
            settings_record["file"] = os.path.join(
                agent.settings_folder(home.home, home.environment), agent.file
            )
        if agent.has_status_line:
            settings_record["status_line"] = call.status_line
        connected[agent.name] = {**connected.get(agent.name, {}), **settings_record}
    settings.save_client_settings(
        ClientSettings(url, key, connected, settings.collect_connection_environment())
    )
    if repository := files.find_git_repository(settings.client_settings_path()):
        path = home.shorten_home_path(settings.client_settings_path())
        sys.stderr.write(
            f"{path} holds the key and lies in the git repository {repository}. Do not commit it.\n"
        )
    plans.apply_file_changes(changes, edited_files, connects=True)
    for agent in agents:
        print_connected_notes(agent, call, home)
    works = [run_and_print_connection_test(agent, call, url, key) for agent in agents]
    sys.stdout.write(
        "Earlier sessions: signalbox import. As they grow, hooks or not: signalbox import --watch\n"
    )
    return 0 if all(works) else WRONG


def find_saved_hook_invocation(settings: ClientSettings | None, agent: str) -> HookInvocation | None:
    """Return how the agent's hooks call us since it was connected, or None where it was not."""
    remembered = settings.agents.get(agent) if settings else None
    program = remembered.get("program") if remembered else None
    if (
        settings is None
        or not isinstance(program, list)
        or not all(isinstance(word, str) for word in program)
    ):
        return None
    return HookInvocation(
        tuple(program),
        settings.url,
        settings.key,
        gateway=(remembered or {}).get("gateway") is True,
        status_line=(remembered or {}).get("status_line") is True,
    )


def has_status_line(settings: ClientSettings | None) -> bool:
    """Say whether an agent here was given our status line."""
    records = settings.agents.values() if settings else ()
    return any(agent_record.get("status_line") is True for agent_record in records)


def require_named_or_installed_agents(names: Sequence[str], home: UserHome) -> list[ConnectableAgent]:
    # What `signalbox hook` does not know, it would block.
    known_agents = {
        name: agent for name, agent in CONNECTABLE_AGENTS.items() if name in hook_agents.HOOK_AGENTS
    }
    for name in names:
        if name not in known_agents:
            raise CommandStopped(f"There is no agent {name!r}. Known agents: {', '.join(known_agents)}.")
    if names:
        return [known_agents[name] for name in dict.fromkeys(names)]
    installed_agents = [
        agent for agent in known_agents.values() if agent.is_agent_installed(home.home, home.environment)
    ]
    if not installed_agents:
        raise CommandStopped(
            f"None of the known agents was found here. Name those to connect: {', '.join(known_agents)}."
        )
    sys.stdout.write(f"Found here: {', '.join(agent.title for agent in installed_agents)}.\n")
    return installed_agents


def build_client_command() -> tuple[str, ...]:
    """Return the words that start this program from anywhere, apart from the caller's environment.

    Python and the file are named in full: agents have a PATH of their own, and a project may change it.
    """
    launcher = os.path.abspath(launch.__file__)
    return (
        sys.executable,
        "-I",
        "-S",
        launcher,
        "--settings",
        os.path.abspath(settings.client_settings_path()),
    )


def download_plugin_and_plan_changes(
    agent: ConnectableAgent,
    call: HookInvocation,
    home: UserHome,
    edited_files: Mapping[str, record.EditedFile],
    settings: ClientSettings | None,
) -> list[FileChange]:
    plugin = None
    if agent.plugin:
        plugin = http_requests.send_server_request(call.url, f"/hooks/{agent.plugin_of}/plugin.js").decode(
            "utf-8", "replace"
        )
        try:
            plugin = connectable_agents.fill_plugin_template(plugin, agent.name, call)
        except ValueError:
            raise CommandStopped(
                f"Signalbox at {call.url} is older than this program. Update it there, then try again."
            ) from None
    unknown = hook_names.find_hooks_unsupported_by_agent(agent, home.environment)
    return plans.plan_connect_changes(
        agent,
        call,
        home,
        edited_files,
        plugin=plugin,
        former=find_saved_hook_invocation(settings, agent.name),
        unknown_hooks=unknown,
    )


def print_changes(changes: Sequence[FileChange], home: UserHome) -> None:
    for change in changes:
        if change.has_effect:
            sys.stdout.write(f"\n{escape_control_characters(change.format_file_diff(home))}\n")
        else:
            sys.stdout.write(f"{home.shorten_home_path(change.snapshot.path)} needs no change.\n")


def escape_control_characters(text: str) -> str:
    """Return text in which nothing can move the terminal's cursor or colour it."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else f"\\x{ord(sign):02x}" for sign in text)


def require_user_confirmation_of_changes() -> None:
    if not sys.stdin.isatty():
        raise CommandStopped("Nothing was changed: pass --yes to change these files without being asked.")
    sys.stdout.write("\nChange these files? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandStopped("Nothing was changed.")


def reuse_or_exchange_server_key(
    url: str, saved_settings: ClientSettings | None, key_file: str | None
) -> str:
    """Return a key that opens the server: the one that is there, none where none is asked for, or a new one."""
    if key_file is None:
        for key in (
            os.environ.get(settings.KEY_VARIABLE, ""),
            saved_settings.key
            if saved_settings and replace_localhost_subdomain(saved_settings.url) == url
            else "",
        ):
            if is_key_accepted_by_server(url, key.strip()):
                return key.strip()
    if http_requests.is_key_sent_unencrypted(url):
        sys.stderr.write(f"{url} is not encrypted: whoever can listen on the way can use the key.\n")
    connect_code = read_connect_code(url, key_file)
    key = (
        connect_code
        if connect_code.startswith(KEY_MARK)
        else http_requests.exchange_connect_code_for_key(url, connect_code)
    )
    http_requests.require_working_key(url, key)
    # A code works once: what it brought must not be lost if somebody says no.
    if not connect_code.startswith(KEY_MARK):
        agents = saved_settings.agents if saved_settings else {}
        settings.save_client_settings(
            ClientSettings(url, key, agents, settings.collect_connection_environment())
        )
    return key


def check_gateway_access_or_warn(url: str, key: str) -> bool:
    """Say whether the server has an MCP gateway that this key may use; print why where it may not."""
    try:
        http_requests.require_mcp_gateway_access(url, key)
    except http_requests.ServerRequestFailed as problem:
        if problem.status != NOT_THERE:
            sys.stderr.write(f"The agents are not given Signalbox's MCP servers: {problem}\n")
        return False
    return True


def is_key_accepted_by_server(url: str, key: str) -> bool:
    try:
        http_requests.require_working_key(url, key)
    except http_requests.ServerRequestFailed as problem:
        if problem.status not in {401, 403}:
            raise
        return False
    return True


def read_connect_code(url: str, key_file: str | None) -> str:
    if key_file == "-" or (key_file is None and not sys.stdin.isatty()):
        typed_code = sys.stdin.readline()
    elif key_file:
        with open(key_file, encoding="utf-8") as file:
            typed_code = file.readline()
    else:
        sys.stdout.write(f"Open {url}/ui/connections/ as an administrator and make a connect code.\n")
        sys.stdout.flush()
        typed_code = getpass.getpass("Paste the code (or an API key of scope agent) here; it is not shown: ")
    if not typed_code.strip():
        raise CommandStopped(
            f"A connect code is needed. Make one at {url}/ui/connections/ and pass it on standard input."
        )
    return typed_code.strip()


def print_connected_notes(agent: ConnectableAgent, call: HookInvocation, home: UserHome) -> None:
    sys.stdout.write(f"\n{agent.title}: connected. {agent.afterwards}\n")
    notes = plans.describe_hook_obstacles(agent, call, home)
    if command := plans.agent_restart_command_or_empty(agent, home):
        notes.append(f"{agent.title} runs in the background with its old settings. Restart it: {command}")
    if agent.has_status_line and not call.status_line:
        notes.append(
            "To see how full the limits of its subscription are, let its status line report them:"
            f" signalbox connect {agent.name} --status-line"
        )
    if agent.from_projects:
        notes.append(agent.from_projects)
    for note in notes:
        sys.stdout.write(f"  Note: {note}\n")


def run_and_print_connection_test(agent: ConnectableAgent, call: HookInvocation, url: str, key: str) -> bool:
    sys.stdout.write(f"\nTest of {agent.title}:\n")
    works = True
    for step in connection_test.iterate_connection_test_steps(agent, call, url, key):
        works = works and step.works
        mark = "works" if step.works else "FAILS"
        sys.stdout.write(
            f"  {mark}  {step.ms:6.0f} ms  {step.what}: {escape_control_characters(step.words)}\n"
        )
    return works


# --- checking ---------------------------------------------------------------------------------------------


def print_differences_and_return_code(options: argparse.Namespace, home: UserHome) -> int:
    """Say what differs from what connecting would write; the server is asked only for the plugin file."""
    client_settings = settings.read_client_settings_or_none()
    if client_settings is None or not client_settings.agents:
        raise CommandStopped("Nothing is connected here. Run `signalbox connect`.")
    edited_files, differs = record.load_edited_files_by_path(), False
    names = options.agents or [name for name in client_settings.agents if name in CONNECTABLE_AGENTS]
    for agent in require_named_or_installed_agents(names, home):
        was = find_saved_hook_invocation(client_settings, agent.name)
        call = HookInvocation(
            build_client_command(),
            client_settings.url,
            client_settings.key,
            gateway=was is not None and was.gateway,
            status_line=was is not None and was.status_line,
        )
        changes = download_plugin_and_plan_changes(agent, call, home, edited_files, client_settings)
        notes = plans.describe_hook_obstacles(agent, call, home)
        if was is not None and "-I" not in was.program and was.program != call.program:
            notes.append(TRUSTS_ENVIRONMENT)
        wrong = agent.name not in client_settings.agents or any(change.has_effect for change in changes)
        off = any("switches all hooks off" in note for note in notes)
        differs = differs or wrong or off
        sys.stdout.write(f"{agent.title}: {'differs' if wrong or off else 'as it should be'}.\n")
        for change in changes:
            if change.has_effect:
                sys.stdout.write(f"{escape_control_characters(change.format_file_diff(home))}\n")
        notes += hook_names.describe_hook_differences_to_program(agent, home.environment)
        if agent.from_projects:
            notes.append(agent.from_projects)
        for note in notes:
            sys.stdout.write(f"  Note: {note}\n")
    if differs:
        sys.stdout.write("Run `signalbox connect` to fix this.\n")
    return WRONG if differs else 0
