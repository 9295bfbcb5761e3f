"""The unanswered requests of a server on one stream, until the stream ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class OpenQuestions:
    """A task for each open question of a server, by its JSON-RPC id; the end of the block cancels them all."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    @property
    def open_count(self) -> int:
        """How many questions are open."""
        return len(self._tasks)

    def is_open(self, number: object) -> bool:
        """Say whether a question with this id is open."""
        return json.dumps(number) in self._tasks

    def start_question_job(self, number: object, work: Coroutine[Any, Any, None]) -> None:
        """Answer a question in a task of its own."""
        key = json.dumps(number)
        task = asyncio.ensure_future(work)
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def cancel_question(self, number: object, reason: str | None = None) -> bool:
        """Cancel the question with this id; say whether it was open."""
        task = self._tasks.get(json.dumps(number))
        if task is None:
            return False
        task.cancel(reason)
        return True
