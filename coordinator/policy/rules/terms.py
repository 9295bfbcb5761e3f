"""Rules in terms of what a call does: the programs that it runs, the paths that it touches, the hosts that it reaches.

A person writes each term on a line of its own:

- *runs*: `git push`, `npm publish`, `git push --force|-f`, `NODE_ENV=* pnpm exec playwright`. The program, the words
  that follow it, and options that are given anywhere. `|` separates alternatives, `*` stands for anything in a word,
  `#` for a number. `!*` as the last word means that no other word follows.
- *touches*: `.env`, `writes ~/.ssh`, `deletes outside`, `!/tmp`. What is done with the path (nothing: anything), and
  the path: a name wherever it is (for a rule that lets calls go on: below the working directory), a path below the
  working directory, the home folder or `/`, or the words `outside` and `inside` (the working directory). `in /srv/shop`
  is about the working directory itself: the call is made there, or below.
- *reaches*: `example.com`, `*.example.com`, `*`, or `new hosts`: those that nobody approved in the project before.

A rule that restricts (deny, ask) matches where ANY part of the call fits, and, unless it says otherwise, where a part
cannot be read. A rule that lets a call go on covers it only where EVERY part of it fits and nothing is unreadable.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from coordinator.calls.arguments import OPERAND, OPTION, VALUE, Argument, ParsedArguments
from coordinator.calls.commands import SimpleCommand
from coordinator.calls.descriptions import CallDescription
from coordinator.calls.guarded_paths import GUARDED_PATHS
from coordinator.calls.path_and_host_uses import AddressUse, PathUse
from coordinator.calls.paths import is_home_or_system_folder, is_in_folder, replace_home_with_tilde
from coordinator.calls.programs import (
    DELETE,
    FILE_PROGRAMS,
    LIST,
    READ,
    TOUCH,
    WRITE,
    iterate_clustered_options,
)
from coordinator.calls.shell_words import ShellWord
from coordinator.calls.tools import SOURCE_TYPES
from coordinator.calls.wrappers import has_only_harmless_options
from coordinator.errors import UnprocessableRequest
from coordinator.policy.rules.call_history import NEW_HOSTS
from coordinator.policy.rules.command_words import can_option_run_or_write

MOST_LINES = 100  # of one kind in one rule
LONGEST_LINE = 300  # characters
LONGEST_TERMS = 4_000  # characters of one kind in one rule
MATCH_UNREADABLE, IGNORE_UNREADABLE = "match", "ignore"
UNREADABLE_CHOICES = frozenset({"", MATCH_UNREADABLE, IGNORE_UNREADABLE})
WITHOUT_SANDBOX = "without sandbox"  # a line of *runs*: the call lifts a guard of its agent
OUTSIDE, INSIDE = "outside", "inside"
ANY_OPTION = "-*"
NO_OTHER_WORD = "!*"
IN_FOLDER = "in "  # begins a line of *touches* that names working directories
_DIGITS = re.compile(r"[0-9]+")
USES = (READ, WRITE, DELETE, LIST)
# What a rule's use takes in where the rule lets calls go on, and where it restricts.
_COVERED_USES = {READ: {READ, LIST}, LIST: {LIST}, WRITE: {WRITE, READ, LIST}, DELETE: {DELETE}}
_RESTRICTED_USES = {READ: {READ}, LIST: {LIST, READ}, WRITE: {WRITE, DELETE}, DELETE: {DELETE}}
# Variables that change what a program prints or tests, not what it starts.
SAFE_VARIABLES = frozenset(
    """
    CI DEBUG LANG LANGUAGE TZ TERM COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR NODE_ENV RUST_BACKTRACE RUST_LOG
    PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONIOENCODING LC_ALL LC_CTYPE VERBOSE PAGER_COLOR
    """.split()  # noqa: SIM905 - one word of a list a word of the text
)
_SHELL_SIGNS = re.compile(r"[;&$()<>\"'`\\]")
_BRACKETS = str.maketrans({"[": "[[]"})
# Programs for which a word that begins with `@` names no file of arguments: `git log @~3`, `npm view @scope/name`.
PLAIN_AT_SIGN = frozenset({*FILE_PROGRAMS, "git", "npm", "pnpm", "yarn", "bun", "gh"})
GLOB_SIGNS = re.compile(r"[*?\[]")
_GLOB_PIECE = re.compile(r"\[[^\]]+\]|.", re.DOTALL)  # a class of characters stands for any of them
MOST_COMPARED_PIECES = 20_000  # of two patterns, the product of their lengths
_OPTION_SETS_FOLDER = frozenset({"-C", "--cwd", "--dir", "--directory"})
CLIMBING = re.compile(r"(^|/)\.\.(/|$)")


class Match(enum.IntEnum):
    """Whether a part of a call fits. MAYBE: what decides it cannot be read."""

    NO = 0
    MAYBE = 1
    YES = 2


@dataclass(frozen=True, slots=True)
class TermsMatch:
    """How a call fits the terms of a rule, and what of it does, in words for people."""

    match: Match
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandTerm:
    """A line of *runs*: alternatives for each word."""

    program: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    options: tuple[tuple[str, ...], ...]
    assignments: tuple[tuple[str, str], ...]
    allows_any_option: bool
    has_no_other_words: bool = False


@dataclass(frozen=True, slots=True)
class PathTerm:
    """A line of *touches*. Without `uses` it is about every use. `excludes`: the line begins with `!`."""

    uses: frozenset[str]
    pattern: str
    excludes: bool = False


@dataclass(frozen=True, slots=True)
class HostTerm:
    pattern: str
    excludes: bool = False


@dataclass(frozen=True, slots=True)
class RuleTerms:
    """The terms of one rule. A kind without a line restricts nothing."""

    commands: tuple[CommandTerm, ...] = ()
    paths: tuple[PathTerm, ...] = ()
    hosts: tuple[HostTerm, ...] = ()
    lifts_guards: bool = False
    folders: tuple[str, ...] = ()
    has_new_hosts: bool = False  # a host that nobody approved in the project before

    @property
    def has_command_or_guard_terms(self) -> bool:
        return bool(self.commands) or self.lifts_guards


# --- reading what a person wrote --------------------------------------------------------------------------


def split_term_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


@lru_cache(maxsize=1024)
def parse_rule_terms(runs: str, touches: str, reaches: str) -> RuleTerms:
    """Return the terms of a rule. Raises UnprocessableRequest, with a message for the person who wrote them."""
    for text in (runs, touches, reaches):
        lines = split_term_lines(text)
        if len(lines) > MOST_LINES or any(len(line) > LONGEST_LINE for line in lines):
            raise UnprocessableRequest(
                f"A rule may have at most {MOST_LINES} lines of one kind, of at most {LONGEST_LINE} characters each."
            )
    programs, path_lines, host_lines = (split_term_lines(text) for text in (runs, touches, reaches))
    return RuleTerms(
        tuple(parse_command_term(line) for line in programs if line != WITHOUT_SANDBOX),
        tuple(parse_path_term(line) for line in path_lines if not line.startswith(IN_FOLDER)),
        tuple(parse_host_term(line) for line in host_lines if line != NEW_HOSTS),
        WITHOUT_SANDBOX in programs,
        tuple(parse_folder_term(line) for line in path_lines if line.startswith(IN_FOLDER)),
        NEW_HOSTS in host_lines,
    )


def parse_folder_term(line: str) -> str:
    """Return the folder of a line that says where calls are made."""
    folder = line.removeprefix(IN_FOLDER).strip()
    if not folder.startswith(("/", "~/")) or CLIMBING.search(folder):
        raise UnprocessableRequest(f"{line!r} names no folder. Examples: `in /srv/shop`, `in ~/work/*`.")
    return folder.rstrip("/") or "/"


def parse_command_term(line: str) -> CommandTerm:
    if _SHELL_SIGNS.search(line):
        raise UnprocessableRequest(
            f"{line!r}: write one command a line, as words: `git push --force|-f`. Quotes and shell signs mean nothing."
        )
    term_words = line.split()
    assignments = []
    while term_words and (assignment_match := re.match(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", term_words[0])):
        assignments.append((assignment_match[1], assignment_match[2]))
        term_words = term_words[1:]
    if not term_words or term_words[0].startswith("-"):
        raise UnprocessableRequest(f"{line!r} names no program.")
    rest = [word for word in term_words[1:] if word != NO_OTHER_WORD]
    return CommandTerm(
        split_alternatives(term_words[0]),
        tuple(split_alternatives(word) for word in rest if not word.startswith("-")),
        tuple(split_alternatives(word) for word in rest if word.startswith("-") and word != ANY_OPTION),
        tuple(assignments),
        ANY_OPTION in rest,
        NO_OTHER_WORD in term_words,
    )


def split_alternatives(word: str) -> tuple[str, ...]:
    return tuple(part for part in word.split("|") if part) or (word,)


def parse_path_term(line: str) -> PathTerm:
    excludes = line.startswith("!")
    first, _, rest = line.removeprefix("!").strip().partition(" ")
    uses = frozenset(first.split("|"))
    pattern = rest.strip() if uses <= set(USES) else line.removeprefix("!").strip()
    uses = uses if uses <= set(USES) else frozenset()
    if not pattern or CLIMBING.search(pattern):
        raise UnprocessableRequest(
            f"{line!r} names no path. Examples: `.env`, `writes ~/.ssh`, `deletes outside`, `!/tmp`."
        )
    return PathTerm(uses, pattern.rstrip("/") or "/", excludes)


def parse_host_term(line: str) -> HostTerm:
    excludes = line.startswith("!")
    pattern = line.removeprefix("!").strip().lower()
    pattern = re.sub(r"^[a-z][a-z0-9+.-]*://", "", pattern).partition("/")[0]
    if not pattern or any(char.isspace() for char in pattern):
        raise UnprocessableRequest(f"{line!r} names no host. Examples: `example.com`, `*.example.com`, `*`.")
    return HostTerm(pattern.rstrip("."), excludes)


def matches_pattern(text: str, pattern: str, *, folds_case: bool) -> bool:
    """Say whether a text fits a pattern in which `*` and `?` stand for anything."""
    if folds_case:
        text, pattern = text.casefold(), pattern.casefold()
    if "*" not in pattern and "?" not in pattern:
        return text == pattern
    return fnmatchcase(text, pattern.translate(_BRACKETS))


def matches_command_word(text: str, pattern: str, *, folds_case: bool = False) -> bool:
    """Say whether a word of a command fits one of a line, in which `#` stands for a number as well."""
    if "#" in pattern and "#" not in text:
        text = replace_numbers_with_hash_sign(text)
    return matches_pattern(text, pattern, folds_case=folds_case)


def replace_numbers_with_hash_sign(text: str) -> str:
    """Return a word with `#` for each number in it."""
    return _DIGITS.sub("#", text)


# --- rules that restrict ----------------------------------------------------------------------------------


def assess_restricting_terms_match(
    terms: RuleTerms, call: CallDescription, known_hosts: Collection[str] = ()
) -> TermsMatch:
    """Return how a call fits the terms of a rule that restricts: each kind that has lines must fit.

    `known_hosts` are those that people approved in the call's project before.
    """
    restricted: list[TermsMatch] = []
    if terms.has_command_or_guard_terms:
        restricted.append(match_command_terms(terms, call))
    if terms.paths:
        restricted.append(match_path_terms(terms.paths, call))
    if terms.hosts or terms.has_new_hosts:
        restricted.append(assess_host_terms_match(terms, call, known_hosts))
    if terms.folders:
        restricted.append(assess_folder_terms_match(terms.folders, call))
    if not restricted:
        return TermsMatch(Match.NO)
    worst = min(terms_match.match for terms_match in restricted)
    if worst < Match.YES and call.unreadable:
        return TermsMatch(Match.MAYBE, call.unreadable)
    return TermsMatch(
        worst,
        tuple(part for terms_match in restricted if terms_match.match >= worst for part in terms_match.parts),
    )


def assess_folder_terms_match(folders: Sequence[str], call: CallDescription) -> TermsMatch:
    """Return whether a part of a call may run in one of the folders."""
    return build_best_terms_match(
        (
            (Match.MAYBE, "the working directory, which is not known")
            if used_folder is None
            else (
                Match.YES if is_folder_below_patterns(folders, used_folder, folds_case=True) else Match.NO,
                used_folder,
            )
        )
        for used_folder in {call.folder, *(command.folder for command in call.commands)}
    )


def is_folder_below_patterns(folders: Sequence[str], folder: str, *, folds_case: bool = False) -> bool:
    path = replace_home_with_tilde(folder)
    return any(is_path_below(path, pattern, None, folds_case=folds_case) for pattern in folders)


def build_best_terms_match(results: Iterable[tuple[Match, str]]) -> TermsMatch:
    """Return the best of the matches, with the parts that are as good."""
    listed = [(match, part) for match, part in results if match]
    best = max((match for match, _ in listed), default=Match.NO)
    return TermsMatch(best, tuple(dict.fromkeys(part for match, part in listed if match == best)))


def match_command_terms(terms: RuleTerms, call: CallDescription) -> TermsMatch:
    results = [
        (match_command_term(term, command), command.joined_text())
        for command in call.commands
        for term in terms.commands
    ]
    if terms.lifts_guards:
        results += [(Match.YES, name) for name in sorted(call.lifted_guards)]
    return build_best_terms_match(results)


def match_command_term(term: CommandTerm, command: SimpleCommand) -> Match:
    """Return whether a command may be one of those that a line means."""
    if not command.words:
        return Match.NO
    program = command.program
    if program is None:
        return Match.MAYBE
    if not any(matches_pattern(program, wanted_program, folds_case=True) for wanted_program in term.program):
        return Match.NO
    parsed = command.parsed_arguments
    result = min(
        assess_command_operands_match(term.words, parsed),
        match_required_options(term.options, parsed),
        assess_environment_assignments_match(term, command),
    )
    if result and term.has_no_other_words and len(parsed.list_operands()) > len(term.words):
        # One of them may be the value of an option, or be no word at all.
        is_certain = not any(item.may_be_value or item.word.text is None for item in parsed.list_operands())
        return Match.NO if is_certain else Match.MAYBE
    return result


def assess_command_operands_match(expected: Sequence[tuple[str, ...]], parsed: ParsedArguments) -> Match:
    """Return whether the operands begin with the wanted words. A word behind an unknown option may be its value."""
    result, index = Match.YES, 0
    for item in parsed.items:
        if index == len(expected):
            break
        if item.kind != OPERAND:
            continue
        text = item.word.text
        if text is None or item.word.has_blank_or_hidden_characters:
            return Match.MAYBE
        if any(matches_command_word(text, wanted_word, folds_case=True) for wanted_word in expected[index]):
            index += 1
        elif item.word.is_pattern:
            return Match.MAYBE
        elif not item.may_be_value:
            return Match.NO
    return result if index == len(expected) else Match.NO


def match_required_options(expected: Sequence[tuple[str, ...]], parsed: ParsedArguments) -> Match:
    """Return whether each of the wanted options is given, in one of its forms."""
    unknown = any(
        item.word.text is None for item in parsed.items if item.kind == OPERAND and not item.after_dashes
    )
    result = Match.YES
    for alternatives in expected:
        if any(is_option_given(option_name, parsed.items) for option_name in alternatives):
            continue
        if not unknown:
            return Match.NO
        result = Match.MAYBE
    return result


def is_option_given(option: str, items: Sequence[Argument]) -> bool:
    """Say whether an option is given: by itself, in a word of several letters, shortened, or with a value."""
    name, equals, value = option.partition("=")
    for item in items:
        text = item.word.text
        if text is None:
            continue
        if equals:
            if item.kind == VALUE and item.option == name and matches_command_word(text, value):
                return True
        elif item.kind == OPTION and any(
            is_option_or_abbreviation(given_option, name)
            for given_option, _ in iterate_clustered_options(text)
        ):
            return True
    return False


def is_option_or_abbreviation(text: str, option: str) -> bool:
    if matches_command_word(text, option):
        return True
    # `--forc` is `--force` for most programs.
    return option.startswith("--") and len(text) > len("--x") and option.startswith(text)


def assess_environment_assignments_match(term: CommandTerm, command: SimpleCommand) -> Match:
    given_assignments = dict(command.assignments)
    result = Match.YES
    for name, pattern in term.assignments:
        word = given_assignments.get(name)
        if word is None:
            return Match.NO
        if word.text is None:
            result = Match.MAYBE
        elif not matches_pattern(word.text, pattern, folds_case=False):
            return Match.NO
    return result


def match_path_terms(terms: Sequence[PathTerm], call: CallDescription) -> TermsMatch:
    excluded = [term for term in terms if term.excludes]
    positive_terms = [term for term in terms if not term.excludes] or [PathTerm(frozenset(), "*")]
    return build_best_terms_match(
        (assess_path_term_match(term, path, call.folder), path.path or path.text)
        for path in call.paths
        if not any(does_path_term_cover_use(term, path, call.folder) for term in excluded)
        for term in positive_terms
    )


def assess_path_term_match(term: PathTerm, use: PathUse, folder: str | None) -> Match:
    """Return whether a path may be one of those that a line means, and is used so."""
    path_match = assess_path_pattern_match(term.pattern, use, folder)
    if path_match and term.uses and not any(use.use in _RESTRICTED_USES[term_use] for term_use in term.uses):
        return Match.MAYBE if use.use == TOUCH else Match.NO  # a program of which nobody knows what it does
    return path_match


def assess_path_pattern_match(pattern: str, use: PathUse, folder: str | None) -> Match:
    if use.path is None:
        return match_unknown_path(pattern, use, folder)
    path = replace_home_with_tilde(use.path)
    if pattern in {OUTSIDE, INSIDE}:
        return assess_inside_or_outside_match(pattern, path, folder)
    base = absolute_path_pattern_or_none(pattern, folder)
    # Everything below a folder is deleted with it.
    is_deleted = use.use == DELETE and base is not None and is_in_folder(base.casefold(), path.casefold())
    if is_deleted or is_path_below(path, pattern, folder, folds_case=True):
        return Match.YES
    if use.is_below:
        if can_shell_glob_match_pattern(use, pattern, base):
            return Match.YES
        if base is not None and is_in_folder(base.casefold(), path.casefold()) and "**" in use.text:
            return Match.MAYBE
    return Match.NO


def assess_inside_or_outside_match(side: str, path: str, folder: str | None) -> Match:
    """Return whether a path is inside or outside of the working directory."""
    if folder is None:
        return Match.MAYBE
    return Match.YES if is_in_folder(path, replace_home_with_tilde(folder)) == (side == INSIDE) else Match.NO


def can_shell_glob_match_pattern(use: PathUse, pattern: str, base: str | None) -> bool:
    """Say whether a file that the shell's pattern in a call matches may be one that a rule's pattern names.

    `base` is the rule's pattern as an absolute one, where it is about one folder.
    """
    written_steps = use.text.split("/")
    first_glob = next(place for place, step in enumerate(written_steps) if GLOB_SIGNS.search(step))
    globs = written_steps[first_glob:]
    if base is None and "/" not in pattern:
        return can_path_steps_overlap(globs[-1], pattern)
    steps = [*replace_home_with_tilde(use.path or "").rstrip("/").split("/"), *globs]
    wanted_steps = (base or pattern.removeprefix("**/")).split("/")
    starts = range(1) if base is not None else range(len(steps) - len(wanted_steps) + 1)
    return any(
        len(steps) - start >= len(wanted_steps)
        and all(map(can_path_steps_overlap, steps[start:], wanted_steps))
        and start + len(wanted_steps) > len(steps) - len(globs)
        and (start + len(wanted_steps) == len(steps) or steps[start + len(wanted_steps) - 1] != "**")
        for start in starts
    )


def can_path_steps_overlap(glob: str, pattern: str) -> bool:
    """Say whether a name that a step of the shell's pattern matches may fit a step of a rule's pattern.

    `*.py` means source code, whatever its name begins with: it does not meet `secret*`.
    """
    if glob.startswith("*.") and glob[2:].casefold() in SOURCE_TYPES and pattern.endswith("*"):
        return False
    return can_globs_overlap(glob.casefold(), pattern.casefold()) and can_glob_match_dotfile(glob, pattern)


@lru_cache(maxsize=4096)
def can_globs_overlap(first: str, second: str) -> bool:
    """Say whether some text fits both of two patterns; True for those that are too long to compare."""
    pieces, other_pieces = _GLOB_PIECE.findall(first), _GLOB_PIECE.findall(second)
    if len(pieces) * len(other_pieces) > MOST_COMPARED_PIECES:
        return True
    # reached[n]: the pieces so far can fit the same text as the first n pieces of the other.
    reached = [all(piece == "*" for piece in other_pieces[:place]) for place in range(len(other_pieces) + 1)]
    for piece in pieces:
        following = [reached[0] and piece == "*"]
        for place, other in enumerate(other_pieces):
            if piece == "*":
                is_reached = reached[place + 1] or following[place]
            elif other == "*":
                is_reached = following[place] or reached[place + 1]
            else:
                is_reached = reached[place] and (
                    piece == other or len(piece) > 1 or "?" in {piece, other} or len(other) > 1
                )
            following.append(is_reached)
        reached = following
    return reached[-1]


def can_glob_match_dotfile(glob: str, name: str) -> bool:
    """Say whether a shell's pattern can match a name: `*` matches none that begins with a dot."""
    return not name.startswith(".") or glob.startswith((".", "[", "**")) or "**" in glob


