"""Programs that start the command in their arguments: how to find it there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from coordinator.calls.shell_words import ShellWord

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash"})
# Whose language nobody here reads, and who run commands in it.
FOREIGN_SHELLS = frozenset(
    {"fish", "nu", "xonsh", "elvish", "csh", "tcsh", "pwsh", "powershell", "cmd", "wsl", "osascript"}
)
SHELL_VALUES = frozenset({"--rcfile", "--init-file", "-o", "-O", "+o", "+O"})
# Interpreters of other languages, and the options that are followed by a program in them.
INTERPRETERS: dict[str, frozenset[str]] = {
    "python": frozenset({"-c"}),
    "pypy": frozenset({"-c"}),
    "node": frozenset({"-e", "--eval", "-p", "--print", "-pe"}),
    "deno": frozenset({"eval"}),
    "bun": frozenset({"-e", "--eval", "-p"}),
    "ruby": frozenset({"-e"}),
    "perl": frozenset({"-e", "-E"}),
    "php": frozenset({"-r"}),
    "lua": frozenset({"-e"}),
    "rscript": frozenset({"-e"}),
    "julia": frozenset({"-e", "-E"}),
    "tclsh": frozenset(),
    "groovy": frozenset({"-e"}),
    "scala": frozenset({"-e"}),
}
_VERSION = re.compile(r"[0-9.]+$")


_SSH_COMMAND = re.compile(r"(?i)(?:proxy|local|knownhosts)command\s*[= ]\s*")


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How a program names the command that it starts.

    values: options that take the next word.
    scripts: options whose value is a shell text.
    operands: how many words come before the command.
    commands: the sub-commands that the command follows; any other starts nothing. Empty: no sub-command.
    is_transparent: it does nothing else.
    takes_assignments: `NAME=value` may come before the command.
    is_joined: the words of the command are a shell text together.
    adds_words: it adds words that nobody knows.
    needs_dashes: the command follows `--`.
    query_options: options with which it starts nothing.
    changes_folder: options whose value is the working directory.
    is_remote: the command runs on another machine, or in another root.
    """

    values: frozenset[str] = frozenset()
    scripts: frozenset[str] = frozenset()
    operands: int = 0
    commands: tuple[tuple[str, ...], ...] = ()
    is_transparent: bool = False
    takes_assignments: bool = False
    is_joined: bool = False
    adds_words: bool = False
    needs_dashes: bool = False
    query_options: frozenset[str] = frozenset()
    changes_folder: frozenset[str] = frozenset()
    is_remote: bool = False


@dataclass(slots=True)
class WrappedCommand:
    """What a wrapper starts: words, or shell texts. `folder` is the word that names the working directory."""

    words: list[ShellWord] = field(default_factory=list)
    scripts: list[ShellWord] = field(default_factory=list)
    assignments: list[tuple[str, ShellWord]] = field(default_factory=list)
    folder: ShellWord | None = None


def build_wrapper_from_option_text(
    values: str = "",
    *,
    scripts: str = "",
    commands: str = "",
    query_options: str = "",
    folders: str = "",
    **traits: object,
) -> Wrapper:
    """Return a wrapper of options in one text. `commands` are sub-commands, one a comma."""
    return Wrapper(
        values=frozenset(values.split()) | frozenset(folders.split()),
        scripts=frozenset(scripts.split()),
        commands=tuple(tuple(command.split()) for command in commands.split(",") if command.strip()),
        query_options=frozenset(query_options.split()),
        changes_folder=frozenset(folders.split()),
        **traits,  # type: ignore[arg-type]
    )


_PACKAGE_RUN = (
    "-C --dir --filter -F --prefix -w --workspace --package -p --cwd --with --with-requirements --project --directory"
    " --python --extra --group --env-file"
)

