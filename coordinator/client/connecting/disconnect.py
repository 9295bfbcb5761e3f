"""`signalbox disconnect`: put agents' settings back as they were, byte for byte where nothing else changed them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from coordinator.client import settings
from coordinator.client.connecting import plans, record, talk
from coordinator.client.connecting.connect import WRONG, CommandStopped, former, visible
from coordinator.client.connecting.files import FileRefused
from coordinator.client.connecting.plans import Entry, UserHome
from coordinator.client.connecting.programs import CONNECTABLE_AGENTS, Call
from coordinator.client.connecting.record import EditedFile
from coordinator.client.settings import NotConnected, Settings


def run(arguments: Sequence[str]) -> int:
    """Disconnect agents; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="signalbox disconnect",
        description="Put agents' settings back. Where nothing else changed them since, byte for byte.",
    )
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="which agents (default: all)")
    asked = parser.parse_args(list(arguments))
    place = UserHome(os.path.expanduser("~"), os.environ)
    try:
        return _disconnect(asked.agents, place)
    except (CommandStopped, FileRefused, NotConnected, talk.Failed) as problem:
        sys.stderr.write(f"{problem}\n")
    except OSError as problem:
        sys.stderr.write(f"{problem.filename or 'A file'}: {problem.strerror}. Nothing else was changed.\n")
    return WRONG


def _disconnect(names: Sequence[str], place: UserHome) -> int:
    kept, known = record.load(), settings.read()
    connected = {one.agent for one in kept.values()} | set(known.agents if known else {})
    for name in names:
        if name not in connected:
            raise CommandStopped(
                f"{name!r} is not connected here. Connected agents: {', '.join(sorted(connected)) or 'none'}."
            )
    leaving = set(names) or connected
    if not leaving:
        raise CommandStopped("Nothing is connected here.")
    chosen = {path: one for path, one in kept.items() if one.agent in leaving}
    plan = {path: plans.to_disconnect(path, one, _entries(path, one, known)) for path, one in chosen.items()}
    plans.carry_out([change for change, _ in plan.values()], kept, connects=False)
    for path, (change, exact) in plan.items():
        sys.stdout.write(f"{place.shown(path)}: {_words(chosen[path], change, exact=exact)}\n")
        if not exact and change.is_one:
            sys.stdout.write(f"{visible(change.diff(place))}\n")
    _forget(leaving, known)
    return 0


def _entries(path: str, kept: EditedFile, known: Settings | None) -> list[Entry]:
    """Return what we put into a file; nothing where it is ours alone. The agent's folder may have moved since."""
    agent = CONNECTABLE_AGENTS.get(kept.agent)
    if agent is None:
        return []
    call = former(known, agent.name) or Call(("signalbox",), known.url if known else "")
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
    if agent.wanted is not None and agent.file and path.endswith(os.sep + agent.file):
        return [agent.wanted(call)]
    return []


def _words(kept: EditedFile, change: plans.Change, *, exact: bool) -> str:
    if exact:
        return "deleted: it did not exist before." if kept.original is None else "exactly as it was before."
    if change.after is None:
        return "deleted although it was edited: Signalbox had made it."
    return "was edited after it was connected, so only Signalbox's entries were removed:"


def _forget(leaving: set[str], known: Settings | None) -> None:
    """Take the agents out of the settings; with the last one the key goes, too."""
    if known is None:
        return
    left = {name: one for name, one in known.agents.items() if name not in leaving}
    if left:
        settings.save(Settings(known.url, known.key, left, known.environment))
        return
    os.unlink(settings.settings_path())
    sys.stdout.write(f"The key was deleted here. Revoke it at {known.url}/ui/keys/ if nobody else uses it.\n")
