"""Requests about tasks of servers (`tasks/get` and so on): only the caller that began a task may use it."""

from __future__ import annotations

import logging

from django.db import DatabaseError
from django.utils import timezone

from coordinator.actions.mcp import gateway_tasks
from coordinator.actions.mcp.gateway_tasks import TaskOwner
from coordinator.edge.gateway.exchange import Exchange
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import server_tasks

log = logging.getLogger(__name__)


class ServerTasks:
    """One a process."""

    def __init__(self, threads: EdgeThreads) -> None:
        self._threads = threads

    async def record_task_owner(self, exchange: Exchange, response: bytes) -> None:
        """Note whose the task is that a call's response begins. Where that cannot be written, it is nobody's."""
        task_id = server_tasks.find_started_task_id(response)
        if task_id is None:
            return
        try:
            await self._threads.run_in_thread(
                gateway_tasks.record_upstream_task_owner,
                build_task_owner(exchange),
                task_id,
                exchange.message.target_name or "",
                now=timezone.now(),
            )
        except DatabaseError:
            log.exception(
                "Whose task of %s it is could not be written: its client cannot use it", exchange.server.name
            )

    async def is_own_task(self, exchange: Exchange) -> bool:
        """Say whether the task that a request names was begun by its caller, in this session."""
        task_id = exchange.message.params.get("taskId")
        if not isinstance(task_id, str):
            return False
        return bool(
            await self._threads.run_in_thread(
                gateway_tasks.filter_owned_task_ids, build_task_owner(exchange), [task_id]
            )
        )

    async def restrict_task_response_to_caller(self, exchange: Exchange, response: bytes) -> bytes:
        """Return a response to tasks/list with the caller's own tasks alone."""
        own = await self._threads.run_in_thread(
            gateway_tasks.filter_owned_task_ids,
            build_task_owner(exchange),
            server_tasks.list_task_ids(response),
        )
        return server_tasks.filter_task_list_response(response, own)


def build_task_owner(exchange: Exchange) -> TaskOwner:
    return TaskOwner(
        exchange.server.name,
        exchange.caller_key.id,
        exchange.agent_id,
        exchange.client.session_id if exchange.client else None,
    )