WRAPPERS: dict[str, Wrapper] = {
    # What does nothing of its own
    "env": build_wrapper_from_option_text(
        "-u --unset -a --argv0 --block-signal",
        scripts="-S --split-string",
        folders="-C --chdir",
        takes_assignments=True,
        is_transparent=True,
    ),
    "time": build_wrapper_from_option_text("-f --format -o --output", is_transparent=True),
    "nice": build_wrapper_from_option_text("-n --adjustment", is_transparent=True),
    "ionice": build_wrapper_from_option_text("-c --class -n --classdata -p --pid", is_transparent=True),
    "chrt": build_wrapper_from_option_text("-T -P -D", operands=1, is_transparent=True),
    "taskset": build_wrapper_from_option_text("", operands=1, is_transparent=True),
    "timeout": build_wrapper_from_option_text("-k --kill-after -s --signal", operands=1, is_transparent=True),
    "gtimeout": build_wrapper_from_option_text(
        "-k --kill-after -s --signal", operands=1, is_transparent=True
    ),
    "nohup": build_wrapper_from_option_text("", is_transparent=True),
    "setsid": build_wrapper_from_option_text("", is_transparent=True),
    "stdbuf": build_wrapper_from_option_text("-i --input -o --output -e --error", is_transparent=True),
    "unbuffer": build_wrapper_from_option_text("", is_transparent=True),
    "command": build_wrapper_from_option_text("", query_options="-v -V", is_transparent=True),
    "builtin": build_wrapper_from_option_text("", is_transparent=True),
    "exec": build_wrapper_from_option_text("-a", is_transparent=True),
    "coproc": build_wrapper_from_option_text("", is_transparent=True),
    "noglob": build_wrapper_from_option_text("", is_transparent=True),
    "nocorrect": build_wrapper_from_option_text("", is_transparent=True),
    "caffeinate": build_wrapper_from_option_text("-t -w", is_transparent=True),
    "xvfb-run": build_wrapper_from_option_text(
        "-n --server-num -e --error-file -f --auth-file -p --xauth-protocol -s --server-args -w --wait",
        is_transparent=True,
    ),
    "dbus-run-session": build_wrapper_from_option_text("--config-file --dbus-daemon", is_transparent=True),
    "rlwrap": build_wrapper_from_option_text(
        "-a -b -C -D -f -g -H -l -m -M -O -P -q -s -S -t -w -z", is_transparent=True
    ),
    "cpulimit": build_wrapper_from_option_text("-l --limit -p --pid -e --exe -P --path -c --cpu"),
    "gdb": build_wrapper_from_option_text("-x --command -ex -iex -d --directory -p --pid"),
    "eatmydata": build_wrapper_from_option_text("", is_transparent=True),
    "watch": build_wrapper_from_option_text(
        "-n --interval -q --equexit", is_joined=True, is_transparent=True
    ),
    "hyperfine": build_wrapper_from_option_text("", is_joined=True),
    "flock": build_wrapper_from_option_text(
        "-w --wait --timeout -E --conflict-exit-code", scripts="-c --command", operands=1
    ),
    "script": build_wrapper_from_option_text(
        "-E --echo -I -O -B -T -m -o", scripts="-c --command", operands=99
    ),
    "entr": build_wrapper_from_option_text("", scripts=""),
    "watchexec": build_wrapper_from_option_text(
        "-w --watch -e --exts -i --ignore -f --filter -d --debounce -s --signal --shell"
    ),
    "nodemon": build_wrapper_from_option_text(
        "-w --watch -e --ext -i --ignore -d --delay --signal", scripts="-x --exec", operands=99
    ),
    "strace": build_wrapper_from_option_text("-e -o -p -s -u -E -a -b -I -O -P -S -X"),
    "ltrace": build_wrapper_from_option_text("-e -o -p -s -u -a -l -n -x"),
    "perf": build_wrapper_from_option_text("-e -o -F -c -p", commands="record,stat,trace"),
    "proxychains": build_wrapper_from_option_text("-f"),
    "proxychains4": build_wrapper_from_option_text("-f"),
    "torsocks": build_wrapper_from_option_text(""),
    "torify": build_wrapper_from_option_text(""),
    "faketime": build_wrapper_from_option_text("", operands=1),
    "concurrently": build_wrapper_from_option_text("-n --names -c --prefix-colors -k", is_joined=True),
    "cross-env": build_wrapper_from_option_text("", takes_assignments=True, is_transparent=True),
    "cross-env-shell": build_wrapper_from_option_text(
        "", takes_assignments=True, is_joined=True, is_transparent=True
    ),
    "ssh-agent": build_wrapper_from_option_text("-t -a -E"),
    "busybox": build_wrapper_from_option_text(""),
    "toybox": build_wrapper_from_option_text(""),
    "setpriv": build_wrapper_from_option_text("--reuid --regid --groups"),
    "prlimit": build_wrapper_from_option_text("-p --pid"),
    "setarch": build_wrapper_from_option_text("", operands=1),
    "linux32": build_wrapper_from_option_text(""),
    "linux64": build_wrapper_from_option_text(""),
    "catchsegv": build_wrapper_from_option_text(""),
    "valgrind": build_wrapper_from_option_text(""),
    # As another user, in another root, as a service, on another machine
    "sudo": build_wrapper_from_option_text(
        "-u --user -g --group -h --host -p --prompt -C --close-from -r --role -t --type -T --command-timeout -U"
        " --other-user -R --chroot",
        folders="-D --chdir",
        takes_assignments=True,
    ),
    "doas": build_wrapper_from_option_text("-u -C"),
    "pkexec": build_wrapper_from_option_text("--user"),
    "run0": build_wrapper_from_option_text(
        "-u --user -g --group --unit --property --description --slice --setenv", folders="-D --chdir"
    ),
    "runuser": build_wrapper_from_option_text("-u --user -g --group -s --shell", scripts="-c --command"),
    "su": build_wrapper_from_option_text(
        "-s --shell -g --group -G --supp-group -w", scripts="-c --command --session-command", operands=99
    ),
    "gosu": build_wrapper_from_option_text("", operands=1),
    "su-exec": build_wrapper_from_option_text("", operands=1),
    "sg": build_wrapper_from_option_text("", scripts="-c", operands=1, is_joined=True),
    "systemd-run": build_wrapper_from_option_text(
        "-u --unit -p --property -M --machine -H --host --slice --description --uid --gid --nice -E --setenv"
        " --on-active --on-boot --on-calendar --on-startup --on-unit-active --timer-property --path-property"
        " --socket-property --service-type",
        folders="--working-directory",
    ),
    "systemd-inhibit": build_wrapper_from_option_text("--what --who --why --mode"),
    "tmux": build_wrapper_from_option_text(
        "-c -e -f -F -l -L -n -s -S -t -T -x -y",
        commands="new,new-session,neww,new-window,splitw,split-window,respawn-pane,respawnp,respawn-window,run,run-shell"
        ",popup,display-popup,send,send-keys,pipe-pane,if,if-shell",
        is_joined=True,
    ),
    "screen": build_wrapper_from_option_text("-c -e -h -p -S -s -t -T"),
    "start-stop-daemon": build_wrapper_from_option_text("", needs_dashes=True),
    "chroot": build_wrapper_from_option_text("", operands=1, is_remote=True),
    "unshare": build_wrapper_from_option_text("-S --setuid -G --setgid -R --root -w --wd"),
    "nsenter": build_wrapper_from_option_text(
        "-t --target -S --setuid -G --setgid -r --root", is_remote=True
    ),
    "bwrap": build_wrapper_from_option_text(
        "--bind --ro-bind --dev-bind --symlink", is_remote=True, needs_dashes=True
    ),
    "firejail": build_wrapper_from_option_text(""),
    "fakeroot": build_wrapper_from_option_text("-l --lib -i -s -b"),
    "ssh": build_wrapper_from_option_text(
        "-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w -B",
        operands=1,
        is_joined=True,
        is_remote=True,
    ),
    "docker": build_wrapper_from_option_text(
        "-e --env -u --user -w --workdir --env-file --detach-keys -f --file -p --project-name --profile --index",
        commands="exec,compose exec,container exec",
        operands=1,
        is_remote=True,
    ),
    "podman": build_wrapper_from_option_text(
        "-e --env -u --user -w --workdir", commands="exec,container exec", operands=1, is_remote=True
    ),
    "docker-compose": build_wrapper_from_option_text(
        "-e --env -u --user -w --workdir -f --file", commands="exec", operands=1, is_remote=True
    ),
    "kubectl": build_wrapper_from_option_text(
        "-n --namespace -c --container --context", commands="exec", needs_dashes=True, is_remote=True
    ),
    # Package managers and tools that prepare an environment
    "npx": build_wrapper_from_option_text("-p --package -w --workspace", scripts="-c --call"),
    "bunx": build_wrapper_from_option_text("-p --package"),
    "pnpx": build_wrapper_from_option_text("-p --package"),
    "uvx": build_wrapper_from_option_text("--from --with --python -p --index-url"),
    "npm": build_wrapper_from_option_text(
        "-p --package -w --workspace --prefix", scripts="-c --call", commands="exec,x"
    ),
    "pnpm": build_wrapper_from_option_text(_PACKAGE_RUN, commands="exec,dlx"),
    "yarn": build_wrapper_from_option_text(_PACKAGE_RUN, commands="exec,dlx"),
    "bun": build_wrapper_from_option_text("", commands="x"),
    "uv": build_wrapper_from_option_text(_PACKAGE_RUN, commands="run"),
    "poetry": build_wrapper_from_option_text(_PACKAGE_RUN, commands="run"),
    "pdm": build_wrapper_from_option_text("-p --project", commands="run"),
    "pipenv": build_wrapper_from_option_text("", commands="run"),
    "hatch": build_wrapper_from_option_text("-e --env -p --project", commands="run"),
    "rye": build_wrapper_from_option_text("", commands="run"),
    "pixi": build_wrapper_from_option_text("-e --environment --manifest-path", commands="run"),
    "conda": build_wrapper_from_option_text("-n --name -p --prefix --cwd", commands="run"),
    "mamba": build_wrapper_from_option_text("-n --name -p --prefix", commands="run"),
    "micromamba": build_wrapper_from_option_text("-n --name -p --prefix", commands="run"),
    "bundle": build_wrapper_from_option_text("", commands="exec"),
    "rbenv": build_wrapper_from_option_text("", commands="exec"),
    "pyenv": build_wrapper_from_option_text("", commands="exec"),
    "asdf": build_wrapper_from_option_text("", commands="exec"),
    "mise": build_wrapper_from_option_text("-C --cd -E --env", commands="exec,x", needs_dashes=True),
    "direnv": build_wrapper_from_option_text("", commands="exec", operands=1),
    "dotenv": build_wrapper_from_option_text("-e --env -f --file -c -v", commands="run"),
    "dotenvx": build_wrapper_from_option_text("-f --env-file -e --env", commands="run", needs_dashes=True),
    "doppler": build_wrapper_from_option_text(
        "-p --project -c --config", scripts="--command", commands="run", needs_dashes=True
    ),
    "op": build_wrapper_from_option_text("--env-file --account", commands="run", needs_dashes=True),
    "chamber": build_wrapper_from_option_text("", commands="exec", needs_dashes=True),
    "aws-vault": build_wrapper_from_option_text("-d --duration", commands="exec", needs_dashes=True),
    "nix-shell": build_wrapper_from_option_text(
        "-p --packages -A -I", scripts="--run --command", operands=99
    ),
    "nix": build_wrapper_from_option_text("", commands="develop,shell", needs_dashes=True),
    # What adds words
    "xargs": build_wrapper_from_option_text(
        "-I -n --max-args -L --max-lines -P --max-procs -s --max-chars -d --delimiter -E -a --arg-file --replace"
        " --process-slot-var",
        adds_words=True,
    ),
    "parallel": build_wrapper_from_option_text(
        "-j --jobs -I --colsep -C -N -n -L -a --arg-file --delay --joblog --results --timeout --tmpdir",
        adds_words=True,
    ),
}


