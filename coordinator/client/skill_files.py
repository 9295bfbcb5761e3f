"""The shell lines of Claude Code's skills and slash commands, read on the agent's machine before they run.

Claude Code runs the lines (`` !`command` `` and blocks that begin with ```!) while it loads such a text. Newer versions
report each to the hook PreSkillShellCommand; those of others would go unreported. So `signalbox hook` reads the files
and sends their lines along (`FIELD`). It reads every file that may be meant: more lines than run are shown rather than
fewer. A file that is exchanged between this look and the start of the lines is not seen.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

FIELD = "signalbox_skill"  # of a hook: what is known of its skill's shell lines
TOOL, EXPANSION = "Skill", "UserPromptExpansion"
OWN_HOOK = b"PreSkillShellCommand"
CONFIG_VARIABLE, PROJECT_VARIABLE = "CLAUDE_CONFIG_DIR", "CLAUDE_PROJECT_DIR"  # Claude Code's own
MANAGED_FOLDERS = ("/etc/claude-code/.claude", "/Library/Application Support/ClaudeCode/.claude")
SHELLS = frozenset({"sh", "dash", "bash", "zsh", "ksh", "busybox", "env"})
MAX_PARENTS = 6  # processes between Claude Code and its hook
MAX_FOLDERS = 40  # above the working folder
MAX_ENTRIES = 20_000  # of folders that are looked through
MAX_SETTINGS_BYTES = 4 << 20
MAX_FILE_BYTES = 1 << 20  # what Claude Code reads of a command
MAX_BYTES = 16 << 20  # of all files together
MAX_LINES = 50
MAX_LINE = 20_000  # characters
SEARCH_SECONDS = 3.0
PROGRAM_SECONDS = 5.0  # for reading the program, some 400 MB
CHUNK = 16 << 20
SKIPPED_FOLDERS = frozenset({".git", "node_modules", ".venv", "__pycache__"})


def is_skill_hook(payload: Mapping[str, Any]) -> bool:
    """Say whether a hook of Claude Code reports a skill or a slash command that is about to be loaded."""
    name = payload.get("hook_event_name")
    if name == EXPANSION:
        return True
    return name in {"PreToolUse", "PermissionRequest"} and payload.get("tool_name") == TOOL


def collect_skill_shell_report(payload: Mapping[str, Any], *, is_registered: bool = True) -> dict[str, Any]:
    """Return what is known of the shell lines that such a hook's skill or command runs while it is loaded.

    `held` is true where the program itself reports each line to a hook, and ours `is_registered` for it. Otherwise
    `lines` are the lines and `files` where they are; `problem` says why there may be others.
    """
    if is_registered and parent_executable_contains_bytes(OWN_HOOK, os.getppid()):
        return {"held": True}
    name, arguments = parse_skill_name_and_arguments(payload)
    if name is None:
        return {"problem": "The hook does not say which skill it is about.", "lines": [], "files": []}
    if payload.get("expansion_type") == "mcp_prompt":
        reason = f"The text of {name} comes from an MCP server, so it cannot be read before."
        return {"problem": reason, "lines": [], "files": []}
    search = SkillFileSearch(time.monotonic() + SEARCH_SECONDS)
    cwd = payload.get("cwd")
    texts = search.find_skill_paths_and_texts(
        name, cwd if isinstance(cwd, str) and os.path.isabs(cwd) else os.getcwd()
    )
    lines: list[str] = []
    for _, text in texts:
        lines += [line for line in extract_shell_lines(text) if line not in lines]
    files = [path for path, _ in texts]
    problem = search.problem or ("" if texts else f"No file of {name} was found.")
    if not problem and "`" in arguments:
        problem = f"The arguments of {name} hold a backtick, which may begin another line."
    if arguments and lines:
        lines = [line.replace("$ARGUMENTS", arguments) for line in lines]
        if not problem and any(has_argument_placeholders(text) for _, text in texts):
            problem = f"The lines of {name} take its arguments one by one."
    if len(lines) > MAX_LINES or any(len(line) > MAX_LINE for line in lines):
        problem = f"The file of {name} holds more lines, or longer ones, than are read ({MAX_LINES})."
        lines = [line[:MAX_LINE] for line in lines[:MAX_LINES]]
    return {"lines": lines, "files": files[:10], **({"problem": problem} if problem else {})}


def is_skill_hook_registered(file: object) -> bool:
    """Say whether settings that we connected register the hook for shell lines.

    A program that did not know the hook when it was connected, or rewrote its settings, may have been updated since.
    Where `file` is None, an older `signalbox connect` wrote the settings, always with that hook.
    """
    if not isinstance(file, str):
        return True
    try:
        with open(file, "rb") as settings:
            return OWN_HOOK in settings.read(MAX_SETTINGS_BYTES)
    except OSError:
        return False


def parse_skill_name_and_arguments(payload: Mapping[str, Any]) -> tuple[str | None, str]:
    if payload.get("hook_event_name") == EXPANSION:
        name, arguments = payload.get("command_name"), payload.get("command_args")
    else:
        tool_input = payload.get("tool_input")
        tool_input = tool_input if isinstance(tool_input, dict) else {}
        name = tool_input.get("skill") or tool_input.get("command")
        arguments = tool_input.get("args")
    if not isinstance(name, str) or not name.strip().lstrip("/"):
        return None, ""
    name_parts = name.strip().lstrip("/").split(None, 1)
    text = arguments if isinstance(arguments, str) else ""
    return name_parts[0], " ".join(part for part in (*name_parts[1:], text) if part)


# --- the lines of a text ----------------------------------------------------------------------------------


def extract_shell_lines(text: str) -> list[str]:
    """Return every shell line that a skill's text may hold, each once, in their order.

    Wherever a mark is found a line is taken to begin, also in an example and within another line.
    """
    shell_texts: list[str] = []
    for opening, closing in (("```!", "```"), ("!`", "`")):
        at = text.find(opening)
        while at >= 0:
            begin = at + len(opening)
            end = text.find(closing, begin)
            if end < 0:
                break
            line = text[begin:end].strip()
            if line and line not in shell_texts:
                shell_texts.append(line)
                if len(shell_texts) > MAX_LINES:
                    return shell_texts
            at = text.find(opening, at + 1)
    return shell_texts


def has_argument_placeholders(text: str) -> bool:
    """Say whether a text has places for single arguments: `$1`, `$ARGUMENTS[1]`, or names in its head."""
    numbered = any(f"${digit}" in text for digit in "0123456789")
    has_named_arguments = any(
        line.strip().lower().startswith("arguments:") for line in front_matter_lines(text)
    )
    return numbered or has_named_arguments or "$ARGUMENTS[" in text


def front_matter_lines(text: str) -> list[str]:
    """Return the lines of a text's head (YAML between two `---`)."""
    lines = text.lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return []
    for at, line in enumerate(lines[1:200], 1):
        if line.strip() == "---":
            return lines[1:at]
    return lines[1:200]


