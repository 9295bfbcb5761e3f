"""Terms that would cover a call and similar ones, and calls that no suggestion ever allows.

A call is generalised by what it does (coordinator.calls), not by how it is written. What may differ between calls that
are covered together: variables that start nothing, the order and the form of the commands, files in the working
directory or in the same folder elsewhere, tests that are chosen, and numbers. What may not: a program, a sub-command,
an option, the folder in which the call is made.

Commands are of three kinds. Those that read, test or check (READING, CHECKING) may have other words behind them. Any
other is taken with exactly its own words, and only where it is one of those that are known to do no harm, or a program
of the project. Everything else is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from coordinator.calls.arguments import VALUE
from coordinator.calls.commands import SimpleCommand
from coordinator.calls.descriptions import CallDescription
from coordinator.calls.guarded_paths import CREDENTIAL_PATHS, SETTINGS_PATHS
from coordinator.calls.path_and_host_uses import PathUse
from coordinator.calls.paths import (
    is_in_folder,
    is_windows_path,
    replace_home_with_tilde,
    resolve_absolute_path,
)
from coordinator.calls.programs import LIST, READ, TOUCH, WRITE
from coordinator.calls.tools import TOOLS
from coordinator.errors import UnprocessableRequest
from coordinator.policy.rules import command_words
from coordinator.policy.rules.ready_made import BY_NAME
from coordinator.policy.rules.terms import (
    ANY_OPTION,
    IN_FOLDER,
    LONGEST_LINE,
    MOST_LINES,
    NO_OTHER_WORD,
    SAFE_VARIABLES,
    Match,
    RuleTerms,
    assess_restricting_terms_match,
    covers_call,
    is_shell_word_unambiguous,
    list_options_passed_after_dashes,
    parse_rule_terms,
    replace_numbers_with_hash_sign,
)

MOST_FOLDERS = 12  # working directories of one suggestion
MOST_TOUCHED = 30  # lines of paths of one suggestion
NEAREST_TO_ROOT = 2  # folders: `/var/log` may be read as a folder, `/etc` may not
# Files that programs write their output into, of which another name in the same folder is as harmless.
_ENDS_WORD = frozenset("| \t\n")
_NOT_LITERAL = _ENDS_WORD | frozenset("*?#")  # mean something in a line
OUTPUT_ENDINGS = frozenset({"log", "txt", "out", "err", "diff", "patch", "csv", "tsv"})
# Folders outside of the working directory that hold nobody's work.
SCRATCH_FOLDER = "/tmp"  # noqa: S108 - a folder that rules name, not one that is written here
SHARED_FOLDERS = (SCRATCH_FOLDER, "/var/log", "/usr/include", "/usr/lib", "/usr/share", "/usr/local/lib")
HIDDEN_FILES = "!.*"
ENVIRONMENT_FILES = "!.env*"
# Calls that no suggestion and no offer to allow for good ever covers, as rules that deny would say it.
NEVER_ALLOWED = parse_rule_terms(
    "\n".join([BY_NAME["without-sandbox"].runs, BY_NAME["connects"].runs, *command_words.NEVER_ALLOWED]),
    "",
    "",
)
NEVER_TOUCHED = parse_rule_terms(
    "",
    "\n".join(
        [
            *CREDENTIAL_PATHS,
            *command_words.SECRET_PATHS,
            *(f"writes|deletes {path}" for path in SETTINGS_PATHS),
        ]
    ),
    "",
)
# Calls that nothing is learnt from, though a person may allow one of them for good.
NEVER_LEARNT = parse_rule_terms(
    "\n".join(BY_NAME[name].runs for name in ("publishes", "rewrites-history", "installs")), "", ""
)
DELETES_OUTSIDE = parse_rule_terms("", BY_NAME["deletes-outside"].touches, "")


@dataclass(slots=True)
class CallTerms:
    """What would cover some calls of one tool.

    commands: the words of each command, with the options that were given to it.
    touches: lines of paths outside of the working directory, and of what the shell writes into.
    inside: what is done with paths in the working directory.
    reaches: lines of hosts.
    folders: the working directories.
    """

    commands: dict[str, list[str]] = field(default_factory=dict)
    touches: list[str] = field(default_factory=list)
    reaches: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)

    @classmethod
    def deserialize_call_terms(cls, values: Any) -> CallTerms:
        return cls(*values)

    def serialize_call_terms_as_list(self) -> list[Any]:
        return [self.commands, self.touches, self.reaches, self.folders, self.inside]

    def extend_with_call_terms(self, other: CallTerms) -> None:
        """Take in what covers another call."""
        for words, options in other.commands.items():
            append_missing_items(self.commands.setdefault(words, []), options)
        append_missing_items(self.touches, other.touches)
        append_missing_items(self.reaches, other.reaches)
        append_missing_items(self.folders, other.folders)
        append_missing_items(self.inside, other.inside)

    @property
    def are_call_terms_too_varied(self) -> bool:
        return (
            len(self.folders) > MOST_FOLDERS
            or len(self.touches) > MOST_TOUCHED
            or len(self.commands) > MOST_LINES
            or any(
                len(line) > LONGEST_LINE
                for line in (*self.format_command_term_lines(), *self.format_path_term_lines())
            )
        )

    def format_command_term_lines(self) -> list[str]:
        return [" ".join([words, *sorted(options)]) for words, options in sorted(self.commands.items())]

    def format_path_term_lines(self) -> list[str]:
        lines = [f"{IN_FOLDER}{folder}" for folder in sorted(self.folders)]
        positive = sorted(line for line in self.touches if not line.startswith("!"))
        excluded = {line for line in self.touches if line.startswith("!")}
        if positive and self.inside:  # without a line, the working directory is covered
            positive.insert(0, "reads inside" if set(self.inside) <= {READ, LIST} else "inside")
        if HIDDEN_FILES in excluded:
            excluded -= {ENVIRONMENT_FILES}
        return [*lines, *positive, *sorted(excluded)]

    def convert_to_rule_terms(self) -> RuleTerms:
        """Return the terms as rules read them. Raises UnprocessableRequest."""
        return parse_rule_terms(
            "\n".join(self.format_command_term_lines()),
            "\n".join(self.format_path_term_lines()),
            "\n".join(sorted(self.reaches)),
        )


@dataclass(frozen=True, slots=True)
class GeneralizedCall:
    """What would cover a call and its like. Calls of one tool with one `key` may be covered together."""

    key: str
    terms: CallTerms


def append_missing_items(listed: list[str], more: Iterable[str]) -> None:
    listed.extend(line for line in more if line not in listed)


# --- what is never allowed --------------------------------------------------------------------------------


def reason_against_permanent_allow(call: CallDescription) -> str:
    """Return why no offer ever allows such a call for good, as a phrase; "" where one may."""
    if call.unreadable:
        return f"it cannot be read: {call.unreadable[0]}"
    if call.lifted_guards:
        return "it leaves its agent's sandbox"
    for terms in (NEVER_ALLOWED, NEVER_TOUCHED):
        restricted = assess_restricting_terms_match(terms, call)
        if restricted.match:
            does = "runs" if terms is NEVER_ALLOWED else "touches"
            return f"it {does} {restricted.parts[0]}" if restricted.parts else "it may do harm"
    return ""


def can_suggest_rule_from_call(call: CallDescription) -> bool:
    """Say whether suggestions may be made from a call: it is readable, and does nothing that is always asked."""
    return (
        not reason_against_permanent_allow(call)
        and not any(command.has_code for command in call.commands)
        and assess_restricting_terms_match(NEVER_LEARNT, call).match == Match.NO
        and assess_restricting_terms_match(DELETES_OUTSIDE, call).match == Match.NO
        and all(can_suggest_allowing_command(command) for command in call.commands)
    )


def can_suggest_allowing_command(command: SimpleCommand) -> bool:
    """Say whether a command is of a kind that suggestions may allow, with its own words at least."""
    if command.is_transparent or not command.words:
        return are_command_variables_harmless(command)
    return generalizable_head_or_empty(command) != ""


# --- generalising -----------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def generalize_call(tool: str, call: CallDescription, *, is_chosen: bool = False) -> GeneralizedCall | None:
    """Return what would cover a call and its like; None where nothing but the call itself may be allowed.

    `is_chosen`: a person looks at this one call, and may choose a folder or a host that nothing is learnt about.
    """
    if not call.is_known_tool or call.unknown_fields or not can_suggest_rule_from_call(call):
        return None
    if call.folder is None or is_windows_path(call.folder):
        return None
    terms = CallTerms(folders=[replace_home_with_tilde(call.folder)])
    touches = list(iterate_lines_covering_paths(call, call.folder, is_chosen=is_chosen))
    terms.touches = list(dict.fromkeys(line for line in touches if line))
    terms.inside = sorted({use.use for use in call.paths if is_path_in_working_directory(use, call.folder)})
    terms.reaches = sorted({address.host or "" for address in call.addresses})
    has_known_parts = None not in touches and all(
        is_host_allowed_in_suggestion(tool, host, is_chosen=is_chosen) for host in terms.reaches
    )
    if (
        not has_known_parts
        or not add_command_terms_or_return_false(terms, call, call.folder)
        or not are_terms_valid_and_cover_call(terms, call)
    ):
        return None
    return GeneralizedCall(build_generalization_key(terms), terms)


def add_command_terms_or_return_false(terms: CallTerms, call: CallDescription, folder: str) -> bool:
    """Add the lines of all commands of a call; say whether each of them has one."""
    variables: list[str] = []
    for command in call.commands:
        if not command.words or (command.program == "cd" and not command.assignments):
            continue
        if command.is_transparent and command.has_program_from_system_path:
            variables += list_significant_assignments(command)
            continue
        words, options = build_command_rule_line_parts(command.without_wrapped_command(), folder)
        if not words:
            return False
        append_missing_items(terms.commands.setdefault(" ".join([*variables, words]), []), options)
        variables = []
    return True


def are_terms_valid_and_cover_call(terms: CallTerms, call: CallDescription) -> bool:
    """Say whether terms can be written as lines of a rule, and cover the call that they were made from."""
    try:
        return covers_call(terms.convert_to_rule_terms(), call)
    except UnprocessableRequest:
        return False


def build_generalization_key(terms: CallTerms) -> str:
    """Return what calls must have in common to be covered together: what they do besides reading, and where outside."""
    doing = {name for words in terms.commands if (name := name_command_activity(words))}
    base = tuple(f"{folder.rstrip('/')}/" for folder in terms.folders)
    outside = {
        line
        for line in terms.touches
        if not line.startswith("!") and not line.partition(" ")[2].startswith(base)
    }
    return " + ".join([*sorted(doing), *sorted(outside), *terms.reaches]) or "reading"


@lru_cache(maxsize=4096)
def name_command_activity(line: str) -> str:
    """Return what a command does, so that commands that do alike are suggested together; "" for looking."""
    words = [word for word in line.split() if "=" not in word]
    program, operands = words[0].rpartition("/")[2], [word for word in words[1:] if not word.startswith("-")]
    if recognized_command_prefix_or_empty(program, operands, command_words.READING | command_words.STARTING):
        return ""
    head = recognized_command_prefix_or_empty(program, operands, command_words.CHECKING)
    if head in command_words.CHANGING:
        return "changing"
    return "checking" if head else program


def is_host_allowed_in_suggestion(tool: str, host: str, *, is_chosen: bool) -> bool:
    """Say whether a host may be reached: by commands this machine alone, and else what all the world reads."""
    if TOOLS[tool].is_command:
        return host in command_words.LOCAL_HOSTS
    return host in command_words.DOCUMENTATION_HOSTS or (is_chosen and bool(host))


# --- paths ------------------------------------------------------------------------------------------------


def iterate_lines_covering_paths(
    call: CallDescription, folder: str, *, is_chosen: bool
) -> Iterator[str | None]:
    """Yield the lines that cover the paths of a call: "" for what needs none, None for what no line may cover."""
    is_writing = any(use.use not in {READ, LIST, TOUCH} and not use.is_redirection for use in call.paths)
    if call.paths:
        yield HIDDEN_FILES if is_writing else ENVIRONMENT_FILES
    for use in call.paths:
        if not is_path_in_working_directory(use, folder):
            yield narrowest_path_term_or_none(use, folder, is_chosen=is_chosen)


def is_path_in_working_directory(use: PathUse, folder: str) -> bool:
    """Say whether a path is in the working directory, and is not what the shell writes into."""
    return (
        use.path is not None
        and is_in_folder(replace_home_with_tilde(use.path), replace_home_with_tilde(folder))
        and not (use.is_redirection and use.use == WRITE)
    )


def narrowest_path_term_or_none(use: PathUse, folder: str, *, is_chosen: bool) -> str | None:
    """Return the narrowest line for a path and other files in its folder; None for a path that may not be allowed."""
    if use.path is None or use.use not in {READ, LIST, WRITE}:
        return None  # what is done with it is not known, so a line for it would let it be written as well
    path = replace_home_with_tilde(use.path)
    if ".." in use.text or any(char in path for char in "*?[]|\n") or is_hidden(path, folder):
        return None
    parent, _, name = path.rpartition("/")
    if use.use == WRITE:
        is_output = name.rpartition(".")[2] in OUTPUT_ENDINGS and "." in name
        is_near = is_in_folder(path, replace_home_with_tilde(folder)) or is_in_folder(path, SCRATCH_FOLDER)
        return f"writes {parent}/*.{name.rpartition('.')[2]}" if is_output and is_near else None
    if not is_chosen and not any(is_in_folder(parent, shared) for shared in SHARED_FOLDERS):
        return None
    if use.is_below or path == "/":
        return None
    is_deep = len([step for step in parent.split("/") if step]) >= NEAREST_TO_ROOT
    return f"{use.use} {parent if is_deep else path}"


def is_hidden(path: str, folder: str) -> bool:
    """Say whether a part of a path, below the working directory if it is there, begins with a dot."""
    return any(step.startswith(".") for step in path.removeprefix(replace_home_with_tilde(folder)).split("/"))


# --- commands ---------------------------------------------------------------------------------------------


def build_command_rule_line_parts(command: SimpleCommand, folder: str) -> tuple[str, list[str]]:
    """Return the words and the options of a line that covers a command; no words where none may."""
    head = generalizable_head_or_empty(command)
    if (
        not head
        or not all(map(is_shell_word_unambiguous, command.words))
        or not is_system_or_project_program(command, folder)
    ):
        return "", []
    variables = list_significant_assignments(command)
    parsed = command.parsed_arguments
    passed_options = list_options_passed_after_dashes((command.program or "").lower(), parsed)
    texts = [
        item.word.text or ""
        for item in (*parsed.iterate_options(), *passed_options)
        if item.word.text != "--"
    ]
    if head == NO_OTHER_WORD:
        operands = [item.word.text or "" for item in parsed.list_operands()]
        if any(text.startswith("-") or set(text) & _NOT_LITERAL for text in operands):
            return "", []
        options = list_literal_options(command, texts)
        words = [*variables, command.words[0].text or "", *operands, *options, NO_OTHER_WORD]
        return (
            ("", []) if any(not word or set(word) & _ENDS_WORD for word in words) else (" ".join(words), [])
        )
    if head.partition(" ")[0] in command_words.TAKES_NO_OPERAND:
        head = f"{head} {NO_OTHER_WORD}"
    if head in command_words.ANY_OPTION_HEADS:
        return " ".join([*variables, head]), [ANY_OPTION]
    harmless = command_words.HARMLESS_OPTIONS.get(command.program or "", frozenset())
    options = [text if text in harmless else text.partition("=")[0] for text in texts]
    if any(not word or set(word) & _NOT_LITERAL for word in (*variables, *options)):
        return "", []
    return " ".join([*variables, head]), [replace_numbers_with_hash_sign(option) for option in options]


def list_significant_assignments(command: SimpleCommand) -> list[str]:
    """Return the variables that are set for a command, as a line says it, without those that change nothing."""
    return [f"{name}={word.text}" for name, word in command.assignments if name not in SAFE_VARIABLES]


def is_system_or_project_program(command: SimpleCommand, folder: str) -> bool:
    """Say whether a program is one of the system, or is in the folder in which the call is made."""
    path = resolve_absolute_path(command.folder, command.words[0].text or "", command.words[0].is_home)
    return command.has_program_from_system_path or (
        path is not None and is_in_folder(path, folder) and ".." not in (command.words[0].text or "")
    )


def list_literal_options(command: SimpleCommand, texts: list[str]) -> list[str]:
    """Return the options of a command with their values."""
    values = {
        item.option: f"{item.option}={replace_numbers_with_hash_sign(item.word.text or '')}"
        for item in command.parsed_arguments.items
        if item.kind == VALUE and item.option
    }
    names = [text.partition("=")[0] for text in texts]
    return sorted(
        {replace_numbers_with_hash_sign(name) for name in names if name not in values} | set(values.values())
    )


def generalizable_head_or_empty(command: SimpleCommand) -> str:
    """Return how a command may be generalised.

    Its program and sub-command where other words may follow, NO_OTHER_WORD where exactly its own may, "" for a command
    that no suggestion allows.
    """
    own_command = command.without_wrapped_command()
    program = own_command.program
    if not program or command.unreadable or command.has_code or not are_command_variables_harmless(command):
        return ""
    operands = [item.word.text or "" for item in own_command.parsed_arguments.list_operands()]
    head = recognized_command_prefix_or_empty(
        program, operands, command_words.READING | command_words.CHECKING
    )
    dangerous = command_words.DANGEROUS_OPTIONS.get(head, frozenset())
    parsed = own_command.parsed_arguments
    passed_options = list_options_passed_after_dashes(program.lower(), parsed)
    options = [item.word.text for item in (*parsed.iterate_options(), *passed_options)]
    if any(
        option is None or option in dangerous or command_words.can_option_run_or_write(program, option)
        for option in options
    ):
        return ""
    if program == "cd":
        return program
    if not own_command.has_program_from_system_path:
        return project_program_head_or_empty(own_command, head)
    if command.is_wrapper:
        head = recognized_command_prefix_or_empty(program, operands, command_words.STARTING)
        return head if has_harmless_launcher_options(own_command) else ""
    return system_program_head_or_empty(own_command, program, operands, head)


def system_program_head_or_empty(command: SimpleCommand, program: str, operands: list[str], head: str) -> str:
    """Return how a program of the system may be generalised. `head`: with the sub-command, where it reads or checks."""
    if program == "sed":
        return (
            f"sed {replace_numbers_with_hash_sign(operands[0])}" if is_harmless_sed(command, operands) else ""
        )
    if head:
        return "" if program in command_words.TAKES_NO_OPERAND and operands else head
    is_exact = recognized_command_prefix_or_empty(
        program, operands, command_words.EXACTLY
    ) or is_interpreter_with_script_file(program, operands)
    return NO_OTHER_WORD if is_exact and not any(map(is_harmful_word, operands)) else ""


def project_program_head_or_empty(command: SimpleCommand, head: str) -> str:
    """Return how a program of the project may be generalised: a tool that is installed there, or a script."""
    written, program = command.words[0].text or "", command.program or ""
    is_installed = written.rpartition("/")[0].rpartition("/")[2] in {"bin", ".bin"}
    if is_installed and program in command_words.CHECKING:
        return written
    is_named_like_known = head != "" or program in command_words.READING
    return "" if is_named_like_known or is_harmful_word(program) else NO_OTHER_WORD


def is_interpreter_with_script_file(program: str, operands: list[str]) -> bool:
    """Say whether an interpreter is given a file, which is in the project where its path is covered."""
    return command_words.SCRIPT_PROGRAMS.fullmatch(program) is not None and bool(operands)


def is_harmful_word(word: str) -> bool:
    """Say whether a word names what nobody wants to happen unasked: deploy, release, drop."""
    return command_words.HARMFUL_WORDS.search(word) is not None


def recognized_command_prefix_or_empty(program: str, operands: list[str], known_heads: frozenset[str]) -> str:
    """Return the program with as many of the words behind it as make it one of those known; "" where it is none."""
    for length in (3, 2, 1, 0):
        head = " ".join([program, *operands[:length]])
        if len(operands) >= length and head in known_heads:
            return head
    return ""


def are_command_variables_harmless(command: SimpleCommand) -> bool:
    """Say whether no variable that is set for a command may start another program."""
    return all(
        word.text is not None
        and (name in SAFE_VARIABLES or command_words.STARTS_PROGRAMS.fullmatch(name) is None)
        for name, word in command.assignments
    )


def has_harmless_launcher_options(command: SimpleCommand) -> bool:
    """Say whether a program that starts another is given no options but those that change nothing about that."""
    return all(
        (item.word.text or "").partition("=")[0] in command_words.STARTING_OPTIONS
        for item in command.parsed_arguments.iterate_options()
    )


def is_harmless_sed(command: SimpleCommand, operands: list[str]) -> bool:
    """Say whether sed only prints lines by their numbers: its scripts can write files and run commands."""
    options = {item.word.text for item in command.parsed_arguments.iterate_options()}
    return (
        options == {"-n"}
        and bool(operands)
        and command_words.PRINTED_LINES.fullmatch(operands[0]) is not None
    )