# Options with which a program that starts another does nothing else. Any other may write a file (`time -o`), read
# settings (`bash --rcfile`) or start something more. A program that is not in the list has none.
_SHELL_OPTIONS = frozenset(
    {"-c", "-l", "-e", "-u", "-x", "-o", "--login", "--norc", "--noprofile", "--posix"}
)
PLAIN_STARTING_OPTIONS: dict[str, frozenset[str]] = {
    name: frozenset(options.split())
    for name, options in {
        "env": "-i - -u -C --unset --ignore-environment --chdir",
        "timeout": "-k -s -v --kill-after --signal --foreground --preserve-status --verbose",
        "gtimeout": "-k -s -v --kill-after --signal --foreground --preserve-status --verbose",
        "nice": "-n --adjustment",
        "ionice": "-c -n -t --class --classdata --ignore",
        "stdbuf": "-i -o -e --input --output --error",
        "time": "-p -v -f --format --verbose --portability",
        "setsid": "-w -f -c --wait --fork --ctty",
        "command": "-p",
        "exec": "-a -c -l",
        "taskset": "-c --cpu-list",
        "watch": "-n -d -t -x -e -g -c --interval --differences --no-title --exec",
        "caffeinate": "-i -d -s -m -u -t",
        "unbuffer": "-p",
        "xvfb-run": "-a --auto-servernum",
        "python": "-m -u -B -q -O -E -s -I",
    }.items()
} | dict.fromkeys(SHELLS, _SHELL_OPTIONS)


