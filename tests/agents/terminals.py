"""An agent in a terminal of its own, as a person sees it: started in a pseudo-terminal, read, and typed into."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence

from tests.agents.real_agents import Home

COLUMNS, ROWS = 220, 50
SEEN_WITHIN = 60.0  # seconds
QUIET_WITHIN = 5.0  # seconds; some draw for as long as they run
_ANSWERS = {  # what a terminal answers to programs that ask about it
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;c",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    b"\x1b[?u": b"\x1b[?0u",
}
_MOVES = re.compile(rb"\x1b\[[0-9;]*[CGHf]")
_CONTROLS = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>78M]"
)


class Terminal:
    """A program in a terminal. `text` is all that it has written, without colours and moves."""

    def __init__(self, home: Home, words: Sequence[str], **variables: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [*home.command, *words],
            cwd=home.work,
            env=home.environment | {"TERM": "xterm-256color"} | variables,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._written = b""

    @property
    def text(self) -> str:
        """What was written, a blank for each move of the cursor."""
        return _CONTROLS.sub(b"", _MOVES.sub(b" ", self._written)).decode("utf-8", "replace")

    def shows(self, *texts: str, within: float = SEEN_WITHIN) -> str:
        """Wait until it shows one of the texts, and return that. Raises AssertionError with what it shows instead."""
        deadline = time.monotonic() + within
        while (seen := next((one for one in texts if one in self.text), "")) == "":
            assert time.monotonic() < deadline, self.text[-3000:]
            self.read()
        return seen

    def type(self, keys: str) -> None:
        """Press keys, once it has written what it had to: a program may drop what was typed before that."""
        deadline = time.monotonic() + QUIET_WITHIN
        while self.read(1.0) and time.monotonic() < deadline:
            pass
        os.write(self._master, keys.encode())

    def ends(self, within: float = SEEN_WITHIN) -> None:
        """Wait until the program has ended."""
        deadline = time.monotonic() + within
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text[-3000:]
            self.read()

    def close(self) -> None:
        """End it and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    def read(self, within: float = 0.2) -> bool:
        """Take what it writes; return False where it writes nothing."""
        if not select.select([self._master], [], [], within)[0]:
            return False
        with contextlib.suppress(OSError):  # it has ended
            part = os.read(self._master, 1 << 16)
            self._written += part
            for question, answer in _ANSWERS.items():
                os.write(self._master, answer * part.count(question))
        return True
