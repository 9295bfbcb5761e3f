"""What calls have in common, narrowly: the pattern that fits those that were made and little else.

A command is taken apart only where every piece of it is plain: words, options, inert quotes, and `&&`, `||`, `;`, `|`
between simple commands. Options are allowed as they were seen, word for word (numbers in them may differ); other
arguments as words and paths without `..`, hidden parts, wildcards or anything a shell would expand. A command that
deletes, sends, installs or runs what it is given (EXACT_ONLY) is only ever taken word for word, and so is one behind
which such a command stands, as a keyword of the shell or a program nobody knows may run it. Only commands that
read, check or test (VARIES) may have other words behind them than those that were seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from coordinator.policy.rules.command_words import (
    EXACT_ONLY,
    EXACT_ONLY_WORDS,
    INTERPRETERS,
    NO_MODULES,
    READS_QUOTED,
    RUN_SOMETHING,
    RUNS_NAMED,
    RUNS_OPTION,
    RUNS_SHORT_OPTION,
    SUBCOMMANDS,
    TAKES_OPTIONS_ONLY,
    VARIES,
)

SHELL_FIELDS = frozenset({"command", "cmd", "script"})
PATH_FIELDS = frozenset({"file_path", "notebook_path", "path", "filePath", "absolute_path"})
ADDRESS_FIELDS = frozenset({"url", "uri"})
LONGEST_EXACT = 300  # characters of a call that is suggested word for word
MOST_EXACT = 4  # calls of a group that are remembered word for word
MOST_WORDS = 40  # different options of a command, beyond which it is too varied
MOST_FOLDERS = 8
DEPTH = 3  # folders of a path that are taken as they are: /srv/work/checkout
LONGEST_PATTERN = 2_000
MASK = "[masked:"  # how a secret stands in what is recorded: no call will ever look like this

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~^-]+")
_INERT = re.compile(r"""'[^'\n]*'|"[^"$`\\!\n]*\"""")
_QUOTED_PATTERNS = (r"'([^'\n-][^'\n]*)?'", r'"([^"$`\\!\n-][^"$`\\!\n]*)?"')  # inert, and no option
_BETWEEN = re.compile(r" *(&&|\|\||\||;) *")
_QUIET = re.compile(r"(?:2>&1|[12&]?>/dev/null)(?=[ ;|&]|$)")
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:-]*")
_BEGINS = r"[\w@%+=:,]"  # a word or a part of a path: not as an option, and not hidden
_WORD_PATTERN = rf"{_BEGINS}([\w@%+=:,.~^-]|/{_BEGINS})*/?"
_WORD = re.compile(_WORD_PATTERN, re.ASCII)
_PATH_SEGMENT = r"[^/.\\\n][^/\\\n]*"  # a part of a path, not hidden, with no backslash of Windows
_FIRST_SEGMENT = _PATH_SEGMENT.replace("/.", "/.~", 1)
_NUMBERS = re.compile(r"[0-9]+")


@dataclass(slots=True)
class CommandPart:
    """What was seen behind the first words of one simple command, over all calls of a group."""

    words: list[str] = field(default_factory=list)  # literally, numbers as patterns
    folders: list[str] = field(default_factory=list)  # under which absolute paths lay
    plain: bool = False  # plain words or relative paths
    quoted: bool = False  # any text in quotes that is no option

    def merge_part(self, other: CommandPart) -> None:
        self.words = merge_limited_lists(self.words, other.words, MOST_WORDS)
        self.folders = merge_limited_lists(self.folders, other.folders, MOST_FOLDERS)
        self.plain |= other.plain
        self.quoted |= other.quoted

    @property
    def is_too_varied(self) -> bool:
        return len(self.words) > MOST_WORDS or len(self.folders) > MOST_FOLDERS

    def part_as_values(self) -> list[Any]:
        return [self.words, self.folders, self.plain, self.quoted]


def merge_limited_lists(some: list[str], others: list[str], most: int) -> list[str]:
    """Return both lists as one, each text once; one more than `most` says that there were too many."""
    return [*some, *(entry for entry in others if entry not in some)][: most + 1]


@dataclass(slots=True)
class CallShape:
    """The common shape of some calls: its `key` and, for what may differ, the `parts`. No `key`: only word for word."""

    key: str
    parts: list[CommandPart] = field(default_factory=list)


def classify_call_shape(field_name: str, about: str) -> CallShape:
    """Return a call's shape. Calls of one tool with one key can be put together."""
    if field_name in SHELL_FIELDS:
        return classify_command_shape(about)
    if field_name in PATH_FIELDS:
        return classify_path_shape(about)
    if field_name in ADDRESS_FIELDS:
        return classify_address_shape(about)
    return CallShape("any")


