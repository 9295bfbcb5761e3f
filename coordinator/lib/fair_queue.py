"""Fair queues: callers take turns, so that one caller's flood makes others wait for one piece of work, not for all.

`CALLER` holds who asks for work on the event loop: `key:7`, `person:2`, an address, or nobody for what this process
does for all. Tasks inherit the caller of the code that starts them; those that work for many call
`clear_current_caller`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")

CALLER: ContextVar[str] = ContextVar("signalbox_caller", default="")


def is_caller_signed_in_person() -> bool:
    """Say whether this thread or task works for somebody who is signed in."""
    return CALLER.get().startswith("person:")


def clear_current_caller() -> None:
    """Clear the task's caller: from here on, it works for all callers."""
    CALLER.set("")


class FairQueue(Generic[T]):
    """A fair queue: each caller's items in order, the callers in turn. Its user locks it."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, caller: str, item: T) -> None:
        """Put an item at the end of its caller's line."""
        line = self._lines.get(caller)
        if line is None:
            line = self._lines[caller] = deque()
        line.append(item)
        self._count += 1

    def pop_next_item(self) -> T:
        """Take the first item of the caller whose turn it is. Raises KeyError where there is none."""
        caller, line = self._lines.popitem(last=False)
        return self._pop_first_item(caller, line)

    def pop_next_batch(self, most: int, size: Callable[[T], int]) -> list[T]:
        """Take items, one a turn, whose sizes come to `most` at most; always one, however large, where there is any.

        A caller whose item does not fit any more keeps its turn for the next time.
        """
        batch: list[T] = []
        passed: list[tuple[str, deque[T]]] = []
        size_left = most
        while self._lines:
            caller, line = self._lines.popitem(last=False)
            if batch and size(line[0]) > size_left:
                passed.append((caller, line))
                continue
            size_left -= size(line[0])
            batch.append(self._pop_first_item(caller, line))
        for caller, line in reversed(passed):
            self._lines[caller] = line
            self._lines.move_to_end(caller, last=False)
        return batch

    def _pop_first_item(self, caller: str, line: deque[T]) -> T:
        item = line.popleft()
        if line:
            self._lines[caller] = line  # behind the others
        self._count -= 1
        return item


class ThreadsClosed(Exception):
    """The threads have been let go: this process is about to end, and takes no more work."""


class FairThreadPool:
    """A bounded pool of threads in which callers take turns."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._queue: FairQueue[tuple[str, Future[Any], Callable[[], Any]]] = FairQueue()
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], T], caller: str) -> Future[T]:
        """Queue `work` for when it is the caller's turn. Raises ThreadsClosed."""
        future: Future[T] = Future()
        with self._lock:
            self._queue.put(caller, (caller, future, work))
        try:
            self._pool.submit(self._run_next_item)
        except RuntimeError:
            raise ThreadsClosed from None
        return future

    async def run_in_pool(self, work: Callable[[], T], caller: str) -> T:
        """Return what `work` returns in a thread, when it is the caller's turn; raise what it raises."""
        return await asyncio.wrap_future(self.submit(work, caller))

    def _run_next_item(self) -> None:
        """Do one piece of work. As many of these are queued as there are pieces; whose it is, the turns say."""
        with self._lock:
            caller, future, work = self._queue.pop_next_item()
        CALLER.set(caller)
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except BaseException as problem:
            future.set_exception(problem)

    def shut_down_pool(self) -> None:
        """Let the threads end; what is queued is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            while self._queue:
                self._queue.pop_next_item()[1].cancel()
