"""Start of third-party programs (stdio MCP servers) without Signalbox's rights, or not at all.

Such a program must not read the data folder, the keys or another process's environment, must not reach the database,
and must leave nothing behind. One mechanism of the machine is used for all of them, the first of:

- a second user: `manage.py install_service` sets up a launcher that systemd runs as a user of its own (`launcher.py`;
  SIGNALBOX_MCP_LAUNCHER is the folder of its sockets);
- bubblewrap (`bwrap`): a file system that holds system programs, the server's own program and its own folder alone,
  with process, user and network namespaces of its own.

Where there is neither, nothing is started, unless an administrator switched that one server on by name.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from django.conf import settings

from coordinator.errors import SignalboxError, UnprocessableRequest
from coordinator.lib import installation
from coordinator.mcp.isolation import launcher_client
from coordinator.models import McpUpstream
from coordinator.models.gateway import Network

# What every program may need. Everything else, above all /home, /root, /run, /srv, /sys and /var, is not there.
SYSTEM_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu",
)  # fmt: skip
SYSTEM_SETTINGS = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "gai.conf",
    "gitconfig", "group", "host.conf", "hosts", "java", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "mime.types", "nix", "npmrc", "nsswitch.conf", "os-release", "passwd", "pip.conf", "pki", "protocols",
    "resolv.conf", "services", "ssl", "timezone", "uv",
)  # fmt: skip
# Folders that hold other processes, devices or sockets: never given to a program.
NEVER_GIVEN = ("/proc", "/sys", "/dev", "/run", "/var/run")
TOOLCHAIN_PARTS = ("lib", "lib64", "libexec", "include", "pyvenv.cfg")  # next to a program's `bin`
NODE_SUFFIXES = {".js", ".mjs", ".cjs"}
MOST_FOLDERS, LONGEST_FOLDER = 20, 1_000
MOST_LINKS = 20  # from the name of a program to its interpreter
PROBE_SECONDS = 10.0
PROBE_AGAIN_SECONDS = 60.0  # after a failure: bubblewrap may be installed meanwhile

NOBODY = 65534  # the user and group that own nothing

NOT_ISOLATED = (
    "Signalbox does not start MCP servers on this machine: it found nothing to keep them from its keys and database "
    "({reason}). Install bubblewrap (`bwrap`), or run the server on the agent's machine with `signalbox mcp`. "
    "An admin can start it without isolation, on the server's page."
)


class IsolationUnavailable(SignalboxError):
    """Nothing on this machine isolates programs; the text says what to do."""

    status = 503


class IsolationMechanism(StrEnum):
    """What isolates programs on this machine."""

    SECOND_USER = "a user of their own"
    BUBBLEWRAP = "bubblewrap"


@dataclass(frozen=True, slots=True)
class Isolation:
    """What one server may reach. As an admin set it; by default neither a network nor any folder but its own."""

    network: str = Network.NONE.value
    folders: tuple[str, ...] = ()  # read-only
    writable_folders: tuple[str, ...] = ()
    is_off: bool = False  # an admin switched the server on without isolation


def build_isolation(row: McpUpstream | None) -> Isolation:
    """Return what a server may reach. Values of foreign rows that mean nothing give nothing."""
    if row is None:
        return Isolation()
    network = row.network if row.network in Network.values else Network.NONE.value
    return Isolation(
        network,
        path_strings_of_stored_list(row.folders),
        path_strings_of_stored_list(row.writable_folders),
        row.is_isolation_off is True,
    )


def path_strings_of_stored_list(value: object) -> tuple[str, ...]:
    return tuple(path for path in value if isinstance(path, str)) if isinstance(value, list) else ()


def require_valid_isolation(isolation: Isolation) -> None:
    """Raise UnprocessableRequest where an admin named a folder that no server is given, or a network that is none."""
    if isolation.network not in Network.values:
        raise UnprocessableRequest("Choose which network the server may use.")
    if len(isolation.folders) + len(isolation.writable_folders) > MOST_FOLDERS:
        raise UnprocessableRequest(f"A server can be given {MOST_FOLDERS} folders at most.")
    for path in isolation.folders:
        require_allowed_path(path)
    for path in isolation.writable_folders:
        require_allowed_path(path, writable=True)


def require_allowed_path(path: str, *, writable: bool = False) -> Path:
    """Return a path that an admin may give to a server. Raises UnprocessableRequest for any other."""
    if not path.startswith("/") or ".." in Path(path).parts or "\0" in path or len(path) > LONGEST_FOLDER:
        raise UnprocessableRequest(f"{path[:100]!r} is not an absolute path without `..`.")
    if reason := explain_refused_path(Path(path), writable=writable):
        raise UnprocessableRequest(reason)
    return Path(path)


def explain_refused_path(path: Path, *, writable: bool = False) -> str | None:
    """Return why no server is given a path, or None. What may be written must not hold what Signalbox runs."""
    real_path = path.resolve()
    if real_path == Path("/") or any(real_path.is_relative_to(folder) for folder in NEVER_GIVEN):
        return f"{path} cannot be given to a server."
    if any(is_overlapping_path(real_path, hidden) for hidden in list_hidden_paths()):
        return f"{path} holds data of Signalbox, or lies in its data folder, and cannot be given to a server."
    if any(
        folder.is_relative_to(real_path)
        for folder in (*find_home_folders(), *list_system_temporary_folders())
    ):
        return (
            f"{path} holds what is not for one server alone and cannot be given to it. Name a folder in it."
        )
    if writable and any(is_overlapping_path(real_path, code) for code in list_protected_code_folders()):
        return f"{path} holds what Signalbox runs, so a server can be given it to read, but not to write to."
    if writable and any(
        real_path.is_relative_to(home) and real_path.relative_to(home).parts[0].startswith(".")
        for home in find_home_folders()
    ):
        return f"{path} holds settings of Signalbox's user, so a server can be given it to read, but not to write to."
    return None


def is_overlapping_path(first: Path, second: Path) -> bool:
    return first.is_relative_to(second) or second.is_relative_to(first)


def find_home_folders() -> set[Path]:
    """Return the home folders of Signalbox's user, as the system and as the environment have it."""
    homes = {Path(pwd.getpwuid(os.geteuid()).pw_dir), Path.home()}
    return {home.resolve() for home in homes} - {Path("/")}


