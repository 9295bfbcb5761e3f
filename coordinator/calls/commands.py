"""The simple command: one program with its words, as the shell would start it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from coordinator.calls.arguments import ParsedArguments, parse_command_arguments
from coordinator.calls.shell_words import ShellWord

# Folders in which systems keep programs: `/usr/bin/git` is the program that `git` is.
PROGRAM_FOLDERS = frozenset(
    {"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"}
)
_EXECUTABLE = re.compile(r"\.(exe|cmd|bat|com)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Redirection:
    """A redirection to or from a file. `operator` is `>`, `>>`, `<` or one of their kin."""

    operator: str
    target: ShellWord

    @property
    def is_write(self) -> bool:
        return ">" in self.operator


@dataclass(frozen=True)
class SimpleCommand:
    """One program that runs.

    words: the program and its arguments.
    assignments: variables that are set for it (`A=1 make`), by name.
    folder: the working directory; None where it is not known.
    is_transparent: it only starts the next command, as `env` and `time` do, and is covered where that is.
    is_wrapper: it starts the next command, and does something of its own as well.
    has_code: it is given a program of another language, which nobody reads (`python -c`).
    unreadable: why it is not known what it runs; "" where that is known.
    span: where it is in the text of the call, in characters; None inside a text that it starts.
    started_words: how many words at its end are the command that it starts.
    """

    words: tuple[ShellWord, ...]
    assignments: tuple[tuple[str, ShellWord], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    folder: str | None = None
    is_transparent: bool = False
    is_wrapper: bool = False
    has_code: bool = False
    unreadable: str = ""
    span: tuple[int, int] | None = None
    started_words: int = 0

    def without_wrapped_command(self) -> SimpleCommand:
        """Return a wrapper with its own words alone; any other command as it is."""
        if not self.started_words:
            return self
        return replace(self, words=self.words[: -self.started_words], started_words=0)

    @cached_property
    def parsed_arguments(self) -> ParsedArguments:
        """The arguments as the program reads them."""
        return parse_command_arguments(self.lowercase_program_name, self.arguments)

    @cached_property
    def lowercase_program_name(self) -> str:
        """The program's name in small letters; "" where it is not known."""
        return (self.program or "").lower()

    @cached_property
    def program(self) -> str | None:
        """The program's name without its folder; None where it is not known, "" where only variables are set."""
        return get_program_name(self.words[0]) if self.words else ""

    @property
    def arguments(self) -> tuple[ShellWord, ...]:
        return self.words[1:]

    @property
    def has_program_from_system_path(self) -> bool:
        """Whether the program's name means the one that the system finds by that name."""
        path = self.words[0].text if self.words else ""
        if path is None:
            return False
        folder, slash, _ = path.rpartition("/")
        return not slash or folder in PROGRAM_FOLDERS

    def joined_text(self) -> str:
        """Return the command as the shell would run it: its words with one blank between them."""
        return " ".join(word.shown_text for word in self.words)


def get_program_name(word: ShellWord) -> str | None:
    """Return the name of the program that a word starts; None where it is not known."""
    if word.text is None or word.is_pattern or word.has_blank_or_hidden_characters:
        return None
    return strip_program_folder_and_suffix(word.text)


@lru_cache(maxsize=1024)
def strip_program_folder_and_suffix(path: str) -> str:
    return _EXECUTABLE.sub("", re.split(r"[/\\]", path)[-1])
