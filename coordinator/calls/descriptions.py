"""The description of a call: the one thing that rules, marks, suggestions and replay read."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from coordinator.calls import tools
from coordinator.calls.arguments import OPERAND
from coordinator.calls.commands import SimpleCommand
from coordinator.calls.path_and_host_uses import (
    AddressUse,
    PathUse,
    build_path_use,
    iterate_command_address_uses,
    iterate_command_path_uses,
    iterate_url_host_uses,
)
from coordinator.calls.paths import (
    PathLinks,
    is_in_folder,
    is_windows_path,
    normalize_path,
    resolve_absolute_path,
)
from coordinator.calls.programs import AGENT_GUARD_OPTIONS, AGENT_GUARD_VALUES, LIST, READ, TOUCH
from coordinator.calls.shell_reader import ShellReader
from coordinator.calls.shell_words import ShellWord
from coordinator.calls.tools import POSIX_TOOLS, POWERSHELL_TOOLS, TOOLS, UNKNOWN_TOOL

UNKNOWN_LINKS = "where its paths lead, because they are too many"
LONGEST_ADDRESS_SHOWN = 200  # characters
MAX_FIELD_VALUES = 500  # texts of one input
MAX_CACHED_SHELL_CHARACTERS = 16_384  # longer texts are read again each time
# Codex takes headers that are indented, OpenCode those without a blank behind the colon.
_PATCH_TARGET = re.compile(
    r"^\s*\*\*\* (Add File|Update File|Delete File|Move to):[^\S\n]*(\S.*?)\s*$", re.MULTILINE
)
_PATCH_USES = {"Add File": "writes", "Update File": "writes", "Delete File": "deletes", "Move to": "writes"}
_LOOKS_LIKE_PATH = re.compile(r"(?:~|\.{1,2})?/\S*|~|[A-Za-z]:[\\/]\S*")


@dataclass(frozen=True)
class CallDescription:
    """What a call does.

    commands: the simple commands that run, in their order.
    paths: every path that it touches.
    addresses: every host that it reaches.
    unreadable: why parts of it cannot be read, as phrases: "the variable $p as a program".
    folder: the working directory of the call; None where it is not known.
    is_known_tool: whether the table of tools says what the tool does.
    unknown_fields: the fields of the input that are set and of which nobody knows what they do.
    lifted_guards: the fields and options that lift a guard of the agent itself (a sandbox).
    agent_folder: the working directory of the agent, which a field of the call may have changed for the call.
    """

    commands: tuple[SimpleCommand, ...] = ()
    paths: tuple[PathUse, ...] = ()
    addresses: tuple[AddressUse, ...] = ()
    unreadable: tuple[str, ...] = ()
    folder: str | None = None
    is_known_tool: bool = True
    unknown_fields: frozenset[str] = frozenset()
    lifted_guards: frozenset[str] = frozenset()
    agent_folder: str | None = None

    @property
    def runs_outside_agent_folder(self) -> bool:
        """Whether a field of the call sets a working directory that is not known to be in that of its agent."""
        if self.folder is None or self.folder == self.agent_folder:
            return False
        return self.agent_folder is None or not is_in_folder(self.folder, self.agent_folder)

    @cached_property
    def command_texts(self) -> tuple[str, ...]:
        """Each command as the shell would run it, and without the words between program and sub-command."""
        texts = [
            text for command in self.commands if command.words for text in iterate_rule_match_texts(command)
        ]
        return tuple(dict.fromkeys(texts))


def iterate_rule_match_texts(command: SimpleCommand) -> Iterator[str]:
    """Yield the texts of a command at which the pattern of a deny or ask rule looks."""
    yield command.joined_text()
    program = command.program
    if program is None:
        return
    items = command.parsed_arguments.items
    start = next((place for place, item in enumerate(items) if item.kind == OPERAND), len(items))
    yield " ".join([program, *(item.word.shown_text for item in items[start:])])


def describe_call(tool: str, tool_input: Any, folder: str | None = None) -> CallDescription:
    """Return what a call of a tool does. `folder` is the working directory of its agent, None where it is not known.

    Never raises, whatever the input is.
    """
    tool_fields = TOOLS.get(tool)
    traits = tool_fields or UNKNOWN_TOOL
    fields: Mapping[str, Any] = tool_input if isinstance(tool_input, Mapping) else {"": tool_input}
    agent_folder = find_call_working_folder({}, folder)
    builder = _DescriptionBuilder(
        tool, traits, find_call_working_folder(fields, folder), is_known=tool_fields is not None
    )
    for name, value in fields.items():
        builder.add_input_field(str(name), value)
    return replace(builder.build_call_description(), agent_folder=agent_folder)


def resolve_call_symlinks_if_changed(call: CallDescription, links: PathLinks) -> CallDescription | None:
    """Return what the call does with the real paths behind its own; None where these are the same.

    Where not all links are known, a part of the call cannot be read.
    """
    paths = tuple(resolve_path_use_symlink(path, links) for path in call.paths)
    folder = links.real_path(call.folder) if call.folder else call.folder
    commands = tuple(
        replace(command, folder=links.real_path(command.folder)) if command.folder else command
        for command in call.commands
    )
    unreadable = call.unreadable if links.is_complete else (*call.unreadable, UNKNOWN_LINKS)
    agent_folder = links.real_path(call.agent_folder) if call.agent_folder else call.agent_folder
    real = replace(
        call, paths=paths, folder=folder, commands=commands, unreadable=unreadable, agent_folder=agent_folder
    )
    return None if real == call else real


def resolve_path_use_symlink(path: PathUse, links: PathLinks) -> PathUse:
    """Return the use of the real path; its text names both."""
    if path.path is None:
        return path._replace(prefix=links.real_path(path.prefix)) if path.prefix else path
    real = links.real_path(path.path)
    return path if real == path.path else path._replace(path=real, text=f"{path.text} (a link to {real})")


def find_call_working_folder(fields: Mapping[str, Any], folder: str | None) -> str | None:
    """Return the working directory of a call: its own field, else its agent's."""
    folder = folder if folder and (folder.startswith(("/", "~")) or is_windows_path(folder)) else None
    folder = normalize_path(folder) if folder and not is_windows_path(folder) else folder
    for name in sorted(tools.FOLDER_FIELDS | {"dir_path"}):  # of several, each worker takes the same
        value = fields.get(name)
        if isinstance(value, str) and value and (name != "dir_path" or "command" in fields):
            return resolve_absolute_path(folder, value, value.startswith("~"))
    return folder


