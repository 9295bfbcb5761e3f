"""A runner's settings: from flags, else from the environment, else from a TOML file, else the defaults."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import socket
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from coordinator.runner.errors import RunnerRefused

OTHERS = 0o077
DEFAULT_URL = "http://127.0.0.1:8765"
AT_ONCE = 20
FILE_FIELDS = {
    "url",
    "key",
    "key_file",
    "directories",
    "at_once",
    "tags",
    "require_matching_tags",
    "profile",
    "hostname",
    "keep_minutes",
    "silence_minutes",
    "pass",
    "agents",
}
AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
AGENT_FIELDS = {"title", "command", "env", "pass", "mode", "enabled"}


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The file's settings of one agent; an empty command: that of the known agent."""

    title: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    passes: tuple[str, ...] = ()
    mode: str = ""
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """A runner's settings. `directories` and `private` are real paths; `keep` and `silence` are seconds."""

    url: str
    key: str
    directories: tuple[str, ...]
    state: str
    at_once: int = AT_ONCE
    tags: tuple[str, ...] = ()
    require_matching_tags: bool = False
    profile: str = "signalbox"
    hostname: str = field(default_factory=socket.gethostname)
    keep: float = 1800.0
    silence: float = 1800.0
    passes: tuple[str, ...] = ()
    agents: Mapping[str, AgentOptions] = field(default_factory=dict)
    private: tuple[str, ...] = ()


def build_runner_parser() -> argparse.ArgumentParser:
    """Return the flags of `signalbox runner`."""
    flags = argparse.ArgumentParser(
        prog="signalbox runner",
        description="Carry out runs on this machine: start agents, report what they do, and ask people in Signalbox.",
    )
    flags.add_argument("--url", help=f"Signalbox's address (SIGNALBOX_URL; {DEFAULT_URL})")
    flags.add_argument("--key", help="an API key of scope runner (better: SIGNALBOX_KEY, or --key-file)")
    flags.add_argument("--key-file", help="a file that holds the key, readable by you alone")
    flags.add_argument(
        "--directory",
        action="append",
        metavar="DIR",
        help="a directory whose projects agents may work in; may be repeated (default: the one you are in)",
    )
    flags.add_argument(
        "--private",
        action="append",
        metavar="DIR",
        help="a folder whose files this runner does not give to agents (always: its key, its settings, its state)",
    )
    flags.add_argument(
        "--agent",
        action="append",
        metavar="NAME=COMMAND",
        help='an agent that speaks the Agent Client Protocol, and its command line, as mine="my-agent --acp"; may be'
        " repeated. No shell reads it",
    )
    flags.add_argument(
        "--pass",
        action="append",
        dest="passes",
        metavar="VARIABLE",
        help="a variable of this environment that agents get, as MY_API_KEY; may be repeated",
    )
    flags.add_argument("--at-once", type=int, help=f"how many agents may run at once ({AT_ONCE})")
    flags.add_argument("--tag", action="append", help="a tag that runs may demand; may be repeated")
    flags.add_argument("--profile", help="the executor profile that runs may demand (signalbox)")
    flags.add_argument("--hostname", help="this machine's name (default: its host name)")
    flags.add_argument(
        "--config",
        help="the settings file (SIGNALBOX_RUNNER_CONFIG; ~/.config/signalbox/runner.toml where there is one)",
    )
    flags.add_argument("--list", action="store_true", help="list the agents on this machine, and exit")
    return flags


