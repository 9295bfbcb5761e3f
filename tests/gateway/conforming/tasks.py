"""The conforming server's tasks (io.modelcontextprotocol/tasks), which the official package does not have."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from tests.gateway.conforming.questions import Context, Json, an_object, answers, form, needs, text

TASKS = "io.modelcontextprotocol/tasks"
HEADER_MISMATCH = -32020
SURE = an_object(confirm={"type": "boolean"})
NAMED = an_object(name={"type": "string"})
ENDED = {"completed", "failed", "cancelled"}


class About(types.RequestParams):
    """The params of what asks about a task."""

    task_id: str
    input_responses: Json | None = None


@dataclass
class Task:
    """One task. `asked` is what it waits for, by names; `end` has its result or its error."""

    status: str = "working"
    asked: Json = field(default_factory=dict)
    end: Json = field(default_factory=dict)
    said: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None
    id: str = field(default_factory=lambda: f"task-{uuid.uuid4().hex}")
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    def told(self) -> Json:
        about = {"taskId": self.id, "status": self.status, "createdAt": self.at, "lastUpdatedAt": self.at}
        return about | {"ttlMs": 600_000, "pollIntervalMs": 100}

    async def answered(self, **questions: Json) -> None:
        """Wait until the client has answered all of the questions."""
        self.asked, self.status = dict(questions), "input_required"
        await self.said.wait()
        self.status = "working"


Work = Callable[[Task, Json], Awaitable[Json]]


class Tasks:
    """Tools that may take their time, and what is asked about them."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self.tools: dict[str, Callable[[Context, Json], Awaitable[Json]]] = {
            "greet": self._greet,
            "slow_compute": self._slow_compute,
            "failing_job": self._failing_job,
            "protocol_error_job": self._protocol_error_job,
            "confirm_delete": self._confirm_delete,
            "multi_input": self._multi_input,
            "test_tool_with_task": self._with_task,
        }

    def join(self, server: Server[Any]) -> None:
        """Have a server answer for the tasks."""
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", About, self._get)
        server.add_request_handler("tasks/update", About, self._update)
        server.add_request_handler("tasks/cancel", About, self._cancel)

    # --- tools ----------------------------------------------------------------------------------------------

    async def _greet(self, ctx: Context, given: Json) -> Json:
        return text(f"Hello, {given['name']}!")

    async def _slow_compute(self, ctx: Context, given: Json) -> Json:
        async def compute(task: Task, given: Json) -> Json:
            await asyncio.sleep(float(given.get("seconds", 0)))
            return text(f"Computed {given.get('label')}.")

        if given.get("seconds") == 0 or not _declares(ctx):
            return await compute(Task(), given)
        return self._begun(compute, given)

    async def _failing_job(self, ctx: Context, given: Json) -> Json:
        async def fail(task: Task, given: Json) -> Json:
            await asyncio.sleep(0.1)
            return text("It failed.") | {"isError": True}

        _require(ctx)
        return self._begun(fail, given)

    async def _protocol_error_job(self, ctx: Context, given: Json) -> Json:
        async def panic(task: Task, given: Json) -> Json:
            raise MCPError(types.INTERNAL_ERROR, "It panicked.")

        _require(ctx)
        return self._begun(panic, given)

    async def _confirm_delete(self, ctx: Context, given: Json) -> Json:
        async def delete(task: Task, given: Json) -> Json:
            await task.answered(sure=form("Delete it?", SURE))
            return text(f"Deleted {given['filename']}.")

        if not _declares(ctx):  # the first tool of a sorted list, which other scenarios call
            return text("Nothing was deleted.")
        return self._begun(delete, given)

    async def _multi_input(self, ctx: Context, given: Json) -> Json:
        async def ask_twice(task: Task, given: Json) -> Json:
            await task.answered(first=form("Who?", NAMED), second=form("And who else?", NAMED))
            return text("Thank you.")

        _require(ctx)
        return self._begun(ask_twice, given)

    async def _with_task(self, ctx: Context, given: Json) -> Json:
        async def greet(task: Task, given: Json) -> Json:
            return text(f"Hello, {name}!")

        _require(ctx)
        if more := needs(ctx, user_name=form("What is your name?", NAMED)):
            return more
        name = answers(ctx)["user_name"]["content"]["name"]
        return self._begun(greet, given)

    # --- tasks ----------------------------------------------------------------------------------------------

    def _begun(self, work: Work, given: Json) -> Json:
        task = Task()
        self._tasks[task.id] = task
        task.work = asyncio.ensure_future(self._run(task, work, given))
        return {"resultType": "task", **task.told()}

    async def _run(self, task: Task, work: Work, given: Json) -> None:
        try:
            task.end = {"result": await work(task, given)}
            task.status = "completed"
        except MCPError as problem:
            task.end = {"error": {"code": problem.error.code, "message": problem.error.message}}
            task.status = "failed"

    async def _get(self, ctx: Context, about: About) -> Json:
        task = self._named(ctx, about)
        asked = {"inputRequests": task.asked} if task.status == "input_required" else {}
        return {"resultType": "complete", **task.told(), **asked, **task.end}

    async def _update(self, ctx: Context, about: About) -> Json:
        task = self._named(ctx, about)
        for name in about.input_responses or {}:
            if task.asked.pop(name, None) is not None and not task.asked:
                task.said.set()
        return {"resultType": "complete"}

    async def _cancel(self, ctx: Context, about: About) -> Json:
        task = self._named(ctx, about)
        if task.status not in ENDED and task.work is not None:
            task.work.cancel()
            task.status = "cancelled"
        return {"resultType": "complete"}

    def _named(self, ctx: Context, about: About) -> Task:
        _require(ctx)
        named = ctx.request.headers.get("mcp-name") if ctx.request is not None else about.task_id
        if named != about.task_id:
            raise MCPError(HEADER_MISMATCH, "Mcp-Name names another task.")
        if about.task_id not in self._tasks:
            raise MCPError(types.INVALID_PARAMS, "There is no such task.")
        return self._tasks[about.task_id]


def _declares(ctx: Context) -> bool:
    known = ctx.session.client_capabilities
    return known is not None and TASKS in (known.extensions or {})


def _require(ctx: Context) -> None:
    """Refuse a client that did not declare that it knows tasks."""
    if not _declares(ctx):
        wanted = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, f"This needs {TASKS}.", wanted)