class _DescriptionBuilder:
    """Collects what the fields of one call say."""

    def __init__(self, tool: str, traits: tools.Tool, folder: str | None, *, is_known: bool) -> None:
        self._tool = tool
        self._traits = traits
        self._folder = folder
        self._is_known = is_known
        self._commands: list[SimpleCommand] = []
        self._paths: list[PathUse] = []
        self._addresses: list[AddressUse] = []
        self._unreadable: list[str] = []
        self._unknown_fields: set[str] = set()
        self._lifted_guards: set[str] = set()
        self._values_left = MAX_FIELD_VALUES
        self._has_file_type = False  # whether a search names the kind of files that it reads

    def add_input_field(self, name: str, value: Any) -> None:
        """Take note of what a field of the input says."""
        if value is None or value is False or value in ("", [], {}):
            return
        traits = self._traits
        if name in tools.GUARD_LIFTING_FIELDS:
            self._lifted_guards.add(name)
            return
        if name in tools.FOLDER_FIELDS or (name == "dir_path" and traits.is_command):
            return
        if name in tools.COMMAND_FIELDS and (traits.is_command or not self._is_known):
            self._add_commands_of_field(value)
        elif name in tools.COMMAND_FIELDS | tools.PATCH_FIELDS and is_patch_text(value):
            self._add_patched_paths(value)
        elif name in tools.GLOB_FIELDS or (name == "pattern" and traits.has_path_pattern):
            self._has_file_type |= not str(value).startswith(("!", "["))
            self._add_paths_of_field(value, traits.use or LIST, is_pattern=True)
        elif name in tools.ADDRESS_FIELDS or (name == "prompt" and traits.has_address):
            self._add_addresses_of_field(name, value)
        elif name in tools.PATH_FIELDS and not traits.is_command:
            self._add_paths_of_field(value, traits.use or TOUCH)
        elif not self._is_known:
            self._add_possible_paths_of_field(value)
        elif name == "type":
            self._has_file_type |= isinstance(value, str) and value in tools.SOURCE_TYPES
        elif name not in tools.PLAIN_FIELDS:
            self._unknown_fields.add(name)

    def build_call_description(self) -> CallDescription:
        if self._traits.searches_here and not any(path.use for path in self._paths if not path.is_below):
            folder_use = build_path_use(self._traits.use, ShellWord("."), self._folder)
            self._paths += [folder_use] if folder_use is not None else []
        if self._traits.searches_here and self._traits.use == READ and not self._has_file_type:
            self._paths = [path._replace(is_recursive=True) for path in self._paths]
        if self._traits.has_address and not self._addresses:
            self._addresses.append(AddressUse(None, ""))
        for command in self._commands:
            self._paths += iterate_command_path_uses(command)
            self._addresses += iterate_command_address_uses(command)
            self._lifted_guards |= find_sandbox_bypass_options(command)
        return CallDescription(
            tuple(self._commands),
            tuple(dict.fromkeys(self._paths)),
            tuple(dict.fromkeys(self._addresses)),
            tuple(dict.fromkeys(self._unreadable)),
            self._folder,
            self._is_known,
            frozenset(self._unknown_fields),
            frozenset(self._lifted_guards),
        )

    def _iterate_texts_within_budget(self, value: Any) -> Iterator[str]:
        """Yield the texts of a value: of a list each, as far as the budget goes."""
        for text in iterate_texts_in_value(value):
            self._values_left -= 1
            if self._values_left < 0:
                self._add_unreadable_reason("its many values, because there are too many")
                return
            yield text

    def _add_unreadable_reason(self, reason: str) -> None:
        if reason not in self._unreadable:
            self._unreadable.append(reason)

    def _add_path_or_address(self, use: str, text: str, *, is_pattern: bool = False) -> None:
        if "://" in text and not text.startswith("file://"):
            self._addresses += iterate_url_host_uses(text)
            return
        text = text.removeprefix("file://").removeprefix("@")
        word = ShellWord(text, is_pattern=is_pattern, is_home=text == "~" or text.startswith("~/"))
        path_use = build_path_use(use, word, self._folder)
        if path_use is not None:
            self._paths.append(path_use)

    def _add_commands_of_field(self, value: Any) -> None:
        if self._tool in POWERSHELL_TOOLS:
            self._add_unreadable_reason("a command for PowerShell: its language is not read")
            return
        if self._folder is not None and is_windows_path(self._folder) and self._tool not in POSIX_TOOLS:
            self._add_unreadable_reason("a command for Windows: its shell's language is not read")
            return
        if isinstance(value, str):
            commands, unreadable = parse_commands_and_unreadable_reasons(value, self._folder)
        elif isinstance(value, list) and all(isinstance(part, str) for part in value):
            commands, unreadable = parse_commands_of_argument_list(tuple(value), self._folder)
        else:
            self._add_unreadable_reason("a command that is neither a text nor a list of texts")
            return
        self._commands += commands
        for reason in unreadable:
            self._add_unreadable_reason(reason)

    def _add_patched_paths(self, value: str) -> None:
        for action, target in _PATCH_TARGET.findall(value):
            before = target.partition(":")[0].rstrip()
            names = [target] if before == target or len(before) <= 1 else [target, before]
            for name in names:
                self._add_path_or_address(_PATCH_USES[action], name)

    def _add_paths_of_field(self, value: Any, use: str, *, is_pattern: bool = False) -> None:
        for text in self._iterate_texts_within_budget(value):
            self._add_path_or_address(use, text, is_pattern=is_pattern)

    def _add_addresses_of_field(self, name: str, value: Any) -> None:
        """Take the addresses of a field. One that cannot be read counts where the tool fetches it."""
        for text in self._iterate_texts_within_budget(value):
            addresses = list(iterate_url_host_uses(text))
            self._addresses += addresses
            if not addresses and name != "prompt" and self._traits.has_address:
                self._addresses.append(AddressUse(None, text[:LONGEST_ADDRESS_SHOWN]))
            if text.startswith("file://"):
                self._add_path_or_address(TOUCH, text)

    def _add_possible_paths_of_field(self, value: Any) -> None:
        """Take what looks like a path or an address in a field that nobody knows."""
        for text in self._iterate_texts_within_budget(value):
            if "://" in text:
                self._addresses += iterate_url_host_uses(text)
            elif _LOOKS_LIKE_PATH.fullmatch(text):
                self._add_path_or_address(TOUCH, text)


