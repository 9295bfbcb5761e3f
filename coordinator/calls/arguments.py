"""The arguments of a simple command as its program reads them: options, their values, operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.calls.programs import (
    FLAG_OPTIONS,
    FOLDER_OPTIONS,
    OPTIONAL_VALUES,
    VALUE_OPTIONS,
    iterate_clustered_options,
)
from coordinator.calls.shell_words import ShellWord


class Argument(NamedTuple):
    """A word, and what it is: an option, the value of one (`option` names it), or an operand.

    may_be_value: it follows an option that nobody knows, and may be its value.
    after_dashes: it follows `--`, where nothing is an option.
    """

    word: ShellWord
    kind: str
    option: str = ""
    may_be_value: bool = False
    after_dashes: bool = False


OPTION, VALUE, OPERAND = "option", "value", "operand"


@dataclass(slots=True)
class ParsedArguments:
    """The arguments of one command in their order."""

    items: list[Argument] = field(default_factory=list)

    def list_operands(self) -> list[Argument]:
        return [item for item in self.items if item.kind == OPERAND]

    def iterate_options(self) -> Iterator[Argument]:
        return (item for item in self.items if item.kind == OPTION)


def parse_command_arguments(program: str, arguments: Sequence[ShellWord]) -> ParsedArguments:
    """Return the arguments of a program (in small letters), classified by what is known of its options."""
    parsed, waiting, after_unknown, after_dashes = ParsedArguments(), "", False, False
    value_options = VALUE_OPTIONS.get(program)
    flag_options = FLAG_OPTIONS.get(program, ())
    for word in arguments:
        text = word.text
        if waiting in OPTIONAL_VALUES.get(program, ()) and (text or "").startswith("-"):
            waiting = ""
        if waiting:
            parsed.items.append(Argument(word, VALUE, waiting))
            waiting = ""
            continue
        if not after_dashes and text == "--":
            after_dashes, after_unknown = True, False
            parsed.items.append(Argument(word, OPTION))
            continue
        if text is None or after_dashes or len(text) < 2 or not text.startswith("-"):
            parsed.items.append(
                Argument(word, OPERAND, may_be_value=after_unknown, after_dashes=after_dashes)
            )
            after_unknown = False
            continue
        parsed.items.append(Argument(word, OPTION))
        waiting, after_unknown = "", "=" not in text and text not in flag_options
        for name, value in iterate_clustered_options(text):
            if value_options is None or name not in value_options:
                continue
            after_unknown = False
            if value:
                parsed.items.append(Argument(ShellWord(value), VALUE, name))
            else:
                waiting = name
            break
        else:
            name, equals, value = text.partition("=")
            if equals:
                parsed.items.append(Argument(ShellWord(value), VALUE, name))
    return parsed


def find_working_directory_arguments(program: str, parsed: ParsedArguments) -> list[ShellWord]:
    """Return the words that name the working directory of what a program does (`git -C`), in their order."""
    options = FOLDER_OPTIONS.get(program)
    if options is None:
        return []
    return [item.word for item in parsed.items if item.kind == VALUE and item.option in options]