def match_unknown_path(pattern: str, use: PathUse, folder: str | None) -> Match:
    """Return whether an unknown path may fit: not where it begins in another folder than the pattern means."""
    if not use.prefix:
        return Match.MAYBE
    prefix = replace_home_with_tilde(use.prefix).casefold()
    if pattern in {OUTSIDE, INSIDE}:
        is_inside = folder is not None and is_in_folder(prefix, replace_home_with_tilde(folder).casefold())
        return (
            Match.YES
            if not is_inside and pattern == OUTSIDE
            else Match.MAYBE
            if pattern == INSIDE
            else Match.NO
        )
    base = absolute_path_pattern_or_none(pattern, folder)
    if base is None:
        return Match.MAYBE
    base = re.split(r"[*?]", base.casefold())[0].rstrip("/") or "/"
    return Match.MAYBE if is_in_folder(base, prefix) or is_in_folder(prefix, base) else Match.NO


def absolute_path_pattern_or_none(pattern: str, folder: str | None) -> str | None:
    """Return a pattern as an absolute one; None for a name, which may be anywhere."""
    if pattern.startswith(("/", "~")):
        return replace_home_with_tilde(pattern)
    if pattern.startswith("**/") or "/" not in pattern or folder is None:
        return None
    return f"{replace_home_with_tilde(folder).rstrip('/')}/{pattern.removeprefix('./')}"