def build_shape_pattern(shape: CallShape) -> str | None:
    """Return the pattern (RE2, to fit the whole text) of all calls of a shape; None where they are too varied."""
    kind, _, rest = shape.key.partition(" ")
    if kind == "any":
        return ""
    if kind == "path":
        begins = rf"{escape_pattern_text(rest)}/{_PATH_SEGMENT}" if rest else _FIRST_SEGMENT
        return rf"{begins}(/{_PATH_SEGMENT})*"
    if kind == "address":
        return rf"{escape_pattern_text(rest)}(/\S*)?"
    if kind == "command" and not any(part.is_too_varied for part in shape.parts):
        pattern = build_command_pattern(rest, shape.parts)
        return pattern if len(pattern) <= LONGEST_PATTERN else None
    return None


def escape_pattern_text(text: str) -> str:
    """Return a pattern that fits exactly this text."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text).replace("\n", r"\n")


def describe_shape_pattern(shape: CallShape) -> str:
    """Return what a shape's pattern would allow beside the calls that were made, in words."""
    kind, _, rest = shape.key.partition(" ")
    if kind == "any":
        return "Every call of this tool, whatever its input."
    if kind == "path":
        where = f"below {rest}" if rest else "named relative to the agent's folder"
        return f"Every file {where} whose path has no part that begins with a dot."
    if kind == "address":
        return f"Every page of {rest}."
    allowed = []
    if any(part.plain for part in shape.parts):
        allowed.append("other plain words and relative paths (without .. and hidden parts)")
    folders = sorted({folder for part in shape.parts for folder in part.folders})
    if folders:
        allowed.append(f"other paths below {', '.join(folders)}")
    if any(part.quoted for part in shape.parts):
        allowed.append("any text in quotes that a shell leaves alone and that does not begin with -")
    if any("[0-9]+" in word for part in shape.parts for word in part.words):
        allowed.append("other numbers")
    if not allowed:
        return "The same words and options in any order, and nothing else."
    return f"The same commands with the same options, and: {'; '.join(allowed)}."


# --- paths and addresses ----------------------------------------------------------------------------------


def classify_path_shape(about: str) -> CallShape:
    if not re.fullmatch(rf"/?{_PATH_SEGMENT}(/{_PATH_SEGMENT})*", about) or "~" in about[:1]:
        return CallShape("")  # hidden folders hold settings, keys and hooks: never more than the one file
    if not about.startswith("/"):
        return CallShape("path")
    folders = about.split("/")[1:-1]
    return CallShape(f"path /{'/'.join(folders[:DEPTH])}") if len(folders) > 1 else CallShape("")


def classify_address_shape(about: str) -> CallShape:
    try:
        parts = urlsplit(about)
    except ValueError:
        return CallShape("")
    if parts.scheme not in {"http", "https"} or not re.fullmatch(r"[A-Za-z0-9.:-]+", parts.netloc):
        return CallShape("")
    site = f"{parts.scheme}://{parts.netloc}"
    rest = about[len(site) :]
    return CallShape(f"address {site}") if re.fullmatch(r"(/\S*)?", rest) else CallShape("")


# --- commands ---------------------------------------------------------------------------------------------


def classify_command_shape(about: str) -> CallShape:
    pieces = split_simple_commands(about)
    if pieces is None:
        return CallShape("")
    names, parts = [], []
    for piece in pieces:
        if isinstance(piece, str):
            names.append(piece)
            continue
        name, part = parse_simple_command(piece)
        if not name:
            return CallShape("")
        names.append(name)
        parts.append(part)
    return CallShape(f"command {' '.join(names)}", parts)


def split_simple_commands(text: str) -> list[list[str] | str] | None:
    """Return the simple commands, each as its words, and what stands between them; None where not all is plain."""
    text, at = text.strip(" "), 0
    simple_commands: list[list[str] | str] = [[]]
    while at < len(text):
        last_command = simple_commands[-1]
        assert isinstance(last_command, list)
        if between := _BETWEEN.match(text, at):
            if not last_command:
                return None
            simple_commands += [between[1], []]
            at = between.end()
            continue
        if last_command and text[at] == " ":
            at += len(text[at:]) - len(text[at:].lstrip(" "))
        token = _QUIET.match(text, at) or _INERT.match(text, at) or _PLAIN.match(text, at)
        if token is None or not (token.end() == len(text) or text[token.end()] in " ;|&"):
            return None
        last_command.append(token[0])
        at = token.end()
    return simple_commands if simple_commands[-1] else None


def parse_simple_command(words: list[str]) -> tuple[str, CommandPart]:
    """Return the first words of a simple command, "" where it is to be taken word for word, and what follows them."""
    length = count_command_head_words(words)
    part = CommandPart()
    if not length:
        return "", part
    name = " ".join(words[:length])
    for word in words[length:]:
        note_command_argument(part, word, varies=name in VARIES, any_quoted=name in READS_QUOTED)
    return name, part