def list_system_temporary_folders() -> list[Path]:
    return [Path(folder).resolve() for folder in ("/tmp", "/var/tmp", tempfile.gettempdir())]  # noqa: S108


def list_protected_code_folders() -> list[Path]:
    """Return the folders of Signalbox's code, of its Python, and of the programs that it starts by their names."""
    on_path = [Path(folder) for folder in os.get_exec_path() if os.path.isabs(folder)]
    return [
        place.resolve() for place in (installation.CODE, Path(sys.prefix), Path(sys.base_prefix), *on_path)
    ]


def list_hidden_paths() -> list[Path]:
    """Return what no server may ever see, whatever else it is given: the data folder, the database, the keys."""
    paths = [Path(settings.DATA_DIR), Path(settings.AUDIT_KEY_FILE)]
    database = settings.DATABASES["default"]
    if "sqlite" in database["ENGINE"]:
        name = str(database["NAME"])
        paths += [Path(f"{name}{suffix}") for suffix in ("", "-wal", "-shm", "-journal")]
    else:  # folders of PostgreSQL's sockets
        paths += [Path(host) for host in str(database.get("HOST", "")).split(",") if host.startswith("/")]
    paths += [Path(os.environ[name]) for name in ("PGPASSFILE", "PGSERVICEFILE") if os.environ.get(name)]
    return list(dict.fromkeys(place.expanduser().resolve() for place in paths))


# --- which mechanism ------------------------------------------------------------------------------------

_probing = threading.Lock()
_last_probe: tuple[float, str] | None = None  # until when it counts, and what was wrong