def is_path_below(path: str, pattern: str, folder: str | None, *, folds_case: bool) -> bool:
    """Say whether an absolute path fits a pattern, or is below one that does."""
    steps = path.split("/")
    if pattern == "*":
        return True
    if "/" not in pattern and not pattern.startswith("~"):
        return any(matches_pattern(step, pattern, folds_case=folds_case) for step in steps if step)
    if pattern.startswith("**/"):
        wanted_steps = pattern.removeprefix("**/").split("/")
        starts = range(len(steps) - len(wanted_steps) + 1)
        return any(
            all(
                matches_pattern(step, wanted_step, folds_case=folds_case)
                for step, wanted_step in zip(steps[start:], wanted_steps, strict=False)
            )
            for start in starts
        )
    base = absolute_path_pattern_or_none(pattern, folder)
    if base is None:
        return False
    if base == "/":
        return path.startswith("/")
    wanted_steps = base.split("/")
    return len(steps) >= len(wanted_steps) and all(
        matches_pattern(step, one, folds_case=folds_case)
        for step, one in zip(steps, wanted_steps, strict=False)
    )


def assess_host_terms_match(
    terms: RuleTerms, call: CallDescription, known_hosts: Collection[str]
) -> TermsMatch:
    excluded = [term for term in terms.hosts if term.excludes]
    named = [term for term in terms.hosts if not term.excludes]
    anything = HostTerm("*")
    positive_terms = named or ([] if terms.has_new_hosts else [anything])
    return build_best_terms_match(
        (match_host_term(term, address), address.host or address.text)
        for address in call.addresses
        if address.host is None or not any(match_host_term(term, address) for term in excluded)
        for term in (
            [*positive_terms, anything]
            if terms.has_new_hosts and address.host not in known_hosts
            else positive_terms
        )
    )


