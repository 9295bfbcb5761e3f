"""Jobs that a hostile file might start, for the tests of what the sandbox lets them do."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import socket
import time

from coordinator.sandbox import frames
from coordinator.sandbox.limits import JobTimeout, limit_cpu_time_during_block

Facts = dict[str, object]
Answer = tuple[Facts, bytes]


def echo(facts: Facts, body: bytes) -> Answer:
    return {"said": facts.get("say")}, body[::-1]


def spin(_facts: Facts, _body: bytes) -> Answer:
    while True:
        pass


def backtrack(_facts: Facts, _body: bytes) -> Answer:
    try:
        with limit_cpu_time_during_block(0.1):
            re.search(r"(a+)+$", "a" * 60 + "b")
    except JobTimeout:
        return {"stopped": True}, b""
    return {"stopped": False}, b""


def doze(_facts: Facts, _body: bytes) -> Answer:
    time.sleep(600)
    return {}, b""


def eat(_facts: Facts, _body: bytes) -> Answer:
    return {}, bytes(8 * 1024**3)


def crash(_facts: Facts, _body: bytes) -> Answer:
    ctypes.string_at(0)
    return {}, b""


def look_around(facts: Facts, _body: bytes) -> Answer:
    """Try what a program that was broken into would try; tell what worked."""
    tried = {
        "read": lambda: open(str(facts["path"]), "rb").close(),
        "write": lambda: open(str(facts["path"]), "ab").close(),
        "connect": lambda: socket.create_connection(("127.0.0.1", int(str(facts["port"]))), 1).close(),
        "start a program": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
        "fork": _fork,
        "read in place of another file": lambda: _read_in_place_of(2, str(facts["path"])),
        "remove": lambda: os.unlink(str(facts["path"])),
        "make a folder": lambda: os.mkdir(str(facts["path"]) + "_made"),
        "signal the server": lambda: os.kill(int(str(facts["server"])), 0),
        "lower the server's limits": lambda: resource.prlimit(
            int(str(facts["server"])), resource.RLIMIT_CORE, (0, 0)
        ),
        "look at a file": lambda: os.stat(str(facts["path"])),
        "list a folder": lambda: os.listdir("/"),
        "open a socket in place of another file": lambda: socket.socket().close(),
        "leave the session": os.setsid,
        "be traced": _trace_me,
    }
    return {
        "worked": [name for name, act in tried.items() if _works(act)],
        "env": dict(os.environ),
        "cwd": os.getcwd(),
    }, b""


def say_more(_facts: Facts, body: bytes) -> Answer:
    """Answer a job that nobody has handed in yet, too."""
    os.write(1, frames.pack_frame({"status": "done", "said": "forged"}))
    return {"said": "mine"}, body


def read_on(_facts: Facts, _body: bytes) -> Answer:
    """Try to read the job that is handed in next."""
    return {"worked": _works(lambda: os.read(0, 1))}, b""


def _trace_me() -> None:
    if ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0:
        raise OSError


def _read_in_place_of(descriptor: int, path: str) -> None:
    os.close(descriptor)
    os.close(os.open(path, os.O_RDONLY))


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _works(act: object) -> bool:
    try:
        act()  # type: ignore[operator]
    except (OSError, LookupError):  # a codec that cannot be loaded
        return False
    return True


JOBS = {
    "echo": echo,
    "spin": spin,
    "backtrack": backtrack,
    "doze": doze,
    "eat": eat,
    "crash": crash,
    "look_around": look_around,
    "say_more": say_more,
    "read_on": read_on,
}