def require_isolation_mechanism() -> IsolationMechanism:
    """Return what isolates programs on this machine. Raises IsolationUnavailable, which says why nothing does."""
    if settings.MCP_LAUNCHER:
        return IsolationMechanism.SECOND_USER
    if reason := bubblewrap_problem_or_empty():
        raise IsolationUnavailable(NOT_ISOLATED.format(reason=reason))
    return IsolationMechanism.BUBBLEWRAP


def bubblewrap_problem_or_empty() -> str:
    """Return why bubblewrap cannot be used here, or nothing. It is tried once; a failure again after a while."""
    global _last_probe  # noqa: PLW0603 - what this process knows of its machine
    with _probing:
        if _last_probe is None or _last_probe[0] < time.monotonic():
            problem = probe_bubblewrap_problem_or_empty()
            _last_probe = (time.monotonic() + PROBE_AGAIN_SECONDS if problem else float("inf"), problem)
        return _last_probe[1]


def probe_bubblewrap_problem_or_empty() -> str:
    if not sys.platform.startswith("linux"):
        return "bubblewrap needs Linux"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    with tempfile.TemporaryDirectory(prefix="signalbox-isolation-") as folder:
        try:
            command = prepare_folder_and_bubblewrap_command(["true"], Path(folder), Isolation())
            done = subprocess.run(  # noqa: S603 - our own words
                command, env=build_base_process_environment(Path(folder)), stdin=subprocess.DEVNULL,
                capture_output=True, timeout=PROBE_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as problem:
            return f"bubblewrap cannot be run: {type(problem).__name__}"
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().removeprefix("bwrap: ")
        return f"bubblewrap does not work here: {message[-200:] or done.returncode}"
    return ""


def require_isolation_available(isolation: Isolation) -> None:
    """Raise IsolationUnavailable where a server may not be started on this machine."""
    if not isolation.is_off:
        require_isolation_mechanism()


# --- the command line -----------------------------------------------------------------------------------


def prepare_isolated_command_line(command: Sequence[str], folder: Path, isolation: Isolation) -> list[str]:
    """Return what to start in place of `command`, which gets `folder` as its own.

    Raises IsolationUnavailable; OSError where there is no such program; UnprocessableRequest where it is
    given what belongs to Signalbox.
    """
    if isolation.is_off:
        return list(command)
    if require_isolation_mechanism() is IsolationMechanism.SECOND_USER:
        socket_path = Path(settings.MCP_LAUNCHER, f"{isolation.network}.sock")
        request = json.dumps({"folder": folder.name})
        return [sys.executable, "-I", launcher_client.__file__, str(socket_path), request, "--", *command]
    return prepare_folder_and_bubblewrap_command(command, folder, isolation)


def build_base_process_environment(folder: Path) -> dict[str, str]:
    """Return the variables that every server has: none of Signalbox's own."""
    return {
        "PATH": os.getenv("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
    }


def prepare_folder_and_bubblewrap_command(
    command: Sequence[str], folder: Path, isolation: Isolation
) -> list[str]:
    is_root = os.geteuid() == 0
    own = folder.resolve()
    if is_root:
        chown_server_folder_to_nobody(own)
    options = ["--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    options += ["--unshare-cgroup-try", *([] if is_root else ["--unshare-user"])]
    if isolation.network == Network.NONE:
        options.append("--unshare-net")
    options += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - its own
    options += build_all_mount_options(command, own, isolation)
    options += ["--remount-ro", "/", "--chdir", str(own), "--cap-drop", "ALL"]
    if not is_root:
        return [require_program_path("bwrap"), *options, "--", *command]
    # Root outside would be root over every file that is shown: it becomes the user that owns nothing.
    for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_DAC_READ_SEARCH"):
        options += ["--cap-add", capability]
    # By its path: the program's own PATH may name folders that it can write to, and root is not its own yet.
    become_nobody = [
        require_program_path("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all",
        "--bounding-set=-all", "--no-new-privs", "--",
    ]  # fmt: skip
    return [require_program_path("bwrap"), *options, "--", *become_nobody, *command]


def build_all_mount_options(command: Sequence[str], own: Path, isolation: Isolation) -> list[str]:
    """Return the options that make the file system: what it needs, over that what is hidden, its own folder last.

    A path below a folder that the server writes to is mounted only with that folder: it could be a link by now.
    """
    mounts = MountOptions()
    writable_folders = [require_allowed_path(path, writable=True) for path in isolation.writable_folders]
    changeable = [own, *(path.resolve() for path in writable_folders)]
    for name in SYSTEM_FOLDERS:
        mounts.add_mount_options_for_path(Path(name))
    for name in SYSTEM_SETTINGS:
        etc_path = Path("/etc", name)
        if etc_path.exists() and etc_path.stat().st_mode & 0o004:
            mounts.add_mount_options_for_path(etc_path)
    for home in find_home_folders():
        if mounts.is_path_mounted(home) and home.is_dir():  # a service's home may be below /opt
            mounts.add_options_hiding_path(home)
    folders = [require_allowed_path(path) for path in isolation.folders]
    for etc_path in (
        *iterate_program_dependencies(command[0], changeable),
        *iterate_argument_paths(command[1:]),
        *folders,
    ):
        if not is_path_through_folders(etc_path, changeable):
            mounts.add_mount_options_for_path(etc_path)
    for etc_path in writable_folders:
        if not is_path_through_folders(etc_path, changeable):
            mounts.add_mount_options_for_path(etc_path, writable=True)
    for hidden in list_hidden_paths():
        if mounts.is_path_visible(hidden) and hidden.exists():
            mounts.add_options_hiding_path(hidden)
    mounts.add_mount_options_for_path(own, writable=True)
    return mounts.options


class MountOptions:
    """Collects mount options. Only resolved paths are mounted, so that what is hidden has one path alone."""

    def __init__(self) -> None:
        self.options: list[str] = []
        self._visible_paths: list[Path] = []
        self._hidden: list[Path] = []
        self._created_paths: set[Path] = {Path("/"), Path("/tmp")}  # noqa: S108 - the program's own

    def add_mount_options_for_path(self, path: Path, *, writable: bool = False) -> None:
        """Mount a path, where it exists, and make the link that leads to it."""
        real_path = path.resolve()
        if not real_path.exists():
            return
        if writable or not self.is_path_visible(real_path):
            self.add_parent_folder_options(real_path)
            self.options += ["--bind" if writable else "--ro-bind", str(real_path), str(real_path)]
            self._visible_paths.append(real_path)
        if (
            real_path != path
            and path not in self._created_paths
            and not self.is_path_visible(path.parent.resolve())
        ):
            self.add_parent_folder_options(path)
            self._created_paths.add(path)
            self.options += ["--symlink", str(real_path), str(path)]

    def add_parent_folder_options(self, path: Path) -> None:
        """Make the folders above a path that everybody may pass: bubblewrap's own are for one user alone."""
        for parent in reversed(path.parents):
            if parent not in self._created_paths and not self.is_path_visible(parent):
                self._created_paths.add(parent)
                self.options += ["--dir", str(parent)]

    def add_options_hiding_path(self, folder: Path) -> None:
        """Cover a path that is shown."""
        self._hidden.append(folder)
        if folder.is_dir():
            self.options += ["--tmpfs", str(folder)]
        else:
            self.options += ["--ro-bind", "/dev/null", str(folder)]

    def is_path_visible(self, folder: Path) -> bool:
        """Say whether a path is shown and was not covered, as far as is known."""
        return self.is_path_mounted(folder) and not any(
            folder.is_relative_to(hidden) for hidden in self._hidden
        )

    def is_path_mounted(self, folder: Path) -> bool:
        return any(folder.is_relative_to(mounted_path) for mounted_path in self._visible_paths)


def require_program_path(name: str) -> str:
    """Return a program's path. Raises FileNotFoundError."""
    program_path = shutil.which(name)
    if program_path is None:
        raise FileNotFoundError(2, os.strerror(2), name)
    return program_path


def is_path_through_folders(path: Path, folders: Sequence[Path]) -> bool:
    """Say whether the way to a path, link by link, passes something in one of these folders (or does not end)."""
    way, links = Path("/"), 0
    parts = [*reversed(path.parts[1:])]
    while parts:
        part = parts.pop()
        step = way.parent if part == ".." else way / part
        if any(step != folder and step.is_relative_to(folder) for folder in folders):
            return True
        if not step.is_symlink():
            way = step
            continue
        target, links = step.readlink(), links + 1
        if links > MOST_LINKS:
            return True
        way = Path("/") if target.is_absolute() else way
        parts += [part for part in reversed(target.parts) if part != "/"]
    return False


def iterate_program_dependencies(name: str, changeable: Sequence[Path]) -> Iterator[Path]:
    """Yield what a program consists of: its folder and libraries, and those of its interpreter.

    Nothing is followed from a file in a `changeable` folder.
    """
    pending = [Path(require_program_path(name)).absolute()]
    for _ in range(MOST_LINKS):
        if not pending:
            return
        program = pending.pop()
        if is_path_through_folders(program, changeable):
            continue
        yield from iterate_toolchain_paths(program)
        if program.is_symlink():
            pending.append(program.parent / program.readlink())
        elif interpreter := find_script_interpreter(program):
            pending.append(interpreter)


def iterate_toolchain_paths(program: Path) -> Iterator[Path]:
    """Yield the folder of a program and the libraries next to it, but nothing else there (as in ~/.local)."""
    folder = Path(os.path.normpath(program.parent))
    if folder.name == "shims":  # of pyenv, asdf and mise: scripts that look for the program next to them
        yield folder.parent
    elif folder.name in {"bin", "sbin"}:
        yield folder
        for part in TOOLCHAIN_PARTS:
            yield folder.parent / part
    else:
        yield program


def find_script_interpreter(program: Path) -> Path | None:
    """Return what runs a script, by its first line."""
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    interpreter_words = (
        first.removeprefix(b"#!").decode(errors="replace").split() if first.startswith(b"#!") else []
    )
    if interpreter_words and Path(interpreter_words[0]).name == "env":
        interpreter_words = [
            word for word in interpreter_words[1:] if not word.startswith("-") and "=" not in word
        ]
    path = shutil.which(interpreter_words[0]) if interpreter_words else None
    return Path(path).absolute() if path else None


def iterate_argument_paths(arguments: Sequence[str]) -> Iterator[Path]:
    """Yield the files and folders that arguments name, and the package of a named script of Node.

    None that a server is not given.
    """
    for argument in arguments:
        path = Path(re.sub(r"^-[^=/]*=", "", argument))
        try:
            is_named = (
                path.is_absolute()
                and ".." not in path.parts
                and path.exists()
                and not explain_refused_path(path)
            )
        except (OSError, ValueError):
            continue
        if is_named:
            yield path
            yield from iterate_node_package_paths(path)


def iterate_node_package_paths(script: Path) -> Iterator[Path]:
    """Yield where Node finds what a script imports: its package, or the outermost `node_modules` around it."""
    if script.suffix not in NODE_SUFFIXES or not script.is_file():
        return
    parents = script.resolve().parents
    installed = [folder for folder in parents if folder.name == "node_modules"]
    packages = installed[-1:] or [folder for folder in parents if (folder / "package.json").is_file()][:1]
    yield from (folder for folder in packages if not explain_refused_path(folder))


def chown_server_folder_to_nobody(folder: Path) -> None:
    """Give a server's folder to the user that it runs as; links in it are not followed."""
    if folder.stat().st_uid == NOBODY:
        return
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(base, name), NOBODY, NOBODY, follow_symlinks=False)
    os.chown(folder, NOBODY, NOBODY)