def match_host_term(term: HostTerm, address: AddressUse) -> Match:
    if address.host is None:
        return Match.MAYBE
    return Match.YES if matches_pattern(address.host, term.pattern, folds_case=True) else Match.NO


# --- rules that let calls go on ---------------------------------------------------------------------------


def covers_call(terms: RuleTerms, call: CallDescription) -> bool:
    """Say whether every part of a call is covered by the terms of a rule that lets it go on."""
    if call.unreadable or call.unknown_fields or call.lifted_guards or not call.is_known_tool:
        return False
    if terms.has_new_hosts:
        return False  # it is for rules that restrict
    if not (call.commands or call.paths or call.addresses):
        return False
    if terms.folders and not is_call_within_folder_terms(terms.folders, call):
        return False
    if call.runs_outside_agent_folder and not terms.folders:
        return False  # `inside` would be the folder that the call chose
    is_folder_chosen = bool(terms.folders) or call.folder is None or not is_home_or_system_folder(call.folder)
    folder = call.folder if is_folder_chosen else None
    return (
        all(do_command_terms_cover_command(terms.commands, command) for command in call.commands)
        and all(do_path_terms_cover_use(terms.paths, path, folder) for path in call.paths)
        and all(do_host_terms_cover_address(terms.hosts, address) for address in call.addresses)
    )