def load_runner_options(flags: argparse.Namespace, environ: Mapping[str, str]) -> RunnerOptions:
    """Return the options. Raises RunnerRefused, in words, for what cannot be used."""
    settings_file = load_runner_settings_file(flags.config, environ)
    directories = flags.directory or settings_file.get("directories") or [os.getcwd()]
    at_once = flags.at_once if flags.at_once is not None else settings_file.get("at_once", AT_ONCE)
    if not isinstance(at_once, int) or not 1 <= at_once <= 200:
        raise RunnerRefused("at_once must be a number from 1 to 200.")
    url = flags.url or environ.get("SIGNALBOX_URL") or settings_file.get("url") or DEFAULT_URL
    if not url.startswith(("http://", "https://")):
        raise RunnerRefused(f"Signalbox's address must begin with http:// or https://, not {url[:80]!r}.")
    return RunnerOptions(
        url=replace_localhost_host(url.rstrip("/")),
        key=load_runner_key_or_empty(flags, environ, settings_file),
        directories=tuple(resolve_existing_directory(directory) for directory in directories),
        state=runner_state_folder(environ),
        at_once=at_once,
        tags=tuple(flags.tag or settings_file.get("tags") or ()),
        require_matching_tags=bool(settings_file.get("require_matching_tags", False)),
        profile=flags.profile or settings_file.get("profile") or "signalbox",
        hostname=flags.hostname or settings_file.get("hostname") or socket.gethostname(),
        keep=parse_minutes_setting_as_seconds(settings_file, "keep_minutes", 30.0),
        silence=parse_minutes_setting_as_seconds(settings_file, "silence_minutes", 30.0),
        passes=(*(flags.passes or ()), *(settings_file.get("pass") or ())),
        private=list_private_paths(flags, environ, settings_file),
        agents=parse_agent_options_by_name(flags.agent or (), settings_file.get("agents") or {}),
    )


def read_private_text_file(path: str) -> str:
    """Return the content of a file that its owner alone can read. Raises RunnerRefused."""
    path = os.path.expanduser(path)
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & OTHERS:
                raise RunnerRefused(f"Others can read {path}, which holds a key. Run `chmod 600 {path}`.")
            return file.read(1 << 20).decode("utf-8").strip()
    except (OSError, ValueError) as problem:
        raise RunnerRefused(f"{path} cannot be read: {problem}.") from None


def replace_localhost_host(url: str) -> str:
    """Return the address with 127.0.0.1 for a name under `.localhost`: agents' programs cannot find such names."""
    parts = urlsplit(url)
    if not (parts.hostname or "").rstrip(".").endswith(".localhost"):
        return url
    _, colon, port = parts.netloc.partition(":")
    return parts._replace(netloc=f"127.0.0.1{colon}{port}").geturl()


def load_runner_key_or_empty(
    flags: argparse.Namespace, environ: Mapping[str, str], options: Mapping[str, Any]
) -> str:
    if flags.key_file:
        return read_private_text_file(flags.key_file)
    key = flags.key or environ.get("SIGNALBOX_KEY") or options.get("key") or ""
    if not key and options.get("key_file"):
        return read_private_text_file(options["key_file"])
    if not all("!" <= sign <= "~" for sign in key):
        raise RunnerRefused("The API key contains characters that no key has.")
    return str(key)


