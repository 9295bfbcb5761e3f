"""What a thread can wait for together: being woken by another thread, and a file's being written to by any program."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
from typing import Protocol

IN_MODIFY, IN_Q_OVERFLOW = 0x2, 0x4000
_EVENT = struct.Struct("iIII")  # of which watch, what happened, a cookie, the length of the name that follows
_MOST_READ = 64 * 1024  # bytes


class Pollable(Protocol):
    """What `select.poll` can wait for."""

    def fileno(self) -> int:
        """Return its file descriptor."""


class PollableEvent:
    """Like `threading.Event`, but it can be waited for together with something else."""

    def __init__(self) -> None:
        self._in, self._out = socket.socketpair()
        for end in (self._in, self._out):
            end.setblocking(False)
        self._is_set = False

    def is_set(self) -> bool:
        """Say whether somebody has set it since it was cleared."""
        return self._is_set

    def set(self) -> None:
        """Wake whoever waits, or comes to wait; nothing once it is closed."""
        if not self._is_set:
            self._is_set = True
            with contextlib.suppress(OSError):
                self._in.send(b".")

    def clear(self) -> None:
        """Let those who come wait again. Look for what you were woken for after this."""
        self._is_set = False
        with contextlib.suppress(OSError):
            self._out.recv(_MOST_READ)

    def wait(self, seconds: float, beside: Pollable | None = None) -> bool:
        """Wait until it is set, there is something to read `beside`, or so long; say whether it is set."""
        if self._is_set:
            return True
        poll = select.poll()
        for one in (self._out, beside):
            if one is not None:
                poll.register(one, select.POLLIN)
        poll.poll(seconds * 1000)
        return self._is_set

    def close(self) -> None:
        """Give its file descriptors back, once nobody waits any more."""
        self._in.close()
        self._out.close()


class FileWriteWatcher:
    """Is told by the kernel when a file is written to: Linux's inotify(7). The file may be made, or made anew, later.

    Each write costs its writer some microseconds more meanwhile, so it can be paused.

    Not a library's: inotify-simple starts another program to find the C library, at each start of a worker.
    """

    is_paused = True

    def __init__(self, path: str) -> None:
        """Watch. Raises OSError where this system does not tell, or watches as many files as it may."""
        self._folder, self._name = os.path.split(os.fsencode(os.path.realpath(path)))
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._fd = require_success(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        try:
            self.resume_watching()
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return its file descriptor, which is readable once something in the folder was written to."""
        return self._fd

    def pause_watching(self) -> None:
        """Be told of nothing until it is resumed."""
        if not self.is_paused:
            self.is_paused = True
            self._libc.inotify_rm_watch(self._fd, self._watch)

    def resume_watching(self) -> None:
        """Be told of what is written from now on. Raises OSError where the folder is gone."""
        if self.is_paused:
            self.consume_write_events()  # that it was paused
            self._watch = require_success(self._libc.inotify_add_watch(self._fd, self._folder, IN_MODIFY))
            self.is_paused = False

    def consume_write_events(self) -> bool:
        """Say whether the file was written to since this was last asked; at once."""
        found = False
        with contextlib.suppress(BlockingIOError):
            while True:
                found |= self.contains_file_event(os.read(self._fd, _MOST_READ))
        return found

    def contains_file_event(self, told: bytes) -> bool:
        place = 0
        while place < len(told):
            _, what, _, length = _EVENT.unpack_from(told, place)
            place += _EVENT.size + length
            name = told[place - length : place].rstrip(b"\0")
            if name == self._name or what & IN_Q_OVERFLOW:
                return True
        return False

    def close(self) -> None:
        """Watch no more."""
        os.close(self._fd)


def require_success(answer: int) -> int:
    if answer < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return answer
