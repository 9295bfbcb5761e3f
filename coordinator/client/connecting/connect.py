"""`signalbox connect`: find the agents here, show what would change, ask, merge it in, try it. And `--check`."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.client import hook_agents, launch, settings
from coordinator.client.connecting import files, hook_names, plans, programs, record, talk, trial
from coordinator.client.connecting.files import FileRefused
from coordinator.client.connecting.plans import Change, UserHome
from coordinator.client.connecting.programs import CONNECTABLE_AGENTS, Agent, Call
from coordinator.client.connection import address_for_agents
from coordinator.client.settings import NotConnected, Settings

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
    asked = _parser().parse_args(list(arguments))
    place = UserHome(os.path.expanduser("~"), os.environ, _working_folder())
    try:
        return _check(asked, place) if asked.check else _connect(asked, place)
    except (CommandStopped, FileRefused, NotConnected, talk.Failed) as problem:
        sys.stderr.write(f"{problem}\n")
    except OSError as problem:
        sys.stderr.write(f"{problem.filename or 'A file'}: {problem.strerror}. Nothing else was changed.\n")
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("\nStopped. Nothing else was changed.\n")
    return WRONG


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return ""


def _parser() -> argparse.ArgumentParser:
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
        "--key-file",
        metavar="FILE",
        help="read the code or key from a file (- for standard input), not from the terminal",
    )
    return parser


# --- connecting -------------------------------------------------------------------------------------------


def _connect(asked: argparse.Namespace, place: UserHome) -> int:
    known = settings.read()
    url = talk.address(
        asked.url or os.environ.get(settings.URL_VARIABLE) or (known.url if known else DEFAULT_URL)
    )
    agents = _chosen(asked.agents, place)
    key = _key(url, known, asked.key_file)
    call = Call(program(), url, key, gateway=not asked.no_gateway and _has_gateway(url, key))
    kept = record.load()
    changes = [one for agent in agents for one in _changes(agent, call, place, kept, known)]
    _show(changes, place)
    if any(change.is_one for change in changes) and not asked.yes:
        _ask()
    connected = dict(known.agents) if known else {}
    for agent in agents:
        told: dict[str, Any] = {"program": list(call.program), "gateway": call.gateway}
        if agent.file:  # `signalbox hook` looks there which hooks are registered
            told["file"] = os.path.join(agent.folder(place.home, place.environment), agent.file)
        connected[agent.name] = {**connected.get(agent.name, {}), **told}
    settings.save(Settings(url, key, connected, settings.remembered_environment()))
    if repository := files.repository_of(settings.settings_path()):
        path = place.shown(settings.settings_path())
        sys.stderr.write(
            f"{path} holds the key and lies in the git repository {repository}. Do not commit it.\n"
        )
    plans.carry_out(changes, kept, connects=True)
    for agent in agents:
        _tell(agent, call, place)
    works = [_try(agent, call, url, key) for agent in agents]
    return 0 if all(works) else WRONG


def former(known: Settings | None, agent: str) -> Call | None:
    """Return how the agent's hooks call us since it was connected, or None where it was not."""
    remembered = known.agents.get(agent) if known else None
    words = remembered.get("program") if remembered else None
    if known is None or not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    return Call(tuple(words), known.url, known.key, gateway=(remembered or {}).get("gateway") is True)


def _chosen(names: Sequence[str], place: UserHome) -> list[Agent]:
    # What `signalbox hook` does not know, it would block.
    known = {name: agent for name, agent in CONNECTABLE_AGENTS.items() if name in hook_agents.HOOK_AGENTS}
    for name in names:
        if name not in known:
            raise CommandStopped(f"There is no agent {name!r}. Known agents: {', '.join(known)}.")
    if names:
        return [known[name] for name in dict.fromkeys(names)]
    found = [agent for agent in known.values() if agent.is_here(place.home, place.environment)]
    if not found:
        raise CommandStopped(
            f"None of the known agents was found here. Name those to connect: {', '.join(known)}."
        )
    sys.stdout.write(f"Found here: {', '.join(agent.title for agent in found)}.\n")
    return found


def program() -> tuple[str, ...]:
    """Return the words that start this program from anywhere, apart from the environment of whoever starts it.

    Python and the file are named in full: agents have a PATH of their own, and a project may change it.
    """
    launcher = os.path.abspath(launch.__file__)
    return (sys.executable, "-I", "-S", launcher, "--settings", os.path.abspath(settings.settings_path()))


def _changes(
    agent: Agent, call: Call, place: UserHome, kept: Mapping[str, record.EditedFile], known: Settings | None
) -> list[Change]:
    plugin = None
    if agent.plugin:
        plugin = talk.request(call.url, f"/hooks/{agent.plugin_of}/plugin.js").decode("utf-8", "replace")
        try:
            plugin = programs.filled_plugin(plugin, agent.name, call)
        except ValueError:
            raise CommandStopped(
                f"Signalbox at {call.url} is older than this program. Update it there, then try again."
            ) from None
    unknown = hook_names.unknown_hooks(agent, place.environment)
    return plans.to_connect(
        agent, call, place, kept, plugin=plugin, former=former(known, agent.name), unknown_hooks=unknown
    )


