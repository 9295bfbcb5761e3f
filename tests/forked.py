"""Starts of `manage.py` without the second that each takes to load Django and us: forked from a process that has.

A process of tests has one such fork server, from its first start on. It has loaded everything, looked at no database
and made no thread. What it forks gets its own environment, folder, words, output and signals, forgets the settings,
and goes on as `manage.py` does.

What differs from a real start, and who would notice:
- Modules are there that a command would not load, and they were loaded under other settings. One that keeps a setting
  as it is loaded would be wrong: CAPTURED names those settings, and whoever sets one gets a real start.
- `/proc/…/cmdline` is the fork server's, and hashes have the same seed in all. Nothing of ours looks at either.
- It dies at once with the fork server, which ends with the tests.
- After a restart (SIGHUP) a server is one that was really started. REALLY names the tests whose subject is a start or
  an end.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
# Beginnings of the tests' ids whose subject is a start or an end.
REALLY = ("tests/server/", "tests/hosting/test_keeper.py", "tests/live/test_shutdown.py", "tests/agents/")
# What may differ from one start to the next. All else is looked at by Python, or by libraries as they are loaded.
DIFFERS = (
    "SIGNALBOX_",
    "TESTS_HOOK_ANSWER_AFTER",
    "DATABASE_URL",
    "DJANGO_",
    "PYTEST_CURRENT_TEST",
)
# Kept by modules when they are imported, or with libraries of their own.
CAPTURED = (
    "SIGNALBOX_ATTACHMENT",
    "SIGNALBOX_SQLITE_",
    "SIGNALBOX_S3_",
    "SIGNALBOX_OIDC_",
    "SIGNALBOX_POOL_URL",
)
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG (prctl(2))
NUMBER = struct.Struct("i")


class Forked:
    """A program that the fork server started: what tests use of subprocess.Popen."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self.returncode: int | None = None
        self.pid = self._told()

    def _told(self) -> int:
        told = self._link.recv(NUMBER.size)
        return (
            int(NUMBER.unpack(told)[0]) if told else -signal.SIGKILL
        )  # the fork server is gone, and all with it

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._link.settimeout(timeout)
            try:
                self.returncode = self._told()
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("manage.py", timeout or 0) from None
            self._link.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The fork server, as the process of tests sees it: it ends when the other end of its link is closed."""

    def __init__(self) -> None:
        self.env = dict(os.environ)
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
                cwd=ROOT,
                env={**self.env, "MALLOC_ARENA_MAX": "1"},  # as `serve` has it
                pass_fds=[theirs.fileno()],
            )

    def suits(self, env: Mapping[str, str]) -> bool:
        """Say whether a program with this environment may be forked."""
        differ = [name for name in env.keys() | self.env.keys() if env.get(name) != self.env.get(name)]
        if env.get("SIGNALBOX_PUBLIC_URL", "").startswith("https"):  # Ninja keeps the cookie's name
            return False
        return all(name.startswith(DIFFERS) and not name.startswith(CAPTURED) for name in differ)

    def start(self, words: Sequence[str], env: Mapping[str, str], out: IO[Any], err: IO[Any]) -> Forked:
        ours, theirs = socket.socketpair()
        with theirs:
            told = json.dumps([words, dict(env)]).encode()
            socket.send_fds(self._link, [told], [theirs.fileno(), out.fileno(), err.fileno()])
        return Forked(ours)


_servers: list[ForkServer] = []


def start(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: IO[Any], stderr: IO[Any]
) -> subprocess.Popen[bytes] | Forked:
    """Start `manage.py` with these words: forked where nobody can tell, and in a test."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if test and not test.startswith(REALLY) and cwd == ROOT and sys.platform == "linux":
        if not _servers:
            _servers.append(ForkServer())
        if _servers[0].suits(env):
            return _servers[0].start(words, env, stdout, stderr)
    return subprocess.Popen(
        [sys.executable, "manage.py", *words], cwd=cwd, env=env, stdout=stdout, stderr=stderr
    )


# --- in the fork server, and in what it forks ---


def main(link: socket.socket) -> None:
    """Load everything, then fork whatever is asked for; returns in what was forked alone, which goes on."""
    umask = os.umask(0o077)
    gc.disable()  # it would look through all that stays, again and again
    load()
    gc.enable()
    gc.freeze()  # the collector would write into all of it, for a copy each
    answers: dict[int, int] = {}  # where to tell how it ended, by process id

    def reap(*_: object) -> None:
        for pid in list(answers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                tell(answers[pid], os.waitstatus_to_exitcode(status))
                os.close(answers.pop(pid))

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the tests and for what they started
    signal.signal(signal.SIGCHLD, reap)
    while True:
        told, files, _, _ = socket.recv_fds(link, 1 << 20, 3)
        if not told:
            os._exit(0)
        (words, env), (answer, out, err) = json.loads(told), files
        if (pid := fork()) == 0:
            ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
            link.close()
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.umask(umask)
            return become(words, env)
        os.close(out)
        os.close(err)
        tell(answer, pid)
        answers[pid] = answer
        reap()  # it may have ended already


def tell(answer: int, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it any more
        os.write(answer, NUMBER.pack(number))


def load() -> None:
    """Load what the server, its workers and the commands run, with a data folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"SIGNALBOX_DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "tests.served_settings"}
        import django
        from django.conf import settings
        from django.utils.module_loading import import_string

        django.setup()
        from coordinator.management import commands

        for module in pkgutil.iter_modules(commands.__path__):
            importlib.import_module(f"{commands.__name__}.{module.name}")
        for name in (settings.ROOT_URLCONF, "coordinator.edge.app", "coordinator.edge.http.worker"):
            importlib.import_module(name)
        for name in settings.MIDDLEWARE:
            import_string(name)


def fork() -> int:
    """Fork, so that no signal for the new process comes to this one's handlers there; `become` lets them come."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    if pid := os.fork():
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def become(words: Sequence[str], env: Mapping[str, str]) -> None:
    """Make this process what `manage.py WORDS` is before its first line."""
    from django.conf import settings
    from django.db import connections
    from django.utils.functional import empty

    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for file in map(int, os.listdir("/proc/self/fd")):
        if file > 2:
            with contextlib.suppress(OSError):  # the folder's own
                os.close(file)
    os.environ.clear()
    os.environ |= env
    if "serve" in words[:1]:
        os.environ["MALLOC_ARENA_MAX"] = "1"  # lest it start itself again for that
    sys.argv = ["manage.py", *words]
    sys.orig_argv = [sys.executable, *sys.argv]
    settings._wrapped = empty
    for name in ("coordinator.settings", "tests.served_settings"):
        sys.modules.pop(name, None)
    connections.__dict__.pop("settings", None)
    connections.__init__()  # type: ignore[misc]


def run_to_the_end() -> NoReturn:
    """Run what `become` prepared, then leave without taking apart what was loaded: a tenth of a second a process."""
    import manage

    code = 0
    try:
        manage.main()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        code = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined] # as multiprocessing ends what it forked
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    run_to_the_end()