def find_sandbox_bypass_options(command: SimpleCommand) -> set[str]:
    """Return the options of a command that start an agent without its sandbox or its questions."""
    options = AGENT_GUARD_OPTIONS.get(command.lowercase_program_name, frozenset())
    values = AGENT_GUARD_VALUES.get(command.lowercase_program_name, {})
    if not options and not values:
        return set()
    lifted: set[str] = set()
    texts = [word.text or "" for word in command.arguments]
    for text, following in zip(texts, [*texts[1:], ""], strict=True):
        name, equals, value = text.partition("=")
        if name in options:
            lifted.add(text)
        lifting_values = values.get(
            name, values.get(text[:2], frozenset()) if not text.startswith("--") else frozenset()
        )
        option_value = value if equals and name in values else following if name in values else text[2:]
        if option_value.replace('"', "").replace("'", "") in lifting_values:
            lifted.add(f"{name} {option_value}" if name in values else text)
    return lifted


def is_patch_text(value: Any) -> bool:
    return isinstance(value, str) and "*** " in value and _PATCH_TARGET.search(value) is not None


def iterate_texts_in_value(value: Any) -> Iterator[str]:
    """Yield every text below a value."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            pending += part.values()
        elif isinstance(part, list | tuple):
            pending += reversed(part)


def parse_commands_and_unreadable_reasons(
    text: str, folder: str | None
) -> tuple[tuple[SimpleCommand, ...], tuple[str, ...]]:
    """Return the commands of a shell text, and why parts of it cannot be read. The same text is read once."""
    if len(text) > MAX_CACHED_SHELL_CHARACTERS:
        return parse_shell_text_without_raising(text, folder)
    return parse_cached_shell_text(text, folder)


@lru_cache(maxsize=512)
def parse_cached_shell_text(
    text: str, folder: str | None
) -> tuple[tuple[SimpleCommand, ...], tuple[str, ...]]:
    return parse_shell_text_without_raising(text, folder)


def parse_shell_text_without_raising(
    text: str, folder: str | None
) -> tuple[tuple[SimpleCommand, ...], tuple[str, ...]]:
    reader = ShellReader(folder)
    reader.record_script_commands(text)
    commands: Iterable[SimpleCommand] = reader.reading.commands
    if not text.isascii():
        commands = convert_byte_to_character_spans(commands, text)
    return tuple(commands), tuple(reader.reading.unreadable)


def convert_byte_to_character_spans(commands: Iterable[SimpleCommand], text: str) -> list[SimpleCommand]:
    """Return commands whose places are counted in characters, not in bytes."""
    ends = list(accumulate((len(character.encode("utf-8", "replace")) for character in text), initial=0))
    return [
        replace(command, span=(bisect_left(ends, command.span[0]), bisect_left(ends, command.span[1])))
        if command.span is not None
        else command
        for command in commands
    ]


def parse_commands_of_argument_list(
    arguments: tuple[str, ...], folder: str | None
) -> tuple[tuple[SimpleCommand, ...], tuple[str, ...]]:
    """Return the commands of a call that gives its command as a list of words, without a shell."""
    reader = ShellReader(folder)
    reader.collect_command_from_arguments([ShellWord(word) for word in arguments])
    return tuple(reader.reading.commands), tuple(reader.reading.unreadable)
