"""Tool calls that a person makes on a page, sent like agents' calls: limited, masked, with the person's own token.

Each has a session of its own with the server, which ends with the call. Requests of the server are not answered.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time

from django.utils import timezone

from coordinator.actions.mcp import tool_trials as actions
from coordinator.client.mcp_methods import META_CAPABILITIES, META_CLIENT, META_VERSION
from coordinator.edge.gateway.all_servers import encode_tool_name_header
from coordinator.edge.gateway.approved_calls import classify_response_ok_or_error
from coordinator.edge.gateway.call_limiter import CallLimiter
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.registry import ServerRegistry
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.result_cache import ResultCache
from coordinator.edge.gateway.upstream_calls import UpstreamSender
from coordinator.edge.gateway.upstream_sessions import STATELESS, UpstreamSessions
from coordinator.edge.http.auth import Admission, Authenticator
from coordinator.edge.polling.waits import DisconnectWatcher
from coordinator.errors import Forbidden, NotFound, ServiceBusy, SignalboxError
from coordinator.identity.keys import KeyIdentity
from coordinator.lib.asgi import Message
from coordinator.lib.fair_queue import CALLER
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway.limited_results import build_limited_result
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.gateway.tool_trials import ANSWER_WITHIN, ToolTrial, TrialOutcome
from coordinator.mcp.protocol import messages
from coordinator.mcp.protocol.http_client import UpstreamFailed

CALL_ID = "signalbox-trial"
WRITE_MARGIN = 15.0  # seconds for what is read and written around a call
NOT_STORED = "0"  # where the rest of a long result would be, which is not kept
NO_KEY = 0  # the id of no key: what a page sends is no program's


class ToolTrialRunner:
    """One a process."""

    def __init__(
        self,
        *,
        auth: Authenticator,
        registry: ServerRegistry,
        sessions: UpstreamSessions,
        sending: UpstreamSender,
        limiter: CallLimiter,
        cache: ResultCache,
        threads: EdgeThreads,
    ) -> None:
        self._cache = cache
        self._auth = auth
        self._registry = registry
        self._sessions = sessions
        self._sending = sending
        self._limiter = limiter
        self._threads = threads

    def run_tool_trial_from_thread(self, loop: asyncio.AbstractEventLoop, trial: ToolTrial) -> TrialOutcome:
        """Run a trial on the event loop and wait for it. Raises what refuses it."""
        future = asyncio.run_coroutine_threadsafe(self.run_tool_trial(trial), loop)
        try:
            return future.result(ANSWER_WITHIN + 2 * WRITE_MARGIN)
        except TimeoutError:
            future.cancel()
            raise ServiceBusy("The gateway did not answer in time. The call may have run.") from None

    async def run_tool_trial(self, trial: ToolTrial) -> TrialOutcome:
        """Return what came of a trial. Raises what refuses it: Forbidden, NotFound, Conflict."""
        CALLER.set(f"person:{trial.user_id}")
        self._registry.invalidate_cached_server(trial.server_id)
        server = await self._registry.get_cached_or_load_server(trial.server_id)
        if server is None:
            raise NotFound(f"There is no MCP server {trial.server_id[:100]!r} here.")
        await self._threads.run_in_thread(
            actions.authorize_and_audit_tool_trial, trial, server, timezone.now()
        )
        outcome = await self.send_trial(trial, server)
        await self._threads.run_in_thread(actions.audit_tool_trial_outcome, trial, outcome, timezone.now())
        return outcome

    async def send_trial(self, trial: ToolTrial, server: UpstreamServer) -> TrialOutcome:
        began = time.perf_counter()

        def fail_trial(problem: str, *, is_sent: bool) -> TrialOutcome:
            return TrialOutcome("failed", None, problem, is_sent, (time.perf_counter() - began) * 1000)

        is_sent = False
        seconds = min(ANSWER_WITHIN, server.call_timeout_seconds_of_tool(trial.tool))

        async def send_in_own_session() -> bytes:
            nonlocal is_sent
            async with self._sessions.temporary_upstream_session_during_block(exchange) as own:
                is_sent = True
                recheck = functools.partial(self.require_trial_allowed, trial, server)
                response, _, _ = await self._sending.send_upstream_call_once(
                    own, own.message.raw, None, recheck, with_client_capabilities_only=True
                )
                return response

        try:
            with DisconnectWatcher(wait_forever) as watcher:
                exchange = self.build_trial_exchange(trial, server, watcher)
                async with exchange.call_timeouts.enforce_timeout_during_block(seconds):
                    await self._limiter.enforce_rates_and_circuit_breaker(exchange)
                    try:
                        response = await self._limiter.run_with_circuit_breaker(exchange, send_in_own_session)
                    finally:
                        await self._cache.delete_cached_results_after_write(exchange)
        except TimeoutError:
            return fail_trial(f"The server did not answer within {seconds} seconds.", is_sent=is_sent)
        except UpstreamFailed as problem:
            return fail_trial(f"The server {problem}.", is_sent=problem.may_have_run)
        except SignalboxError as problem:
            return fail_trial(str(problem.detail), is_sent=False)
        milliseconds = (time.perf_counter() - began) * 1000
        limits = server.effective_limits_for_tool(trial.tool)
        limited = await asyncio.to_thread(build_limited_result, response, limits, NOT_STORED)
        return TrialOutcome(
            classify_response_ok_or_error(response), limited.response, upstream_ms=milliseconds
        )

    async def require_trial_allowed(self, trial: ToolTrial, server: UpstreamServer) -> None:
        """Raise where the call may not be sent after all: it had to wait for its server."""
        await self._threads.run_in_thread(actions.require_trial_allowed, trial, server)

    def build_trial_exchange(
        self, trial: ToolTrial, server: UpstreamServer, watcher: DisconnectWatcher
    ) -> Exchange:
        async def refuse_program() -> KeyIdentity:
            raise Forbidden(actions.ONLY_ADMINS)

        name = str(actions.trial_actor(trial))
        admission = Admission(
            self._auth, KeyIdentity(NO_KEY, name, frozenset()), refuse_program, self._auth.generation
        )
        meta = {
            META_VERSION: STATELESS,
            META_CLIENT: {"name": "signalbox", "version": "1"},
            META_CAPABILITIES: {},
        }
        params = {"name": trial.tool, "arguments": trial.arguments, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": CALL_ID, "method": "tools/call", "params": params}
        headers = {
            b"accept": b"application/json, text/event-stream",
            b"mcp-protocol-version": STATELESS.encode(),
            b"mcp-method": b"tools/call",
            b"mcp-name": encode_tool_name_header(trial.tool),
        }
        return Exchange(
            admission,
            f"\0{name}",  # which is no agent's: none has such a letter
            headers,
            messages.parse_mcp_message(json.dumps(body).encode()),
            server,
            ResponseStream(send_nowhere),
            watcher,
            time.perf_counter(),
            person=trial.user_id,
        )


async def wait_forever() -> Message:
    await asyncio.Event().wait()
    raise AssertionError  # nobody sets it


async def send_nowhere(_message: Message) -> None:
    return