# --- the files --------------------------------------------------------------------------------------------


class SkillFileSearch:
    """A search for the files of a skill, within a budget; `problem` says why there may be others."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._entries = 0
        self._bytes = 0
        self._seen_paths: set[str] = set()
        self.problem = ""

    def find_skill_paths_and_texts(self, name: str, cwd: str) -> list[tuple[str, str]]:
        """Return the files that may be meant by a name, and their contents."""
        skill_texts: list[tuple[str, str]] = []
        folded_name = name.casefold()
        last = folded_name.rpartition(":")[2]
        names = {folded_name, last, folded_name.replace(":", "/")}
        for folder in self.iterate_skill_folders(cwd, is_plugins=":" in name):
            for path, stem in self.iterate_skill_files(folder):
                text = self.read_skill_text(path)
                if text is None:
                    if stem.casefold() in names:
                        self.problem = self.problem or f"{path} cannot be read."
                    continue
                if stem.casefold() in names or names & set(front_matter_names(text)):
                    skill_texts.append((path, text))
        return skill_texts

    def iterate_skill_folders(self, cwd: str, *, is_plugins: bool) -> Iterator[str]:
        """Yield the folders in which Claude Code keeps skills and commands."""
        homes = dict.fromkeys([os.path.expanduser("~"), account_home_folder()])
        settings = [os.path.join(home, ".claude") for home in homes if home]
        if moved := os.environ.get(CONFIG_VARIABLE):
            settings.append(moved)
        projects = [cwd, os.environ.get(PROJECT_VARIABLE) or cwd]
        for project in dict.fromkeys(projects):
            folder = project
            for _ in range(MAX_FOLDERS):
                yield os.path.join(folder, ".claude")
                if (parent := os.path.dirname(folder)) == folder:
                    break
                folder = parent
        yield from settings
        yield from MANAGED_FOLDERS
        if is_plugins:
            yield from (os.path.join(folder, "plugins") for folder in settings)

    def iterate_skill_files(self, folder: str) -> Iterator[tuple[str, str]]:
        """Yield the skills and commands below a folder, and how each is called by its place."""
        if os.path.basename(folder) == "plugins":
            yield from self.walk_markdown_files(folder)
            return
        for kind in ("commands", "skills"):
            yield from self.walk_markdown_files(os.path.join(folder, kind))

    def walk_markdown_files(self, top: str) -> Iterator[tuple[str, str]]:
        pending = [top]
        while pending:
            folder = pending.pop()
            real = os.path.realpath(folder)
            if real in self._seen_paths:
                continue
            self._seen_paths.add(real)
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        self._entries += 1
                        if self._entries > MAX_ENTRIES or time.monotonic() > self._deadline:
                            self.problem = "There are more files of skills and commands than are read."
                            return
                        if entry.is_dir():
                            if entry.name not in SKIPPED_FOLDERS:
                                pending.append(entry.path)
                        elif entry.name.lower().endswith(".md"):
                            yield entry.path, skill_name_from_path(entry.path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                self.problem = f"{folder} cannot be read."

    def read_skill_text(self, path: str) -> str | None:
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError:
            return None
        self._bytes += len(content)
        if self._bytes > MAX_BYTES:
            self.problem = "There are more files of skills and commands than are read."
            return None
        return content.decode("utf-8", "replace") if len(content) <= MAX_FILE_BYTES else None


def skill_name_from_path(path: str) -> str:
    """Return how a file is called: a skill by its folder, a command by its own name."""
    name = os.path.basename(path)
    if name.casefold() == "skill.md":
        return os.path.basename(os.path.dirname(path))
    return name[: -len(".md")]


def front_matter_names(text: str) -> list[str]:
    """Return the name that a file's head gives it, whole and without the part before its colon."""
    for line in front_matter_lines(text):
        key, colon, value = line.partition(":")
        if colon and key.strip().casefold() == "name":
            own = value.strip().strip("'\"").casefold()
            return [own, own.rpartition(":")[2]]
    return []


def account_home_folder() -> str:
    """Return this user's home, whatever the environment says."""
    try:
        import pwd  # noqa: PLC0415 - only where a skill is called

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""


# --- the program ------------------------------------------------------------------------------------------


def parent_executable_contains_bytes(needle: bytes, pid: int) -> bool:
    """Say whether the program that started this process holds these words; False where that cannot be found out.

    The environment does not count: a project's settings can change it.
    """
    for _ in range(MAX_PARENTS):
        try:
            program = os.readlink(f"/proc/{pid}/exe")
            if os.path.basename(program.removesuffix(" (deleted)")) not in SHELLS:
                return file_contains_bytes(needle, f"/proc/{pid}/exe")
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def file_contains_bytes(needle: bytes, path: str) -> bool:
    """Say whether a file holds these words; False where it cannot be read within a budget of seconds."""
    deadline = time.monotonic() + PROGRAM_SECONDS
    end = b""
    try:
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                text = end + chunk
                if needle in text:
                    return True
                if time.monotonic() > deadline:
                    return False
                end = text[-len(needle) :]
    except OSError:
        return False
    return False
