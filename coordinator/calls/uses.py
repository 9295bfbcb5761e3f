"""The paths that a simple command touches, and the hosts that it reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from coordinator.calls.arguments import (
    OPERAND,
    VALUE,
    Argument,
    ParsedArguments,
    find_folder_words,
)
from coordinator.calls.commands import SimpleCommand
from coordinator.calls.paths import join_path
from coordinator.calls.programs import (
    DELETE,
    FILE_PROGRAMS,
    FOLDER_OPTIONS,
    GIT_FILE_USES,
    HOST_PROGRAMS,
    READ,
    REMOTE_PATH_PROGRAMS,
    SUB_COMMAND_PROGRAMS,
    TEXT_OPERANDS,
    TEXT_OPTIONS,
    TOUCH,
    WRITE,
    FileProgram,
    iterate_clustered_options,
)
from coordinator.calls.shell_words import ShellWord

NO_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "-"})
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>|)]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_REMOTE = re.compile(r"(?:[\w.-]+@)?([A-Za-z0-9_.-]+):(?!//)")
_HOST = re.compile(
    r"(?:[\w.%+-]+(?::[^@\s]*)?@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*))(?::\d+)?(?:[/?#].*)?"
)
_GLOB = re.compile(r"[*?\[]")


class PathUse(NamedTuple):
    """A path and what the call does with it.

    path: absolute, `..` resolved; `~` is the user's home folder. None where it is not known.
    prefix: of a path that is not known, the folder in which it begins; "" where nothing is known.
    text: as the call writes it.
    is_below: not the path alone: whatever fits a pattern, or lies below it.
    is_redirection: the shell itself opens it.
    """

    use: str
    path: str | None
    text: str
    prefix: str = ""
    is_below: bool = False
    is_redirection: bool = False


class AddressUse(NamedTuple):
    """A host that the call reaches, in small letters; None where it is not known. `text` is as the call writes it."""

    host: str | None
    text: str


def build_path_use(use: str, word: ShellWord, folder: str | None) -> PathUse | None:
    """Return the use of the path that a word names; None for what is no file."""
    if word.text is None:
        return PathUse(use, None, word.shown_text, resolve_prefix(word, folder))
    if word.text in NO_FILES or not word.text:
        return None
    text, is_below = word.text, False
    if word.is_pattern and (glob_match := _GLOB.search(text)) is not None:
        text, is_below = text[: glob_match.start()], True
        text = text.rpartition("/")[0] + "/" if "/" in text else "."
    path = join_path(folder, text, word.is_home)
    return PathUse(use, path, word.text, is_below=is_below)


def resolve_prefix(word: ShellWord, folder: str | None) -> str:
    """Return the folder in which an unknown path begins, as far as it is written."""
    start = word.prefix.rpartition("/")[0]
    if not start and word.prefix.startswith("/"):
        return "/"
    return (join_path(folder, start, word.is_home) or "") if start else ""


def find_path_uses(command: SimpleCommand) -> Iterator[PathUse]:
    """Yield the paths that one command touches: its redirections, and what its program does with its arguments."""
    for redirection in command.redirections:
        path_use = build_path_use(WRITE if redirection.is_write else READ, redirection.target, command.folder)
        if path_use is not None:
            yield path_use._replace(is_redirection=True)
    if not command.words or command.program is None:
        return
    first = command.words[0]
    if first.text is not None and "/" in first.text and not command.has_standard_program:
        yield from filter(None, [build_path_use(READ, first, command.folder)])
    if command.is_wrapper:
        return  # what it starts is a command of its own
    parsed = command.parsed_arguments
    folder = command.folder
    for word in find_folder_words(command.lower_program, parsed):
        yield from filter(None, [build_path_use(TOUCH, word, folder)])
        folder = None if word.text is None else join_path(folder, word.text, word.is_home)
    for use, word in list_path_words(command, parsed):
        yield from filter(None, [build_path_use(use, word, folder)])


def list_path_words(command: SimpleCommand, parsed: ParsedArguments) -> Iterator[tuple[str, ShellWord]]:
    """Yield the words of a command that are paths, each with what is done with it."""
    name = command.lower_program
    if (program := FILE_PROGRAMS.get(name)) is not None:
        yield from list_file_program_words(name, program, parsed)
    elif name == "git":
        yield from list_git_words(parsed)
    elif name == "find":
        yield from list_find_words(parsed)
    elif name == "dd":
        yield from list_dd_words(parsed)
    else:
        yield from list_unknown_words(name, parsed)


def list_file_program_words(
    name: str, program: FileProgram, parsed: ParsedArguments
) -> Iterator[tuple[str, ShellWord]]:
    options = {
        option
        for item in parsed.iterate_options()
        if item.word.text
        for option, _ in iterate_clustered_options(item.word.text)
    }
    values, skipped = dict(program.values), set()
    for place, item in enumerate(parsed.items):
        previous = parsed.items[place - 1] if place else None
        if item.kind == VALUE and item.option in values:
            yield values[item.option], item.word
        elif item.kind == OPERAND and item.may_be_value and previous is not None:
            option = next(
                (
                    letter
                    for letter, rest in iterate_clustered_options(previous.word.text or "")
                    if letter in values and not rest
                ),
                None,
            )
            if option is not None:
                skipped.add(place)
                yield values[option], item.word
    if not program.use:
        return
    uses = {
        use
        for option, use in program.switches.items()
        if any(argument_text.startswith(option) for argument_text in options)
    }
    use = next(iter(uses), program.use)
    operands = [
        item.word for place, item in enumerate(parsed.items) if item.kind == OPERAND and place not in skipped
    ]
    skips = 0 if options & program.skip_unless else program.skips
    paths = operands[skips:]
    if not paths and (program.is_default_here or (name in {"rg", "ag", "ack"} and operands)):
        paths = [ShellWord(".")]
    is_to_folder = any(option in values and values[option] == WRITE for option in options)
    for place, word in enumerate(paths):
        is_last = program.last and place == len(paths) - 1 and len(paths) > 1 and not is_to_folder
        if name in REMOTE_PATH_PROGRAMS and word.text is not None and _REMOTE.match(word.text):
            continue
        yield program.last if is_last else use, word


def list_git_words(parsed: ParsedArguments) -> Iterator[tuple[str, ShellWord]]:
    operands = parsed.list_operands()
    sub_command = operands[0].word.text if operands else None
    use = GIT_FILE_USES.get(sub_command or "")
    for item in parsed.items:
        if item.kind == VALUE and item.option in {"--git-dir", "-F", "--file", "--output"}:
            yield WRITE if item.option == "--output" else READ, item.word
    if use is None:
        return
    paths = operands[2:] if sub_command in {"clone", "grep", "worktree"} else operands[1:]
    if sub_command == "clean":
        paths = paths or [Argument(ShellWord("."), OPERAND)]
    for item in paths:
        text = item.word.text
        if text is not None and _SCHEME.match(text):
            continue
        if text is not None and not item.after_dashes and ":" in text:
            yield use, ShellWord(text.partition(":")[2])  # `HEAD:path`
        else:
            yield use, item.word


def list_find_words(parsed: ParsedArguments) -> Iterator[tuple[str, ShellWord]]:
    roots: list[ShellWord] = []
    for item in parsed.items:
        if item.word.text in {"-H", "-L", "-P"}:
            continue
        if item.kind != OPERAND or item.word.text in {"(", "!"}:
            break
        roots.append(item.word)
    texts = {item.word.text for item in parsed.items}
    for root in roots or [ShellWord(".")]:
        yield DELETE if "-delete" in texts else READ, root
    for place, item in enumerate(parsed.items):
        if item.word.text in {"-fprint", "-fprint0", "-fls", "-fprintf"} and place + 1 < len(parsed.items):
            yield WRITE, parsed.items[place + 1].word


def list_dd_words(parsed: ParsedArguments) -> Iterator[tuple[str, ShellWord]]:
    for item in parsed.items:
        name, equals, value = (item.word.text or item.word.prefix).partition("=")
        if equals and name in {"if", "of"}:
            word = (
                ShellWord(value) if item.word.text is not None else ShellWord(None, value, item.word.reason)
            )
            yield READ if name == "if" else WRITE, word


def list_unknown_words(name: str, parsed: ParsedArguments) -> Iterator[tuple[str, ShellWord]]:
    """Yield the words that may be paths, for a program of which nobody knows what it does with them."""
    if name in TEXT_OPERANDS:
        return
    texts, is_sub_command = TEXT_OPTIONS.get(name, frozenset()), name in SUB_COMMAND_PROGRAMS
    texts |= FOLDER_OPTIONS.get(name, frozenset())
    for item in parsed.items:
        if item.kind == OPERAND and is_sub_command:
            is_sub_command = False
            continue
        if item.kind not in {OPERAND, VALUE} or (item.kind == VALUE and item.option in texts):
            continue
        text = item.word.text
        if text is None:
            if item.kind == OPERAND or "/" in item.word.prefix:
                yield TOUCH, item.word
        elif not _SCHEME.search(text) and not any(char.isspace() for char in text):
            # `./...` is every package below a folder.
            yield (
                TOUCH,
                item.word._replace(text=text.removesuffix("...") or ".") if name == "go" else item.word,
            )
            if text.startswith(("/", "~", ".")) and ":" in text:  # `docker run -v /etc:/host`
                yield TOUCH, item.word._replace(text=text.partition(":")[0])


def find_address_uses(command: SimpleCommand) -> Iterator[AddressUse]:
    """Yield the hosts that one command reaches, as far as its words name them."""
    name = command.lower_program
    if command.is_wrapper and name != "ssh":
        return
    if name in TEXT_OPERANDS:
        return
    texts = TEXT_OPTIONS.get(name, frozenset())
    parsed = command.parsed_arguments
    has_named_host = False
    for item in parsed.items:
        word = item.word
        if item.kind == VALUE and item.option in texts:
            continue
        if name in {"git", "gh"} and any(char.isspace() for char in word.text or ""):
            continue
        text = word.text if word.text is not None else word.prefix
        if _SCHEME.search(text):
            for address in find_addresses(text, is_whole=word.text is not None):
                has_named_host = True
                yield address
        elif item.kind == OPERAND and not has_named_host and name in HOST_PROGRAMS and not item.may_be_value:
            has_named_host = name not in {"curl", "wget"}
            yield read_bare_host(word)
        elif item.kind == OPERAND and (host := find_remote_host(name, text)):
            yield AddressUse(host, word.shown_text)


def find_remote_host(name: str, text: str) -> str:
    """Return the host of `user@host:path` for a program that reads it so; "" for any other word."""
    remote_match = _REMOTE.match(text)
    if remote_match is None or (name not in REMOTE_PATH_PROGRAMS and name != "git"):
        return ""
    is_meant = name != "git" or "@" in text[: remote_match.end()]  # not `HEAD:file`
    return remote_match[1].lower() if is_meant else ""


def read_bare_host(word: ShellWord) -> AddressUse:
    if word.text is None:
        return AddressUse(None, word.shown_text)
    host_match = _HOST.fullmatch(word.text)
    return AddressUse(host_match[1].lower().rstrip(".") if host_match else None, word.text)


def find_addresses(text: str, *, is_whole: bool = True) -> Iterator[AddressUse]:
    """Yield the hosts of the URLs in a text. Of one that is cut off (`is_whole` false) the host may go on."""
    for address_match in _ADDRESS.finditer(text):
        host = read_host(address_match[0])
        is_cut = (
            not is_whole
            and address_match.end() == len(text)
            and not _SCHEME.sub("", address_match[0]).partition("/")[1]
        )
        yield AddressUse(None if is_cut else host, address_match[0])
    if not is_whole and _SCHEME.search(text) and not _ADDRESS.search(text):
        yield AddressUse(None, text)


def read_host(url: str) -> str | None:
    """Return the host of a URL as programs that fetch it read it; None where it has none that can be read."""
    try:
        host = urlsplit(url.replace("\\", "/")).hostname
    except ValueError:
        return None
    if not host:
        return None
    try:
        return host.rstrip(".").encode("idna").decode() if not host.isascii() else host.rstrip(".")
    except UnicodeError:
        return None