def count_command_head_words(words: list[str]) -> int:
    """Return how many words name what is run; 0 where that is not clear, or may do anything."""
    program = words[0].rpartition("/")[2]
    if not _PLAIN.fullmatch(words[0]) or "=" in words[0] or words[0][0] in "-~" or program in EXACT_ONLY:
        return 0
    if can_run_another_program(program, words):
        return 0
    if INTERPRETERS.fullmatch(program):
        return count_script_head_words(words)
    if program in TAKES_OPTIONS_ONLY and any(word[0] != "-" for word in words[1:]):
        return 0
    return 1 if program not in SUBCOMMANDS or len(words) == 1 else count_subcommand_head_words(program, words)


def can_run_another_program(program: str, words: list[str]) -> bool:
    """Say whether the command may run a program that it is given: by an option, or as one that nobody here knows."""
    short = RUNS_SHORT_OPTION.get(program)
    if any(RUNS_OPTION.fullmatch(word) or (short and short.fullmatch(word)) for word in words[1:]):
        return True
    if program in VARIES or program in SUBCOMMANDS or INTERPRETERS.fullmatch(program):
        return False
    return any(word.rpartition("/")[2] in EXACT_ONLY for word in words[1:] if word != ".")


def count_subcommand_head_words(program: str, words: list[str]) -> int:
    if not _SUBCOMMAND.fullmatch(words[1]) or words[1] in EXACT_ONLY_WORDS.get(program, ()):
        return 0
    if words[1] not in RUNS_NAMED or program not in RUN_SOMETHING:
        return 2
    subcommand = words[2] if len(words) > 2 else ""
    sound = re.fullmatch(r"[A-Za-z][A-Za-z0-9_:-]*", subcommand) and subcommand not in EXACT_ONLY
    return 3 if sound and not INTERPRETERS.fullmatch(subcommand) else 0


def count_script_head_words(words: list[str]) -> int:
    """Return how many words name the module or script that Python runs, with a command of manage.py."""
    if len(words) > 2 and words[1] == "-m" and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", words[2]):
        return 0 if words[2] in NO_MODULES else 3
    if len(words) == 1 or not re.fullmatch(r"[A-Za-z0-9_/][A-Za-z0-9_/-]*\.py", words[1]):
        return 0
    if not words[1].endswith("manage.py"):
        return 2
    return 3 if len(words) > 2 and _SUBCOMMAND.fullmatch(words[2]) else 0


def note_command_argument(part: CommandPart, word: str, *, varies: bool, any_quoted: bool) -> None:
    """Take note of one argument."""
    if any_quoted and word[0] in "'\"" and word[1] != "-":  # an option stays one in quotes
        part.quoted = True
    elif varies and _WORD.fullmatch(word):
        part.plain = True
    elif varies and (folder := absolute_path_folder(word)):
        part.folders = merge_limited_lists(part.folders, [folder], MOST_FOLDERS)
    else:
        part.words = merge_limited_lists(part.words, [escape_word_with_numbers(word)], MOST_WORDS)


def absolute_path_folder(word: str) -> str:
    """Return the folder of an absolute path, as deep as DEPTH; "" for what is none or too close to the root."""
    if word[0] != "/" or not _WORD.fullmatch(word[1:]):
        return ""
    folders = word.strip("/").split("/")
    return f"/{'/'.join(folders[:DEPTH])}" if len(folders) >= DEPTH else ""


def escape_word_with_numbers(word: str) -> str:
    return (
        "[0-9]+".join(escape_pattern_text(piece) for piece in _NUMBERS.split(word))
        if word not in {"2>&1"}
        else escape_pattern_text(word)
    )


def build_command_pattern(names: str, parts: list[CommandPart]) -> str:
    """Return the pattern of the simple commands `names` ("cd && git status"), each followed by what was seen."""
    remaining_parts = iter(parts)
    pieces: list[str] = []
    current: list[str] = []
    for word in names.split(" "):
        if word in {"&&", "||", "|", ";"}:
            pieces += [
                build_command_part_pattern(current, next(remaining_parts)),
                rf" *{escape_pattern_text(word)} *",
            ]
            current = []
        else:
            current.append(word)
    return "".join([*pieces, build_command_part_pattern(current, next(remaining_parts))])


def build_command_part_pattern(head: list[str], part: CommandPart) -> str:
    allowed = sorted(part.words)
    if part.plain:
        allowed.append(_WORD_PATTERN)
    allowed += [rf"{escape_pattern_text(folder)}(/({_WORD_PATTERN})?)?" for folder in sorted(part.folders)]
    if part.quoted:
        allowed += _QUOTED_PATTERNS
    name = " +".join(escape_pattern_text(word) for word in head)
    return f"{name}( +({'|'.join(allowed)}))*" if allowed else name