def is_call_within_folder_terms(folders: Sequence[str], call: CallDescription) -> bool:
    """Say whether the call, and each of its commands, runs in one of the folders."""
    return all(
        used_folder is not None and is_folder_below_patterns(folders, used_folder)
        for used_folder in (call.folder, *(command.folder for command in call.commands))
    )


def do_command_terms_cover_command(terms: Sequence[CommandTerm], command: SimpleCommand) -> bool:
    if command.unreadable or command.has_code or not all(map(is_shell_word_unambiguous, command.words)):
        return False
    if not command.words:
        return are_environment_assignments_covered((), command)
    if command.is_transparent and command.has_program_from_system_path:
        return has_only_harmless_options(
            command.lowercase_program_name, command.arguments
        ) and are_environment_assignments_covered(
            [given for term in terms for given in term.assignments], command
        )
    command = command.without_wrapped_command()
    if command.program == "cd" and not command.assignments:
        return True  # its folder is a path of the call
    return any(does_term_cover_command(term, command) for term in terms)


def is_shell_word_unambiguous(word: ShellWord) -> bool:
    """Say whether a word is known, and none of the files that its pattern means can be taken for an option."""
    if word.text is None or word.has_blank_or_hidden_characters:
        return False
    return not (word.is_pattern and word.text[:1] in {"*", "?", "[", "-"})