def _show(changes: Sequence[Change], place: UserHome) -> None:
    for change in changes:
        if change.is_one:
            sys.stdout.write(f"\n{visible(change.diff(place))}\n")
        else:
            sys.stdout.write(f"{place.shown(change.found.path)} needs no change.\n")


def visible(text: str) -> str:
    """Return text in which nothing can move the terminal's cursor or colour it."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else f"\\x{ord(sign):02x}" for sign in text)


def _ask() -> None:
    if not sys.stdin.isatty():
        raise CommandStopped("Nothing was changed: pass --yes to change these files without being asked.")
    sys.stdout.write("\nChange these files? [y/N] ")
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandStopped("Nothing was changed.")


def _key(url: str, known: Settings | None, key_file: str | None) -> str:
    """Return a key that opens the server: the one that is there, none where none is asked for, or a new one."""
    if key_file is None:
        for key in (
            os.environ.get(settings.KEY_VARIABLE, ""),
            known.key if known and address_for_agents(known.url) == url else "",
        ):
            if _opens(url, key.strip()):
                return key.strip()
    if talk.travels_open(url):
        sys.stderr.write(f"{url} is not encrypted: whoever can listen on the way can use the key.\n")
    given = _given(url, key_file)
    key = given if given.startswith(KEY_MARK) else talk.exchange(url, given)
    talk.opens(url, key)
    # A code works once: what it brought must not be lost if somebody says no.
    if not given.startswith(KEY_MARK):
        agents = known.agents if known else {}
        settings.save(Settings(url, key, agents, settings.remembered_environment()))
    return key


def _has_gateway(url: str, key: str) -> bool:
    """Say whether the server has an MCP gateway that this key may use; print why where it may not."""
    try:
        talk.greets(url, key)
    except talk.Failed as problem:
        if problem.status != NOT_THERE:
            sys.stderr.write(f"The agents are not given Signalbox's MCP servers: {problem}\n")
        return False
    return True


def _opens(url: str, key: str) -> bool:
    try:
        talk.opens(url, key)
    except talk.Failed as problem:
        if problem.status not in {401, 403}:
            raise
        return False
    return True


def _given(url: str, key_file: str | None) -> str:
    if key_file == "-" or (key_file is None and not sys.stdin.isatty()):
        given = sys.stdin.readline()
    elif key_file:
        with open(key_file, encoding="utf-8") as file:
            given = file.readline()
    else:
        sys.stdout.write(f"Open {url}/ui/connections/ as an administrator and make a connect code.\n")
        sys.stdout.flush()
        given = getpass.getpass("Paste the code (or an API key of scope agent) here; it is not shown: ")
    if not given.strip():
        raise CommandStopped(
            f"A connect code is needed. Make one at {url}/ui/connections/ and pass it on standard input."
        )
    return given.strip()


def _tell(agent: Agent, call: Call, place: UserHome) -> None:
    sys.stdout.write(f"\n{agent.title}: connected. {agent.afterwards}\n")
    notes = plans.notes_of(agent, call, place)
    if command := plans.restart_command(agent, place):
        notes.append(f"{agent.title} runs in the background with its old settings. Restart it: {command}")
    if agent.from_projects:
        notes.append(agent.from_projects)
    for note in notes:
        sys.stdout.write(f"  Note: {note}\n")


def _try(agent: Agent, call: Call, url: str, key: str) -> bool:
    sys.stdout.write(f"\nTest of {agent.title}:\n")
    works = True
    for step in trial.run(agent, call, url, key):
        works = works and step.works
        mark = "works" if step.works else "FAILS"
        sys.stdout.write(f"  {mark}  {step.ms:6.0f} ms  {step.what}: {visible(step.words)}\n")
    return works


# --- checking ---------------------------------------------------------------------------------------------


def _check(asked: argparse.Namespace, place: UserHome) -> int:
    """Say what differs from what connecting would write; the server is asked only for the plugin file."""
    known = settings.read()
    if known is None or not known.agents:
        raise CommandStopped("Nothing is connected here. Run `signalbox connect`.")
    kept, differs = record.load(), False
    names = asked.agents or [name for name in known.agents if name in CONNECTABLE_AGENTS]
    for agent in _chosen(names, place):
        was = former(known, agent.name)
        call = Call(program(), known.url, known.key, gateway=was is not None and was.gateway)
        changes = _changes(agent, call, place, kept, known)
        notes = plans.notes_of(agent, call, place)
        if was is not None and "-I" not in was.program and was.program != call.program:
            notes.append(TRUSTS_ENVIRONMENT)
        wrong = agent.name not in known.agents or any(change.is_one for change in changes)
        off = any("switches all hooks off" in note for note in notes)
        differs = differs or wrong or off
        sys.stdout.write(f"{agent.title}: {'differs' if wrong or off else 'as it should be'}.\n")
        for change in changes:
            if change.is_one:
                sys.stdout.write(f"{visible(change.diff(place))}\n")
        notes += hook_names.notes_of(agent, place.environment)
        if agent.from_projects:
            notes.append(agent.from_projects)
        for note in notes:
            sys.stdout.write(f"  Note: {note}\n")
    if differs:
        sys.stdout.write("Run `signalbox connect` to fix this.\n")
    return WRONG if differs else 0
