"""The paths that a simple command touches, and the hosts that it reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from coordinator.calls.arguments import (
    OPERAND,
    VALUE,
    Argument,
    ParsedArguments,
    find_working_directory_arguments,
)
from coordinator.calls.commands import SimpleCommand
from coordinator.calls.paths import resolve_absolute_path
from coordinator.calls.programs import (
    ADDRESS_FILE_OPTIONS,
    DELETE,
    FILE_PROGRAMS,
    FOLDER_OPTIONS,
    GIT_FILE_USES,
    GIT_FLAGS,
    GIT_READING,
    GREP_PROGRAMS,
    HOST_OPTIONS,
    HOST_PROGRAMS,
    HTTP_METHODS,
    HTTP_PROGRAMS,
    IMAGE_PROGRAMS,
    LIST,
    PROXY_VARIABLES,
    READ,
    REMOTE_PATH_PROGRAMS,
    SUB_COMMAND_PROGRAMS,
    TEXT_OPERANDS,
    TEXT_OPTIONS,
    TOUCH,
    URL_PROGRAMS,
    WRITE,
    FileProgram,
    iterate_clustered_options,
)
from coordinator.calls.shell_words import ShellWord

NO_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "-"})
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>|)]+")
_BLANK = re.compile(r"\s")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_REMOTE = re.compile(r"(?:[\w.-]+@)?([A-Za-z0-9_.-]+):(?!//)")
_HOST = re.compile(
    r"(?:[\w.%+-]+(?::[^@\s]*)?@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*))(?::\d+)?(?:[/?#].*)?"
)
_MODE = re.compile(r"-[rwxXst]+")
_DEVICE_ADDRESS = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/.*")
_SOCKET_ADDRESS = re.compile(
    r"(?i)(?:tcp|udp|openssl|ssl|sctp|proxy|socks)[a-z0-9]*(?:-connect)?:(\[[^\]]+\]|[^:,]+)(?:[:,].*)?"
)
_IMAGE = re.compile(r"([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::\d+)?|localhost(?::\d+)?)/\S+")
_GLOB = re.compile(r"[*?\[]")
_GIT_MAGIC = re.compile(r":(\([^)]*\)|[!^])")


# Programs that name hosts without a colon, too.
NAMES_HOSTS = HOST_PROGRAMS | IMAGE_PROGRAMS | HOST_OPTIONS.keys() | ADDRESS_FILE_OPTIONS.keys()


class PathUse(NamedTuple):
    """A path and what the call does with it.

    path: absolute, `..` resolved; `~` is the user's home folder. None where it is not known.
    prefix: of a path that is not known, the folder in which it begins; "" where nothing is known.
    text: as the call writes it.
    is_below: not the path alone: whatever fits a pattern, or is below it.
    is_redirection: the shell itself opens it.
    is_recursive: every file below it is read, whatever its name.
    """

    use: str
    path: str | None
    text: str
    prefix: str = ""
    is_below: bool = False
    is_redirection: bool = False
    is_recursive: bool = False


class AddressUse(NamedTuple):
    """A host that the call reaches, in small letters; None where it is not known. `text` is as the call writes it."""

    host: str | None
    text: str


def build_path_use(use: str, word: ShellWord, folder: str | None) -> PathUse | None:
    """Return the use of the path that a word names; None for what is no file."""
    if word.text is None:
        return PathUse(use, None, word.shown_text, resolve_literal_path_prefix(word, folder))
    if word.text in NO_FILES or not word.text:
        return None
    text, is_below = word.text, False
    if word.is_pattern and (glob_match := _GLOB.search(text)) is not None:
        text, is_below = text[: glob_match.start()], True
        text = text.rpartition("/")[0] + "/" if "/" in text else "."
    path = resolve_absolute_path(folder, text, word.is_home)
    return PathUse(use, path, word.text, is_below=is_below)


def resolve_literal_path_prefix(word: ShellWord, folder: str | None) -> str:
    """Return the folder in which an unknown path begins, as far as it is written."""
    start = word.prefix.rpartition("/")[0]
    if not start and word.prefix.startswith("/"):
        return "/"
    return (resolve_absolute_path(folder, start, word.is_home) or "") if start else ""


def iterate_command_path_uses(command: SimpleCommand) -> Iterator[PathUse]:
    """Yield the paths that one command touches: its redirections, and what its program does with its arguments."""
    for redirection in command.redirections:
        path_use = build_path_use(WRITE if redirection.is_write else READ, redirection.target, command.folder)
        if path_use is not None:
            yield path_use._replace(is_redirection=True)
    if not command.words or command.program is None:
        return
    first = command.words[0]
    if first.text is not None and "/" in first.text and not command.has_program_from_system_path:
        yield from filter(None, [build_path_use(READ, first, command.folder)])
    own_command = command.without_wrapped_command()
    parsed = own_command.parsed_arguments
    folder = command.folder
    for word in find_working_directory_arguments(command.lowercase_program_name, parsed):
        yield from filter(
            None,
            [
                build_path_use(
                    classify_folder_option_use(command.lowercase_program_name, parsed), word, folder
                )
            ],
        )
        folder = None if word.text is None else resolve_absolute_path(folder, word.text, word.is_home)
    if command.is_wrapper:
        return  # what it starts is a command of its own
    is_recursive = is_recursive_file_search(command.lowercase_program_name, parsed)
    for use, word in iterate_path_argument_uses(command, parsed):
        path_use = build_path_use(use, word, folder)
        if path_use is not None:
            yield path_use._replace(is_recursive=True) if is_recursive else path_use


def is_recursive_file_search(name: str, parsed: ParsedArguments) -> bool:
    """Say whether a program reads every file below its folders: `grep -r` does, without options that choose names."""
    if name not in GREP_PROGRAMS:
        return False
    options = {
        option
        for item in parsed.iterate_options()
        for option, _ in iterate_clustered_options(item.word.text or "")
    }
    return (
        bool(options & {"-r", "-R", "--recursive", "--dereference-recursive"}) and "--include" not in options
    )


def classify_folder_option_use(name: str, parsed: ParsedArguments) -> str:
    """Return what a program does in the folder that an option names: git only lists it where it only reads."""
    operand = next((item.word.text for item in parsed.items if item.kind == OPERAND), None)
    return LIST if name == "git" and operand in GIT_READING else TOUCH


def iterate_path_argument_uses(
    command: SimpleCommand, parsed: ParsedArguments
) -> Iterator[tuple[str, ShellWord]]:
    """Yield the words of a command that are paths, each with what is done with it."""
    name = command.lowercase_program_name
    if (program := FILE_PROGRAMS.get(name)) is not None:
        yield from iterate_file_program_path_uses(name, program, parsed)
    elif name == "git":
        yield from iterate_git_path_uses(parsed)
    elif name == "find":
        yield from iterate_find_program_path_uses(parsed)
    elif name == "dd":
        yield from iterate_dd_path_uses(parsed)
    elif name == "gh" and has_subcommand(parsed, "api"):
        yield from (
            (READ, item.word) for item in parsed.items if item.kind == VALUE and item.option == "--input"
        )
    else:
        yield from iterate_unknown_program_path_uses(name, parsed)


def iterate_file_program_path_uses(
    name: str, program: FileProgram, parsed: ParsedArguments
) -> Iterator[tuple[str, ShellWord]]:
    options = {
        option
        for item in parsed.iterate_options()
        if item.word.text
        for option, _ in iterate_clustered_options(item.word.text)
    }
    values, skipped = dict(program.values), set()
    for index, item in enumerate(parsed.items):
        previous = parsed.items[index - 1] if index else None
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
                skipped.add(index)
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
        item.word for index, item in enumerate(parsed.items) if item.kind == OPERAND and index not in skipped
    ]
    skips = 0 if options & program.skip_unless else program.skips
    if name == "chmod" and any(_MODE.fullmatch(item.word.text or "") for item in parsed.iterate_options()):
        skips = 0  # `chmod -x file`: the mode looks like an option
    paths = operands[skips:]
    is_search_here = name in {"rg", "ag", "ack"} or is_recursive_file_search(name, parsed)
    if not paths and (program.is_default_here or (is_search_here and operands)):
        paths = [ShellWord(".")]
    is_to_folder = any(option in values and values[option] == WRITE for option in options)
    for index, word in enumerate(paths):
        is_last = program.last and index == len(paths) - 1 and len(paths) > 1 and not is_to_folder
        if name in REMOTE_PATH_PROGRAMS and word.text is not None and _REMOTE.match(word.text):
            continue
        yield program.last if is_last else use, word


def iterate_git_path_uses(parsed: ParsedArguments) -> Iterator[tuple[str, ShellWord]]:
    operands = parsed.list_operands()
    sub_command = operands[0].word.text if operands else None
    use = GIT_FILE_USES.get(sub_command or "")
    for item in parsed.items:
        is_flag = item.option in GIT_FLAGS and sub_command in GIT_READING
        if item.kind == VALUE and is_flag and use is not None:
            yield from ((use, word) for word in iterate_git_pathspec_paths(item.word))
        if item.kind == VALUE and item.option in {"--git-dir", "-F", "--file", "--output"}:
            yield WRITE if item.option == "--output" else READ, item.word
    if use is None:
        return
    is_pattern_given = any(item.kind == VALUE and item.option in {"-e", "-f", "-F"} for item in parsed.items)
    skips = (
        2 if sub_command in {"clone", "worktree"} or (sub_command == "grep" and not is_pattern_given) else 1
    )
    paths = operands[skips:]
    if sub_command == "clean":
        paths = paths or [Argument(ShellWord("."), OPERAND)]
    for item in paths:
        text = item.word.text
        if text is not None and _SCHEME.match(text):
            continue
        yield from (
            (use, word) for word in iterate_git_pathspec_paths(item.word, after_dashes=item.after_dashes)
        )


def iterate_git_pathspec_paths(word: ShellWord, *, after_dashes: bool = False) -> Iterator[ShellWord]:
    """Yield the path of a word that git takes for one: `HEAD:path`, `:(glob)path`, or a pattern that the shell leaves.

    What `:(exclude)path` names is left out by git.
    """
    text = word.text
    if text is None:
        yield word
        return
    if (magic := _GIT_MAGIC.match(text)) is not None:
        if magic[1] in {"!", "^"} or "exclude" in magic[1]:
            return
        path = text[magic.end() :]
        text = f"/{path}" if "top" in magic[1] else path
    elif ":" in text and not after_dashes:
        text = text.partition(":")[2]
    if text:
        yield word._replace(text=text, is_pattern=word.is_pattern or _GLOB.search(text) is not None)


def iterate_find_program_path_uses(parsed: ParsedArguments) -> Iterator[tuple[str, ShellWord]]:
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
    for index, item in enumerate(parsed.items):
        if item.word.text in {"-fprint", "-fprint0", "-fls", "-fprintf"} and index + 1 < len(parsed.items):
            yield WRITE, parsed.items[index + 1].word


def iterate_dd_path_uses(parsed: ParsedArguments) -> Iterator[tuple[str, ShellWord]]:
    for item in parsed.items:
        name, equals, value = (item.word.text or item.word.prefix).partition("=")
        if equals and name in {"if", "of"}:
            word = (
                ShellWord(value) if item.word.text is not None else ShellWord(None, value, item.word.reason)
            )
            yield READ if name == "if" else WRITE, word


def has_subcommand(parsed: ParsedArguments, name: str) -> bool:
    """Say whether the first operand is this sub-command."""
    operands = parsed.list_operands()
    return bool(operands) and operands[0].word.text == name


@lru_cache(maxsize=1024)
def list_non_path_options(name: str) -> frozenset[str]:
    """Return the options whose value is no path of what the program does: a text, or its working directory."""
    return TEXT_OPTIONS.get(name, frozenset()) | FOLDER_OPTIONS.get(name, frozenset())


def iterate_unknown_program_path_uses(name: str, parsed: ParsedArguments) -> Iterator[tuple[str, ShellWord]]:
    """Yield the words that may be paths, for a program of which nobody knows what it does with them."""
    if name in TEXT_OPERANDS:
        return
    texts, is_sub_command = list_non_path_options(name), name in SUB_COMMAND_PROGRAMS
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
        elif not _SCHEME.search(text) and not _BLANK.search(text):
            # `./...` is every package below a folder.
            yield (
                TOUCH,
                item.word._replace(text=text.removesuffix("...") or ".") if name == "go" else item.word,
            )
            if text.startswith(("/", "~", ".")) and ":" in text:  # `docker run -v /etc:/host`
                yield TOUCH, item.word._replace(text=text.partition(":")[0])


def iterate_command_address_uses(command: SimpleCommand) -> Iterator[AddressUse]:
    """Yield the hosts that one command reaches, as far as its words name them."""
    name = command.lowercase_program_name
    for redirection in command.redirections:
        if (
            device := _DEVICE_ADDRESS.fullmatch(redirection.target.text or redirection.target.prefix)
        ) is not None:
            yield build_host_address_use(ShellWord(device[1]))
    if (command.is_wrapper and name != "ssh") or name in TEXT_OPERANDS:
        return
    yield from iterate_proxy_variable_addresses(command)
    if name not in NAMES_HOSTS and not any(":" in (word.text or word.prefix) for word in command.arguments):
        return  # neither a URL nor `host:path`
    texts = TEXT_OPTIONS.get(name, frozenset())
    has_named_host = False
    for item in command.parsed_arguments.items:
        is_text = item.kind == VALUE and item.option in texts
        if is_text or (name in {"git", "gh"} and _BLANK.search(item.word.text or "")):
            continue
        text = item.word.text if item.word.text is not None else item.word.prefix
        if item.kind == VALUE and item.option in ADDRESS_FILE_OPTIONS.get(name, ()):
            yield AddressUse(None, item.word.shown_text)  # which addresses a file holds is not known
        elif _SCHEME.search(text):
            addresses = list(iterate_url_host_uses(text, is_whole=item.word.text is not None))
            has_named_host = has_named_host or bool(addresses)
            yield from addresses
        elif item.kind == VALUE and item.option in HOST_OPTIONS.get(name, ()):
            yield from iterate_option_value_hosts(item.word)
        elif item.kind == OPERAND and name in HOST_PROGRAMS and not has_named_host:
            if (address := parse_host_operand(name, item)) is not None:
                has_named_host = name not in URL_PROGRAMS and not item.may_be_value
                yield address
        elif item.kind == OPERAND and (host := program_specific_host_or_empty(name, text)):
            yield AddressUse(host, item.word.shown_text)


def parse_host_operand(name: str, item: Argument) -> AddressUse | None:
    """Return the host that an operand of a program names without `://`; None for a word that names none.

    Behind an option that nobody knows it may be a value: it counts where it looks like a host.
    """
    text = item.word.text if item.word.text is not None else item.word.prefix
    is_method = name in HTTP_PROGRAMS and text.lower() in HTTP_METHODS
    if is_method or (name == "dig" and text.startswith(("+", "@"))):
        return build_host_address_use(ShellWord(text[1:])) if text.startswith("@") else None
    is_uncertain = item.may_be_value and name not in URL_PROGRAMS
    return None if is_uncertain and not is_host_like(text) else build_host_address_use(item.word)


def iterate_proxy_variable_addresses(command: SimpleCommand) -> Iterator[AddressUse]:
    """Yield the proxies through which a command reaches its hosts, by its variables."""
    for variable, word in command.assignments:
        if variable.lower() in PROXY_VARIABLES and (word.text or word.prefix):
            text = word.text if word.text is not None else word.prefix
            yield from iterate_url_host_uses(text) if _SCHEME.search(text) else [build_host_address_use(word)]


def iterate_option_value_hosts(word: ShellWord) -> Iterator[AddressUse]:
    """Yield each host in the value of an option: `evil.example:443`, `localhost:80:6.6.6.6`, `a.example,b.example`."""
    if word.text is None:
        yield AddressUse(None, word.shown_text)
        return
    for part in re.split(r"[\s,]+", word.text):
        pieces = [part] if part.startswith("[") else part.split(":")
        for piece in pieces:
            host = piece.rpartition("@")[2].partition("/")[0]
            if host and not host.isdigit():
                yield build_host_address_use(ShellWord(host))


def is_host_like(text: str) -> bool:
    """Say whether a word looks like the name or the number of a host."""
    return text.lower() == "localhost" or bool(
        _HOST.fullmatch(text) and re.search(r"[^.\d/][.:]\S|\d\.\d+\.\d", text)
    )


def program_specific_host_or_empty(name: str, text: str) -> str:
    """Return the host that an operand of a program names in a form of its own; "" for any other word."""
    if name == "socat":
        socket = _SOCKET_ADDRESS.fullmatch(text)
        return socket[1].strip("[]").lower() if socket is not None and "listen" not in text.lower() else ""
    if name in IMAGE_PROGRAMS:
        image = _IMAGE.fullmatch(text)
        return image[1].partition(":")[0].lower() if image is not None else ""
    return remote_path_host_or_empty(name, text)


def remote_path_host_or_empty(name: str, text: str) -> str:
    """Return the host of `user@host:path` for a program that reads it so; "" for any other word."""
    remote_match = _REMOTE.match(text)
    if remote_match is None or (name not in REMOTE_PATH_PROGRAMS and name != "git"):
        return ""
    is_meant = name != "git" or "@" in text[: remote_match.end()]  # not `HEAD:file`
    return remote_match[1].lower() if is_meant else ""


def build_host_address_use(word: ShellWord) -> AddressUse:
    if word.text is None:
        return AddressUse(None, word.shown_text)
    host_match = _HOST.fullmatch(word.text)
    return AddressUse(host_match[1].lower().rstrip(".") if host_match else None, word.text)


def iterate_url_host_uses(text: str, *, is_whole: bool = True) -> Iterator[AddressUse]:
    """Yield the hosts of the URLs in a text. Of one that is cut off (`is_whole` false) the host may go on."""
    for address_match in _ADDRESS.finditer(text):
        host = parse_url_host(address_match[0])
        is_cut = (
            not is_whole
            and address_match.end() == len(text)
            and not _SCHEME.sub("", address_match[0]).partition("/")[1]
        )
        # Programs differ about whether a backslash ends the host.
        is_ambiguous = "\\" in address_match[0].partition("?")[0]
        yield AddressUse(None if is_cut or is_ambiguous else host, address_match[0])
    if not is_whole and _SCHEME.search(text) and not _ADDRESS.search(text):
        yield AddressUse(None, text)


def parse_url_host(url: str) -> str | None:
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