def are_environment_assignments_covered(allowed: Sequence[tuple[str, str]], command: SimpleCommand) -> bool:
    return all(
        word.text is not None
        and (
            name in SAFE_VARIABLES
            or any(
                name == assignment_name and matches_pattern(word.text, pattern, folds_case=False)
                for assignment_name, pattern in allowed
            )
        )
        for name, word in command.assignments
    )


def does_term_cover_command(term: CommandTerm, command: SimpleCommand) -> bool:
    program = command.program or ""
    written = command.words[0].text or ""
    is_named = any(
        matches_pattern(written if "/" in program_pattern else program, program_pattern, folds_case=False)
        for program_pattern in term.program
    )
    is_known_place = command.has_program_from_system_path or any(
        "/" in program_pattern for program_pattern in term.program
    )
    if not (is_named and is_known_place and are_environment_assignments_covered(term.assignments, command)):
        return False
    parsed = command.parsed_arguments
    operands = parsed.list_operands()
    if term.has_no_other_words:
        if len(operands) > len(term.words):
            return False
    elif any(item.may_be_value for item in operands[: len(term.words)]):
        return False
    texts = [item.word.text or "" for item in operands]
    if len(texts) < len(term.words) or not all(
        any(matches_command_word(text, one) for one in word_pattern)
        for text, word_pattern in zip(texts, term.words, strict=False)
    ):
        return False
    if any(is_at_sign_argument_file(program, text) for text in texts[len(term.words) :]):
        return False
    return all(
        is_option_covered(term, program, item, parsed)
        for item in (
            *parsed.iterate_options(),
            *list_options_passed_after_dashes(program, parsed),
            *list_option_like_values(parsed),
        )
    )


