"""The hooks that an installed agent knows, read from its program: so that new ones are noticed. Within a budget."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping

from coordinator.client.connecting.connectable_agents import LEFT_OUT, READABLE_HOOKS, ConnectableAgent

# Claude Code lists its hooks; Gemini CLI and Qwen Code have them as an enumeration.
_LIST = re.compile(rb'\["PreToolUse"(?:,"[A-Z][A-Za-z]{2,40}"){10,100}\]')
_ENUMERATED = re.compile(rb'HookEventName\w{0,3}\["([A-Z][A-Za-z]{2,40})"\]\s{0,2}=')
_NAME = re.compile(rb'"([A-Za-z]+)"')
MAX_FILES = 400
MAX_BYTES = 1 << 30  # of all files; Claude Code's program has 400 MB
SECONDS = 10.0
CHUNK = 16 << 20
OVERLAP = 8 << 10  # longer than any list


LINES_NOT_REPORTED = (
    "{program} has no hook for the shell lines that skills and slash commands run while they are loaded (2.1.332 has"
    " one). So `signalbox hook` reads them from their files before; where it cannot, and a rule may ask about a command"
    " or deny it, the skill or command is asked about."
)


def describe_hook_differences_to_program(
    agent: ConnectableAgent, environment: Mapping[str, str]
) -> list[str]:
    """Return what follows from the hooks that the installed program knows, in words; nothing where none is found."""
    program = find_agent_executable(agent.programs, environment)
    if program is None:
        return []
    used = READABLE_HOOKS.get(agent.name)
    program_hooks = extract_hook_names_from_program(program) if used is not None else None
    if used is None or program_hooks is None:
        return [f"Which hooks {program} knows cannot be read from it, so new ones would not be noticed."]
    notes = []
    if new := sorted(program_hooks - used - LEFT_OUT[agent.name]):
        notes.append(f"{program} knows hooks that Signalbox does not know: {', '.join(new)}.")
    if agent.name == "claude-code" and "PreSkillShellCommand" not in program_hooks:
        notes.append(LINES_NOT_REPORTED.format(program=program))
    return notes


def find_hooks_unsupported_by_agent(
    agent: ConnectableAgent, environment: Mapping[str, str]
) -> frozenset[str]:
    """Return those of our hooks that the installed program does not know, as far as can be read from it.

    Claude Code opens a dialog about them each time it starts in a terminal, so they are not registered there. Once it
    is updated, a check says that they are missing.
    """
    if agent.name != "claude-code" or (program := find_agent_executable(agent.programs, environment)) is None:
        return frozenset()
    program_hooks = extract_hook_names_from_program(program)
    return READABLE_HOOKS[agent.name] - program_hooks if program_hooks else frozenset()


def find_agent_executable(names: tuple[str, ...], environment: Mapping[str, str]) -> str | None:
    """Return the path of an agent's program, the first of these names that is on the PATH; None for none."""
    candidates_on_path = (shutil.which(name, path=environment.get("PATH", os.defpath)) for name in names)
    return next((os.path.realpath(path) for path in candidates_on_path if path), None)


def extract_hook_names_from_program(program: str) -> frozenset[str] | None:
    """Return the names of the hooks that a program knows; None where they cannot be read from it."""
    budget, deadline = MAX_BYTES, time.monotonic() + SECONDS
    names: set[str] = set()
    for path in iterate_agent_program_files(program):
        overlap = b""
        try:
            with open(path, "rb") as file:
                while chunk := file.read(CHUNK):
                    budget -= len(chunk)
                    if budget < 0 or time.monotonic() > deadline:
                        return None
                    text = overlap + chunk
                    for list_match in _LIST.findall(text):
                        names.update(name.decode() for name in _NAME.findall(list_match))
                    names.update(name.decode() for name in _ENUMERATED.findall(text))
                    overlap = text[-OVERLAP:]
        except OSError:
            continue
    return frozenset(names) or None


def iterate_agent_program_files(program: str) -> Iterator[str]:
    """Yield the program itself, and the files that belong to it: a script is one of several."""
    yield program
    folder = os.path.dirname(program)
    # npm puts the program of a machine into a package next to the one with the script that starts it.
    packages = os.path.dirname(os.path.dirname(folder))
    directories = [folder, os.path.join(folder, "chunks")] if is_javascript_file(program) else []
    sibling = [
        os.path.join(packages, name)
        for name in list_file_names_in_folder(packages)
        if name.startswith("claude-code-")
    ]
    if os.path.basename(program).startswith("claude"):
        yield from (os.path.join(package, "claude") for package in sibling)
    remaining_files = MAX_FILES
    for directory in directories:
        for name in list_file_names_in_folder(directory):
            if name.endswith((".js", ".mjs", ".cjs")) and remaining_files:
                remaining_files -= 1
                yield os.path.join(directory, name)


def is_javascript_file(program: str) -> bool:
    return program.endswith((".js", ".mjs", ".cjs"))


def list_file_names_in_folder(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