def load_runner_settings_file(named: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of the settings file; nothing where none is named and none is in the default place."""
    usual = runner_settings_path(None, {**environ, "SIGNALBOX_RUNNER_CONFIG": ""})
    path = runner_settings_path(named, environ)
    try:
        with open(path, "rb") as file:
            is_private = not stat.S_IMODE(os.fstat(file.fileno()).st_mode) & OTHERS
            settings_content = tomllib.load(file)
    except FileNotFoundError:
        if path != usual:
            raise RunnerRefused(f"There is no settings file {path}.") from None
        return {}
    except (OSError, ValueError) as problem:
        raise RunnerRefused(f"{path} cannot be read: {problem}.") from None
    require_recognized_setting_names(path, settings_content, FILE_FIELDS)
    if "key" in settings_content and not is_private:
        raise RunnerRefused(f"Others can read {path}, which holds a key. Run `chmod 600 {path}`.")
    for name, kind in (("url", str), ("directories", list), ("tags", list), ("pass", list), ("agents", dict)):
        if name in settings_content and not isinstance(settings_content[name], kind):
            raise RunnerRefused(f"{path}: {name} must be {_WORDS[kind]}.")
    return settings_content


def runner_settings_path(named: str | None, environ: Mapping[str, str]) -> str:
    folder = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    usual = os.path.join(folder, "signalbox", "runner.toml")
    return os.path.expanduser(named or environ.get("SIGNALBOX_RUNNER_CONFIG") or usual)


def list_private_paths(
    flags: argparse.Namespace, environ: Mapping[str, str], options: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the paths that agents are not given: the runner's key, settings and state, and those that are named."""
    keys = (flags.key_file, options.get("key_file"))
    private_names = (
        *keys,
        runner_settings_path(flags.config, environ),
        runner_state_folder(environ),
        *(flags.private or ()),
    )
    return tuple(
        os.path.realpath(os.path.expanduser(str(private_name)))
        for private_name in private_names
        if private_name
    )


_WORDS = {str: "a string", list: "a list of strings", dict: "a table"}


def require_recognized_setting_names(path: str, options: Mapping[str, Any], known_names: set[str]) -> None:
    if unknown := sorted(set(options) - known_names):
        raise RunnerRefused(
            f"{path}: unknown names: {', '.join(unknown)}. Known names: {', '.join(sorted(known_names))}."
        )


def parse_agent_options_by_name(
    flags: Sequence[str], file_settings: Mapping[str, Any]
) -> dict[str, AgentOptions]:
    """Return the settings of agents by name. A flag names the command, the file the rest. Raises RunnerRefused."""
    agents = {name: parse_agent_options_from_file(name, settings) for name, settings in file_settings.items()}
    from_flags: set[str] = set()
    for flag in flags:
        name, command = parse_agent_flag(flag)
        if name in from_flags:
            raise RunnerRefused(f"--agent names {name} twice.")
        from_flags.add(name)
        agents[name] = replace(agents.get(name, AgentOptions()), command=command, enabled=True)
    return agents


def parse_agent_flag(flag: str) -> tuple[str, tuple[str, ...]]:
    """Return the name and the command of `NAME=COMMAND`. Raises RunnerRefused."""
    name, equals, line = flag.partition("=")
    require_valid_agent_name(name, f"--agent {flag[:80]!r}")
    try:
        command = tuple(shlex.split(line))
    except ValueError as problem:
        raise RunnerRefused(f"--agent {name}: the command cannot be read: {problem}.") from None
    if not equals or not command or not command[0] or "\x00" in line:
        raise RunnerRefused(f'--agent {name} needs a command, as --agent {name}="my-agent --acp".')
    return name, command


def require_valid_agent_name(name: str, where: str) -> None:
    if not AGENT_NAME.fullmatch(name):
        raise RunnerRefused(
            f"{where}: an agent's name has up to 50 letters, digits, '.', '_' and '-', and begins with a letter or a"
            " digit."
        )


def parse_agent_options_from_file(name: str, reported: Any) -> AgentOptions:
    where = f"agents.{name}"
    require_valid_agent_name(name, where)
    if not isinstance(reported, dict):
        raise RunnerRefused(f"{where} must be a table.")
    require_recognized_setting_names(where, reported, AGENT_FIELDS)
    command, env = reported.get("command", ()), reported.get("env", {})
    if not all(isinstance(word, str) for word in command) or isinstance(command, str):
        raise RunnerRefused(f'{where}: command must be a list of strings, such as ["my-agent", "--acp"].')
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise RunnerRefused(f"{where}: env must be a table of strings.")
    return AgentOptions(
        title=str(reported.get("title", "")),
        command=tuple(command),
        env=env,
        passes=tuple(map(str, reported.get("pass", ()))),
        mode=str(reported.get("mode", "")),
        enabled=reported.get("enabled", True) is not False,
    )


def parse_minutes_setting_as_seconds(options: Mapping[str, Any], name: str, usual: float) -> float:
    value = options.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100_000:
        raise RunnerRefused(f"{name} must be a number of minutes.")
    return float(value) * 60


def resolve_existing_directory(named: Any) -> str:
    path = os.path.realpath(os.path.expanduser(str(named)))
    if not os.path.isdir(path):
        raise RunnerRefused(f"{named} is not a directory on this machine.")
    return path


def runner_state_folder(environ: Mapping[str, str]) -> str:
    state_home = environ.get("XDG_STATE_HOME", "")
    base = (
        state_home if os.path.isabs(state_home) else os.path.join(os.path.expanduser("~"), ".local", "state")
    )
    return os.path.join(base, "signalbox", "runner")


def parse_runner_arguments(
    arguments: Sequence[str], environ: Mapping[str, str]
) -> tuple[RunnerOptions, bool]:
    """Return the options, and whether only the agents are to be listed. Raises RunnerRefused."""
    flags = build_runner_parser().parse_args(list(arguments))
    return load_runner_options(flags, environ), flags.list