def is_at_sign_argument_file(program: str, text: str) -> bool:
    """Say whether a word may name a file of more arguments, as `pytest @file` does."""
    return text.startswith("@") and program.lower() not in PLAIN_AT_SIGN


def list_options_passed_after_dashes(program: str, parsed: ParsedArguments) -> list[Argument]:
    """Return the options that a program passes on to another behind `--`: `cargo test -- --logfile x`."""
    if program.lower() in FILE_PROGRAMS or program.lower() == "git":
        return []
    return [item for item in parsed.items if item.after_dashes and (item.word.text or "-").startswith("-")]


def list_option_like_values(parsed: ParsedArguments) -> list[Argument]:
    """Return the values of options that look like options, which the program may take for ones."""
    return [
        item
        for item in parsed.items
        if item.kind == VALUE and len(text := item.word.text or "") > 1 and text[0] == "-"
    ]


def is_option_covered(term: CommandTerm, program: str, item: Argument, parsed: ParsedArguments) -> bool:
    """Say whether an option is one that the line names, or that it lets be: none that runs something."""
    text = item.word.text or ""
    option_names = [
        option_name.partition("=")[0] for alternatives in term.options for option_name in alternatives
    ]
    if text == "--":
        return True
    name = text.partition("=")[0]
    if any(matches_command_word(name, one) for one in option_names):
        return is_option_value_covered(term, item, parsed)
    if (
        not text.startswith("--")
        and len(text) > 2
        and all(f"-{letter}" in option_names for letter in text[1:])
    ):
        return True
    if name in _OPTION_SETS_FOLDER:
        return True  # the folder is a path of the call
    if not term.allows_any_option:
        return False
    return not can_option_run_or_write(program.lower(), text)