def has_only_harmless_options(program: str, arguments: Sequence[ShellWord]) -> bool:
    """Say whether a program that starts another is given no options but those that change nothing about that."""
    name = program if program in PLAIN_STARTING_OPTIONS else _VERSION.sub("", program)
    plain = PLAIN_STARTING_OPTIONS.get(name, frozenset())
    values = SHELL_VALUES if name in SHELLS else WRAPPERS[name].values if name in WRAPPERS else frozenset()
    rest = list(arguments)
    while rest:
        text = rest[0].text
        rest = rest[1:]
        if text is None or len(text) < 2 or text[0] not in "-+" or text == "--":
            return True
        if text.startswith("--"):
            option, equals, _ = text.partition("=")
            options, takes_next = [option], option in values and not equals
        else:
            options = [f"-{letter}" for letter in text[1:] if not letter.isdigit()]
            place = next((place for place, option in enumerate(options) if option in values), len(options))
            takes_next = place == len(options) - 1 and f"-{text[-1]}" in values
            options = options[: place + 1]
        if not plain.issuperset(options):
            return False
        if "-m" in options and name not in WRAPPERS:
            return True  # what follows is the module and its arguments
        rest = rest[1:] if takes_next else rest
    return True


def find_inline_code_options(program: str) -> frozenset[str] | None:
    """Return the options behind which an interpreter is given its program; None for what is no interpreter."""
    name = program.lower()
    return INTERPRETERS.get(name, INTERPRETERS.get(_VERSION.sub("", name)))


