"""Shell texts in arguments and variables of programs that are no wrappers: `git -c alias.x=…`, `tar --to-command`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from coordinator.calls.commands import SimpleCommand
from coordinator.calls.shell_words import ShellWord

# Options whose value is a shell text, or a program with its arguments.
COMMAND_OPTIONS: dict[str, frozenset[str]] = {
    name: frozenset(options.split())
    for names, options in {
        "rg": "--pre --hostname-bin",
        "tar gtar bsdtar": "--to-command -I --use-compress-program --checkpoint-action --rsh-command --rmt-command"
        " --info-script --new-volume-script -F",
        "sort gsort": "--compress-program",
        "git": "--upload-pack --receive-pack --exec --extcmd -x --open-files-in-pager --tree-filter --index-filter"
        " --msg-filter --env-filter --commit-filter --parent-filter --tag-name-filter --sendmail-cmd",
        "rsync": "-e --rsh --rsync-path",
        "scp sftp": "-S",
        "mapfile readarray complete compgen": "-C",
        "npm pnpm yarn": "--script-shell",
        "go": "-exec -toolexec -vettool",
        "man": "-P --pager",
    }.items()
    for name in names.split()
}
EDITORS = frozenset({"vi", "vim", "nvim", "ex", "view", "vimdiff"})
# Variables whose value is a shell text, or a program with its arguments.
COMMAND_VARIABLES = frozenset({
    "PROMPT_COMMAND", "PAGER", "GIT_PAGER", "MANPAGER", "GH_PAGER", "DELTA_PAGER", "BAT_PAGER", "EDITOR", "VISUAL",
    "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GH_EDITOR", "GIT_SSH_COMMAND", "GIT_SSH", "GIT_EXTERNAL_DIFF", "GIT_ASKPASS",
    "SSH_ASKPASS", "SUDO_ASKPASS", "GIT_PROXY_COMMAND", "LESSOPEN", "LESSCLOSE", "BROWSER", "GH_BROWSER",
    "RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER", "npm_config_script_shell",
})  # fmt: skip
PROMPT_VARIABLES = frozenset({"PS0", "PS1", "PS2", "PS4"})  # commands run in them only by a substitution
# Variables that name files or settings which decide what runs.
UNREAD_VARIABLES = frozenset({"BASH_ENV", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"})
# Settings of git whose value it runs.
_RUN_BY_GIT = re.compile(
    r"(?i)(core\.(sshcommand|pager|editor|fsmonitor|askpass|gitproxy)|pager\..+|sequence\.editor|diff\.external"
    r"|diff\..+\.(command|textconv)|merge\..+\.driver|filter\..+\.(clean|smudge|process)|gpg\.(.+\.)?program"
    r"|credential\.(.+\.)?helper|remote\..+\.(uploadpack|receivepack)|(diff|merge)tool\..+\.cmd"
    r"|interactive\.difffilter|sendemail\.sendmailcmd|uploadpack\.packobjectshook)"
)
_SED_RUNS = re.compile(
    r"(?:^|[;{}\n])[\s\d$,~+!]*(?:/(?:\\.|[^/\\\n])*/[IM]?[\s\d$,~+!/]*)*e(?:\s|;|$)"
    r"|s([^\w\s\\])(?:\\.|(?!\1)[^\\])*\1(?:\\.|(?!\1)[^\\])*\1[gpiIMm\d]*e"
)
UNREAD_SED = ShellWord(None, reason="a script of sed, which runs commands")


def iterate_embedded_shell_scripts(command: SimpleCommand) -> Iterator[ShellWord]:
    """Yield the shell texts that a command may run besides itself; unknown words for those that cannot be read."""
    for name, value in command.assignments:
        yield from iterate_scripts_in_variable(name, value)
    program = command.lowercase_program_name
    if program == "git":
        yield from iterate_git_shell_commands(command)
    elif program in {"sed", "gsed"}:
        yield from (UNREAD_SED for word in command.arguments if _SED_RUNS.search(word.text or ""))
    elif program in EDITORS:
        yield from iterate_editor_shell_commands(command)
    if program in COMMAND_OPTIONS:
        yield from iterate_option_value_scripts(command, COMMAND_OPTIONS[program])


def iterate_scripts_in_variable(name: str, value: ShellWord) -> Iterator[ShellWord]:
    if name in UNREAD_VARIABLES and value.text != "":
        yield ShellWord(None, reason=f"what {name} says")
    elif name in PROMPT_VARIABLES:
        if value.text is not None and ("$(" in value.text or "`" in value.text):
            yield ShellWord(f'"{value.text}"')
    elif name in COMMAND_VARIABLES and value.text != "":
        yield value._replace(text=value.text.lstrip("|")) if value.text is not None else value


def iterate_option_value_scripts(command: SimpleCommand, options: frozenset[str]) -> Iterator[ShellWord]:
    """Yield the values of these options, whether they are in the same word or in the next."""
    words = iter(command.arguments)
    for word in words:
        text = word.text if word.text is not None else word.prefix
        name, equals, value = text.partition("=")
        if name in options and equals:
            yield ShellWord(value.removeprefix("exec=")) if word.text is not None else word
        elif name in options and (following := next(words, None)) is not None:
            value = following.text or ""
            yield (
                following._replace(text=value.removeprefix("exec="))
                if following.text is not None
                else following
            )


def iterate_editor_shell_commands(command: SimpleCommand) -> Iterator[ShellWord]:
    """Yield the commands that an editor runs: `-c '!make'`, `+!make`."""
    for word in command.arguments:
        text = (word.text or "").removeprefix("+").lstrip(":")
        if text.startswith("!"):
            yield ShellWord(text[1:])


def iterate_git_shell_commands(command: SimpleCommand) -> Iterator[ShellWord]:
    """Yield the commands that git runs: by settings of this call, by an alias, for each commit or submodule."""
    items = command.parsed_arguments.items
    for item in items:
        text = item.word.text
        if item.kind == "value" and item.option == "-c" and text is not None:
            key, _, value = text.partition("=")
            yield from iterate_git_setting_commands(key, value)
        elif item.option == "--config-env" or (text or "").startswith("--config-env="):
            yield ShellWord(None, reason="a setting of git from a variable")
    operands = [item.word for item in items if item.kind == "operand"]
    names = [word.text for word in operands[:3]]
    if names[:2] in (["bisect", "run"], ["submodule", "foreach"]) and len(operands) > 2:
        yield join_words_or_first_unknown(operands[2:])
    if names[:1] == ["config"]:
        place = 2 if names[1:2] == ["set"] else 1
        if len(operands) > place + 1 and operands[place].text is not None:
            setting = operands[place + 1]
            yield from iterate_git_setting_commands(operands[place].text or "", setting.text or "")


def iterate_git_setting_commands(key: str, value: str) -> Iterator[ShellWord]:
    if key.lower().startswith("alias."):
        yield ShellWord(value[1:] if value.startswith("!") else f"git {value}")
    elif _RUN_BY_GIT.fullmatch(key) and value:
        yield ShellWord(value.removeprefix("!"))


def join_words_or_first_unknown(words: list[ShellWord]) -> ShellWord:
    """Return several words as one shell text; the first that is not known where there is one."""
    unknown = next((word for word in words if word.text is None), None)
    return unknown or ShellWord(" ".join(word.text or "" for word in words))
