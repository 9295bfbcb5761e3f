"""`signalbox hook AGENT --stream`: the hooks of a long-running program, one a line, for which nobody waits.

A line on stdin is a hook's id, a blank and its body. Hooks are sent in order, one after the other. Where the server
is away they are kept (`spool`) and sent later, while this process runs or by the next one. Each id is printed once its
hook is sent, kept or refused, so that the writer of the line may forget it. When stdin ends, or the agent's process
does, however that came, the sessions of these hooks end: their agent has gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time

from coordinator.client.hook import LARGEST, LOOK_EVERY, STOPS, HookCommand, print_log_line, write_all_bytes
from coordinator.client.spool import HookSpool, UnsentHook

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SEND_TIMEOUT_SECONDS = 10.0  # for one hook
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before kept hooks are tried again
MOST_SESSIONS = 1_000  # that are ended when the agent is


class HookStream(HookCommand):
    """The hooks of one agent process, on their way."""

    def run(self) -> int:
        """Send hooks until the agent has ended; return the exit code, 1 where there is no server to send them to."""
        for number in STOPS:  # the terminal's Ctrl-C is for the agent; what it says last must still be sent
            signal.signal(number, signal.SIG_IGN)
        self.load_server_address_and_settings()
        if self._settings is None:
            print_log_line(self._refusal)
            return 1
        self._event = ""  # no hook here is a call
        self._sessions: dict[str, dict[str, Any]] = {}
        self._pause, self._try_at = FIRST_PAUSE, 0.0
        for line in self.iterate_stdin_hooks():
            name, _, body = line.partition(b" ")
            self._send_or_spool_hook(
                UnsentHook(self._agent.name, name.decode("ascii", "replace"), time.time(), body)
            )
            self._track_running_sessions(body)
            with contextlib.suppress(OSError):  # the agent has ended: what it wrote is sent all the same
                write_all_bytes(1, name + b"\n")
        self.report_session_ends()
        return 0

    def iterate_stdin_hooks(self) -> Iterator[bytes]:
        """Yield the lines until stdin or the agent ends; one that is too long is left out."""
        begun = bytearray()
        while True:
            if select.select([0], [], [], LOOK_EVERY)[0]:
                part = os.read(0, 1 << 20)
                if not part:
                    return
                begun += part
                *lines, rest = begun.split(b"\n")
                yield from (bytes(line) for line in lines if 0 < len(line) <= LARGEST)
                begun = rest if len(rest) <= LARGEST else rest[: LARGEST + 1]
            elif self._caller.has_agent_exited():
                return
            else:
                self._flush_due_spool_and_check_empty()

    def _send_or_spool_hook(self, hook: UnsentHook) -> None:
        """Send a hook, or keep it: behind others that wait, too."""
        self.load_server_address_and_settings()  # another server or key may have been connected since
        if self._flush_due_spool_and_check_empty():
            self._until = time.monotonic() + SEND_TIMEOUT_SECONDS
            if self.send_or_drop_unsent_hook(hook):
                return
            self._increase_retry_pause()
        self.spool_unsent_hook(hook)

    def _flush_due_spool_and_check_empty(self) -> bool:
        """Say whether no hook waits, after those that did were sent where it was time to try."""
        spool = HookSpool(self.spool_folder)
        if spool and time.monotonic() >= self._try_at:
            driven, self._driven = self._driven, ""  # others' hooks are among them
            self._until = time.monotonic() + SEND_TIMEOUT_SECONDS
            try:
                spool.send_spooled_hooks(self.send_or_drop_unsent_hook)
            except OSError as problem:
                print_log_line(f"Kept hooks cannot be sent: {problem}")
            self._driven = driven
            if spool:
                self._increase_retry_pause()
            else:
                self._pause = FIRST_PAUSE
        return not spool

    def _increase_retry_pause(self) -> None:
        self._try_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _track_running_sessions(self, body: bytes) -> None:
        """Remember the hook's session as one that runs, or as ended."""
        try:
            hook = json.loads(body)
            session, event = hook["session_id"], self.hook_event_name_or_strictest(hook)
        except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
            return
        if not isinstance(session, str):
            return
        if event in self._agent.session_ends:
            self._sessions.pop(session, None)
        elif session in self._sessions or len(self._sessions) < MOST_SESSIONS:
            self._sessions[session] = {"session_id": session, "cwd": hook.get("cwd")}

    def report_session_ends(self) -> None:
        """Report the end of the sessions that run, and try once more to send what is kept."""
        self._try_at = 0.0
        for fields in self._sessions.values():
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            hook = {self._agent.named_in[0]: self._agent.session_ends[0], **fields, "timestamp": now}
            body = json.dumps(hook).encode()
            self._send_or_spool_hook(UnsentHook(self._agent.name, os.urandom(16).hex(), time.time(), body))