def find_wrapped_command(wrapper: Wrapper, arguments: Sequence[ShellWord]) -> WrappedCommand | None:
    """Return what a wrapper starts; None where it starts nothing."""
    wrapped_command, rest = WrappedCommand(), list(arguments)
    if wrapper.commands:
        after = skip_wrapper_subcommand(wrapper, rest)
        if after is None:
            return None
        rest = after
    operands = wrapper.operands
    while rest:
        word = rest[0]
        text = word.text
        if text == "-" and wrapper.takes_assignments:  # `env -`
            rest = rest[1:]
            continue
        if text is None or not text.startswith(("-", "+")) or text == "-":
            if (
                text is not None
                and wrapper.takes_assignments
                and (name := assigned_variable_name_or_empty(text))
            ):
                wrapped_command.assignments.append((name, ShellWord(text[len(name) + 1 :])))
            elif operands > 0:
                operands -= 1
            else:
                break
            rest = rest[1:]
            continue
        rest = rest[1:]
        if text == "--":
            rest = rest[operands:]
            break
        if any(option in wrapper.query_options for option in split_clustered_options(text)):
            return None
        rest = consume_wrapper_option(wrapper, text, rest, wrapped_command)
    if wrapper.needs_dashes:
        rest = list(iterate_words_after_double_dash(arguments))
    if operands > 0 and not wrapped_command.scripts and wrapper.operands != 99 and rest:
        rest = []
    wrapped_command.words = rest
    return wrapped_command if rest or wrapped_command.scripts else None


