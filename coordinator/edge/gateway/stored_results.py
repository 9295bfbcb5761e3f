"""Reading of the rest of a long result, by the key and agent that received its beginning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.utils import timezone

from coordinator.actions.mcp import call_limits
from coordinator.actions.mcp.call_limits import ResultOwner
from coordinator.edge.gateway.calls import ToolCallHandler
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.non_tool_requests import ReadRequestHandler
from coordinator.edge.gateway.records import CallRecords
from coordinator.edge.gateway.registry import ServerRegistry
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway.limited_results import build_stored_result_page, parse_result_uri_or_none
from coordinator.mcp.protocol.messages import BRAKED, INVALID_PARAMS
from coordinator.models import StoredResult
from coordinator.policy.rules.tool_rules import DENY

NOT_FOUND = "You have no such stored result. It is kept for a day, for the key and the agent of the call."


class StoredResultReader:
    """One a process."""

    def __init__(
        self,
        calls: ToolCallHandler,
        records: CallRecords,
        registry: ServerRegistry,
        reads: ReadRequestHandler,
        threads: EdgeThreads,
    ) -> None:
        self._calls = calls
        self._records = records
        self._registry = registry
        self._reads = reads
        self._threads = threads

    async def try_answer_stored_result_read(self, exchange: Exchange) -> bool:
        """Answer a request that reads a stored result; return whether it is one. Raises Busy.

        Its tool must not be denied now for the arguments of the call, and no brake may be on. Nobody is asked: the call
        was decided before.
        """
        message = exchange.message
        if message.method != "resources/read" or not message.is_request:
            return False
        stored_position = parse_result_uri_or_none(message.params.get("uri"))
        if stored_position is None:
            return False
        stored_id, offset = stored_position
        owner = ResultOwner(exchange.caller_key.id, exchange.agent_id)
        row = await self._threads.run_in_thread(
            call_limits.find_stored_result, stored_id, owner, timezone.now()
        )
        server = await self._registry.get_cached_or_load_server(row.server_id) if row is not None else None
        if row is None or server is None or exchange.server.name not in {"", server.name}:
            response = answers.encode_error_response(message.id, INVALID_PARAMS, NOT_FOUND)
            await exchange.line.send_answer(response)
            return True
        inner = replace(exchange, server=server)
        session_id = await self._records.get_or_create_timeline_session_id(inner)
        name = row.tool_name or message.method
        arguments = await self._threads.run_in_thread(call_limits.decrypt_stored_arguments, row)
        ruling, _ = await self._calls.decide_call(
            inner, name, arguments, session_id, is_read=not row.tool_name
        )
        record = self._records.begin_non_tool_request_record(
            inner, session_id, message.method, {"uri": message.params["uri"]}
        )
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        if inner.brake is not None:
            refusal = f"The stored result was not read. {inner.brake.agent_message}"
            response = answers.encode_error_response(message.id, BRAKED, refusal)
            self._records.end_call_record(record, "denied", response)
            await exchange.line.send_answer(response)
        elif ruling.decision == DENY:
            await self._reads.refuse_non_tool_request(inner, record, ruling)
        else:
            response = await self._threads.run_in_thread(
                build_stored_result_part_response, row, message, offset
            )
            self._records.end_call_record(record, "ok", response)
            await exchange.line.send_answer(response)
        return True


def build_stored_result_part_response(row: StoredResult, message: Any, offset: int) -> bytes:
    """Return the response with one part of a stored result, or the error where it cannot be opened any more."""
    try:
        text = call_limits.decrypt_stored_result(row)
    except ValueError:
        return answers.encode_error_response(message.id, INVALID_PARAMS, NOT_FOUND)
    value = build_stored_result_page(row.pk, text, offset, row.part_bytes)
    if message.is_stateless:
        value |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return answers.encode_result_response(message.id, value)