def is_option_value_covered(term: CommandTerm, item: Argument, parsed: ParsedArguments) -> bool:
    """Say whether the value of an option fits, where the line says which may be given."""
    name, _, value = (item.word.text or "").partition("=")
    value_patterns = [
        value_pattern.partition("=")[2]
        for alternatives in term.options
        for value_pattern in alternatives
        if value_pattern.partition("=")[0] == name and "=" in value_pattern
    ]
    values = (
        [value]
        if value
        else [other.word.text for other in parsed.items if other.kind == VALUE and other.option == name]
    )
    return not value_patterns or (
        bool(values)
        and all(
            value is not None and any(matches_command_word(value, one) for one in value_patterns)
            for value in values
        )
    )


def do_path_terms_cover_use(terms: Sequence[PathTerm], use: PathUse, folder: str | None) -> bool:
    """Say whether a path is covered. Without a line of paths, what is in the working directory is."""
    if use.path is None or any(assess_path_term_match(term, use, folder) for term in terms if term.excludes):
        return False
    if use.is_recursive and (folder is None or is_in_folder(folder, use.path)):
        return False  # `.env` is in the project's own folder, and would be read
    positive_terms = [term for term in terms if not term.excludes]
    covering = [term for term in positive_terms if does_path_term_cover_use(term, use, folder)]
    if is_guarded_path_use(use, folder):
        return any(names_guarded_path(term, use) for term in covering)
    if covering:
        return True
    return not positive_terms and does_path_term_cover_use(PathTerm(frozenset(), INSIDE), use, folder)


def does_path_term_cover_use(term: PathTerm, use: PathUse, folder: str | None) -> bool:
    if use.path is None:
        return False
    if term.uses and not any(use.use in _COVERED_USES[term_use] for term_use in term.uses):
        return False
    if use.is_redirection and use.use == WRITE and not term.excludes and WRITE not in term.uses:
        return False  # whatever is printed can be written there: the line must say so
    if term.pattern in {OUTSIDE, INSIDE}:
        return assess_path_pattern_match(term.pattern, use, folder) == Match.YES
    is_name = "/" not in term.pattern and not term.pattern.startswith("~") and term.pattern != "*"
    if is_name and (use.is_below or assess_path_pattern_match(INSIDE, use, folder) != Match.YES):
        return False  # a name is one below the working directory; which files a pattern means is not known
    return is_path_below(replace_home_with_tilde(use.path), term.pattern, folder, folds_case=False)


def is_guarded_path_use(use: PathUse, folder: str | None) -> bool:
    """Say whether a path may hold credentials, or settings by which an agent or Signalbox is guarded."""
    if use.is_below and any(step.startswith(".") and GLOB_SIGNS.search(step) for step in use.text.split("/")):
        return True
    return any(assess_path_pattern_match(pattern, use, folder) for pattern in GUARDED_PATHS)


def names_guarded_path(term: PathTerm, use: PathUse) -> bool:
    """Say whether a line names a guarded path itself, not a folder that it is in."""
    last = term.pattern.rpartition("/")[2]
    return term.pattern not in {OUTSIDE, INSIDE, "*", "/"} and (
        term.pattern in GUARDED_PATHS
        or last == (use.path or "").rpartition("/")[2]
        or f"**/{term.pattern.removeprefix('./')}" in GUARDED_PATHS
    )


def do_host_terms_cover_address(terms: Sequence[HostTerm], address: AddressUse) -> bool:
    if address.host is None or any(match_host_term(term, address) for term in terms if term.excludes):
        return False
    return any(match_host_term(term, address) for term in terms if not term.excludes)