def consume_wrapper_option(
    wrapper: Wrapper, text: str, rest: list[ShellWord], wrapped: WrappedCommand
) -> list[ShellWord]:
    """Note what an option of a wrapper says; return the words behind the option and its value."""
    name, equals, value = text.partition("=")
    if not text.startswith("--"):
        # Of several letters in one word the first that takes a value takes the rest of the word.
        for position, letter in enumerate(text[1:], 1):
            if (option := f"-{letter}") in wrapper.values | wrapper.scripts:
                name, value = option, text[position + 1 :].removeprefix("=")
                equals = value
                break
        else:
            name, equals, value = (text, "", "") if text in wrapper.values | wrapper.scripts else ("", "", "")
    if name not in wrapper.values | wrapper.scripts:
        return rest
    word = ShellWord(value) if equals else next(iter(rest), None)
    if word is not None and name in wrapper.scripts:
        blank = wrapper.takes_assignments and word.text is not None  # env reads `\_` as one
        wrapped.scripts.append(word._replace(text=(word.text or "").replace("\\_", " ")) if blank else word)
    elif (
        word is not None
        and (command := _SSH_COMMAND.match(word.text or word.prefix)) is not None
        and name == "-o"
    ):
        wrapped.scripts.append(
            word._replace(text=word.text[command.end() :] if word.text is not None else None)
        )
    elif word is not None and name in wrapper.changes_folder:
        wrapped.folder = word
    return rest if equals else rest[1:]


def skip_wrapper_subcommand(wrapper: Wrapper, words: list[ShellWord]) -> list[ShellWord] | None:
    """Return the words behind the wrapper's sub-command; None where it is none that starts a command."""
    operands: list[str | None] = []
    rest = list(words)
    while rest:
        text = rest[0].text
        rest = rest[1:]
        if text is not None and text.startswith("-"):
            name = text.partition("=")[0]
            rest = rest[1:] if "=" not in text and name in wrapper.values else rest
            continue
        operands.append(text)
        if tuple(operands) in wrapper.commands:
            return rest
        if not any(command[: len(operands)] == tuple(operands) for command in wrapper.commands):
            return None
    return None


def iterate_words_after_double_dash(words: Sequence[ShellWord]) -> Iterator[ShellWord]:
    passed = False
    for word in words:
        if passed:
            yield word
        passed = passed or word.text == "--"


def assigned_variable_name_or_empty(text: str) -> str:
    """Return the variable that `NAME=value` sets; "" for any other word."""
    name_match = re.match(r"[A-Za-z_][A-Za-z0-9_]*(?==)", text)
    return name_match[0] if name_match else ""


def split_clustered_options(text: str) -> list[str]:
    return [text] if text.startswith("--") else [f"-{letter}" for letter in text[1:]]
