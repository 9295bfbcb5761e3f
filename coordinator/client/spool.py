"""Hooks that could not be sent: kept in files, and sent later, in order, each under its first id.

A hook is a file `NUMBER`, written aside and then linked, so that it is whole or not there and two that come at once
both have a place. One process at a time sends them (`lock`). What the server has taken is removed; where that did not
come to be, the server knows it again by its id.
"""

from __future__ import annotations

import binascii
import contextlib
import fcntl
import json
import os
import time

from coordinator.client.settings import make_private_folder

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_HOOKS = 1_000
MOST_BYTES = 16 << 20
LARGEST = 2 << 20  # bytes of one hook
HOOK_RETENTION_SECONDS = 7 * 86_400.0
LOCK_WITHIN = 5.0  # seconds for which a sender waits for the one before it


class UnsentHook:
    """A hook that was not sent: whose (`agent`), its id, when (seconds since the epoch) and the agent's body.

    `denied` is what the agent was answered where its call was not let run, else "".
    """

    __slots__ = ("agent", "at", "body", "denied", "id")

    def __init__(self, agent: str, id: str, at: float, body: bytes, denied: str = "") -> None:
        self.agent = agent
        self.id = id
        self.at = at
        self.body = body
        self.denied = denied

    def to_spool_content(self) -> bytes:
        """Return it as a file's content."""
        content = {"agent": self.agent, "id": self.id, "at": self.at, "denied": self.denied}
        return json.dumps(content).encode() + b"\n" + binascii.b2a_base64(self.body)


def parse_spooled_hook_or_none(content: bytes) -> UnsentHook | None:
    head, _, body = content.partition(b"\n")
    try:
        decoded = json.loads(head)
        unsent_hook = UnsentHook(
            decoded["agent"],
            decoded["id"],
            float(decoded["at"]),
            binascii.a2b_base64(body),
            decoded["denied"],
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (
        unsent_hook
        if all(
            isinstance(text_field, str)
            for text_field in (unsent_hook.agent, unsent_hook.id, unsent_hook.denied)
        )
        else None
    )


class HookSpool:
    """The hooks that were not sent to one server, in a folder of their own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __bool__(self) -> bool:
        return bool(self.list_hook_numbers())

    def add_hook_unless_too_large(self, unsent_hook: UnsentHook) -> bool:
        """Keep a hook at the end of the line; of too many, the oldest go. Returns False for one that is too large.

        Raises OSError.
        """
        content = unsent_hook.to_spool_content()
        if len(content) > LARGEST:
            return False
        make_private_folder(self._folder)
        aside = os.path.join(self._folder, f"new-{os.getpid()}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
            numbers = self.list_hook_numbers()
            self._remove_oldest_hooks(numbers, len(content))
            number = numbers[-1] + 1 if numbers else 1
            while not self._try_to_link_hook_file(aside, number):
                number += 1
        finally:
            os.unlink(aside)
        return True

    def send_spooled_hooks(self, send_hook: Callable[[UnsentHook], bool]) -> None:
        """Send what is kept, in order, and remove it; `send_hook` returns False where the rest has to wait.

        Does nothing where another process is sending. Raises OSError.
        """
        with self._try_sender_lock_during_block() as is_only_sender:
            while is_only_sender and (numbers := self.list_hook_numbers()):
                for number in numbers:
                    spooled_hook = self.read_spooled_hook(number)
                    # A clock that was put back makes an age negative; one that is far off is useless.
                    if (
                        spooled_hook is not None
                        and abs(time.time() - spooled_hook.at) < HOOK_RETENTION_SECONDS
                        and not send_hook(spooled_hook)
                    ):
                        return
                    self._remove_hook_file(number)

    # --- files ------------------------------------------------------------------------------------------------

    def hook_file_path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:010d}")

    def list_hook_numbers(self) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self._folder) if name.isdecimal())
        except FileNotFoundError:
            return []

    def _try_to_link_hook_file(self, aside: str, number: int) -> bool:
        try:
            os.link(aside, self.hook_file_path(number))
        except FileExistsError:
            return False
        return True

    def _remove_oldest_hooks(self, numbers: list[int], size: int) -> None:
        sizes = {number: self.hook_file_size(number) for number in numbers}
        while sizes and (len(sizes) >= MOST_HOOKS or sum(sizes.values()) + size > MOST_BYTES):
            oldest = min(sizes)
            self._remove_hook_file(oldest)
            del sizes[oldest]

    def hook_file_size(self, number: int) -> int:
        try:
            return os.stat(self.hook_file_path(number)).st_size
        except FileNotFoundError:
            return 0

    def read_spooled_hook(self, number: int) -> UnsentHook | None:
        try:
            with open(self.hook_file_path(number), "rb") as file:
                return parse_spooled_hook_or_none(file.read(2 * LARGEST))
        except OSError:
            return None

    def _remove_hook_file(self, number: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.hook_file_path(number))

    @contextlib.contextmanager
    def _try_sender_lock_during_block(self) -> Iterator[bool]:
        """Be the one that sends; False where another one is, and stays so."""
        make_private_folder(self._folder)
        descriptor = os.open(
            os.path.join(self._folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600
        )
        try:
            yield acquire_spool_lock_within_timeout(descriptor)
        finally:
            os.close(descriptor)


def acquire_spool_lock_within_timeout(descriptor: int) -> bool:
    until = time.monotonic() + LOCK_WITHIN
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
