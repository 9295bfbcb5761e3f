"""`signalbox disconnect`: put agents' settings back as they were, byte for byte where nothing else changed them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from coordinator.client import settings
from coordinator.client.connecting import http_requests, plans, record
from coordinator.client.connecting.connect import (
    WRONG,
    CommandStopped,
    escape_control_characters,
    find_saved_hook_invocation,
)
from coordinator.client.connecting.connectable_agents import CONNECTABLE_AGENTS, HookInvocation
from coordinator.client.connecting.files import FileRefused
from coordinator.client.connecting.plans import Entry, UserHome
from coordinator.client.connecting.record import EditedFile
from coordinator.client.settings import ClientSettings, NotConnected


def run(arguments: Sequence[str]) -> int:
    """Disconnect agents; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="signalbox disconnect",
        description="Put agents' settings back. Where nothing else changed them since, byte for byte.",
    )
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="which agents (default: all)")
    args = parser.parse_args(list(arguments))
    home = UserHome(os.path.expanduser("~"), os.environ)
    try:
        return disconnect_agents(args.agents, home)
    except (CommandStopped, FileRefused, NotConnected, http_requests.ServerRequestFailed) as problem:
        sys.stderr.write(f"{problem}\n")
    except OSError as problem:
        sys.stderr.write(f"{problem.filename or 'A file'}: {problem.strerror}. Nothing else was changed.\n")
    return WRONG


def disconnect_agents(names: Sequence[str], home: UserHome) -> int:
    edited_files, client_settings = (
        record.load_edited_files_by_path(),
        settings.read_client_settings_or_none(),
    )
    connected = {edited_file.agent for edited_file in edited_files.values()} | set(
        client_settings.agents if client_settings else {}
    )
    for name in names:
        if name not in connected:
            raise CommandStopped(
                f"{name!r} is not connected here. Connected agents: {', '.join(sorted(connected)) or 'none'}."
            )
    leaving = set(names) or connected
    if not leaving:
        raise CommandStopped("Nothing is connected here.")
    chosen = {path: one for path, one in edited_files.items() if one.agent in leaving}
    plan = {
        path: plans.plan_disconnect_change(
            path, one, build_signalbox_entries_for_file(path, one, client_settings)
        )
        for path, one in chosen.items()
    }
    plans.apply_file_changes([change for change, _ in plan.values()], edited_files, connects=False)
    for path, (change, exact) in plan.items():
        sys.stdout.write(
            f"{home.shorten_home_path(path)}: {describe_disconnect_result(chosen[path], change, exact=exact)}\n"
        )
        if not exact and change.has_effect:
            sys.stdout.write(f"{escape_control_characters(change.format_file_diff(home))}\n")
    remove_agents_from_client_settings(leaving, client_settings)
    return 0


def build_signalbox_entries_for_file(
    path: str, edited_file: EditedFile, settings: ClientSettings | None
) -> list[Entry]:
    """Return what we put into a file; nothing where it is ours alone. The agent's folder may have moved since."""
    agent = CONNECTABLE_AGENTS.get(edited_file.agent)
    if agent is None:
        return []
    call = find_saved_hook_invocation(settings, agent.name) or HookInvocation(
        ("signalbox",), settings.url if settings else ""
    )
    for lines in agent.former_lines:
        if path.endswith(os.sep + lines.path):
            return [lines]
    if (
        agent.mcp is not None
        and agent.mcp_file
        and os.path.basename(path) == os.path.basename(agent.mcp_file)
    ):
        telemetry = [agent.telemetry(call)] if agent.telemetry else []
        return [*telemetry, *([agent.toml_value] if agent.toml_value else []), agent.mcp(call)]
    if agent.build_entries is not None and agent.file and path.endswith(os.sep + agent.file):
        return [agent.build_entries(call)]
    return []


def describe_disconnect_result(edited_file: EditedFile, change: plans.FileChange, *, exact: bool) -> str:
    if exact:
        return (
            "deleted: it did not exist before."
            if edited_file.original is None
            else "exactly as it was before."
        )
    if change.after is None:
        return "deleted although it was edited: Signalbox had made it."
    return "was edited after it was connected, so only Signalbox's entries were removed:"


def remove_agents_from_client_settings(leaving: set[str], saved_settings: ClientSettings | None) -> None:
    """Take the agents out of the settings; with the last one the key goes, too."""
    if saved_settings is None:
        return
    remaining_agents = {
        name: agent_record for name, agent_record in saved_settings.agents.items() if name not in leaving
    }
    if remaining_agents:
        settings.save_client_settings(
            ClientSettings(
                saved_settings.url, saved_settings.key, remaining_agents, saved_settings.environment
            )
        )
        return
    os.unlink(settings.client_settings_path())
    sys.stdout.write(
        f"The key was deleted here. Revoke it at {saved_settings.url}/ui/keys/ if nobody else uses it.\n"
    )
