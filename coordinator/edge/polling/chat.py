"""`GET /api/chat/{agent_id}/messages/wait`: held until somebody says something to the agent."""

from __future__ import annotations

import functools
from typing import Any
from urllib.parse import parse_qs

from django.utils import timezone

from coordinator.actions.chat import chat as actions
from coordinator.actions.policy import agent_power
from coordinator.api.chat import can_read_chat_secrets, find_wait_start_position, require_chat_thread_access
from coordinator.chat import reading as chat
from coordinator.chat.reading import MessagePosition
from coordinator.edge.http.auth import Authenticator
from coordinator.edge.http.messages import get_request_headers, send_json
from coordinator.edge.polling.endpoints import get_seconds_query_parameter
from coordinator.edge.polling.waits import DisconnectWatcher, LongPollWaiters
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.scopes import SPEAK_AS_AGENTS
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads

TIMEOUT = 30.0  # seconds a wait is held where the caller does not say
LONGEST = 600.0


class ChatEndpoint:
    """The endpoint behind which agents wait for messages."""

    def __init__(self, auth: Authenticator, waits: LongPollWaiters, threads: EdgeThreads) -> None:
        self._auth = auth
        self._waits = waits
        self._threads = threads

    async def wait_for_chat_messages(self, agent_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 200 with what is new after `after`, oldest first, or with nothing after the timeout.

        The answer's `after` is where to go on: an agent that always asks with it misses nothing, whatever
        restarts in between.
        """
        admission = await self._auth.admit_api_key_caller(scope, get_request_headers(scope))
        require_chat_thread_access(admission.caller, agent_id)
        timeout = get_seconds_query_parameter(scope, "timeout", default=TIMEOUT, most=LONGEST)
        query = parse_qs(scope["query_string"].decode("latin-1"), encoding="utf-8")
        position = await self._threads.run_in_thread(
            begin_wait_and_record_reading, admission.caller, agent_id, query.get("after", [None])[-1]
        )
        with (
            self._waits.poll_limit.reserve_slot_during_block(admission.caller.name),
            DisconnectWatcher(receive) as disconnect_watcher,
        ):
            answer: dict[str, Any] | None = await self._waits.wait_until(
                functools.partial(
                    chat.unanswered_messages_json_or_none,
                    agent_id,
                    position,
                    with_secrets=can_read_chat_secrets(admission.caller),
                ),
                topics=[f"chat_messages:{agent_id}"],
                timeout=timeout,
                still_allowed=admission.require_still_allowed,
                disconnect=disconnect_watcher,
            )
        if not disconnect_watcher.happened:
            await admission.require_still_allowed()
            if answer and can_key_speak_as_agent(admission.caller, agent_id):
                sent_to = chat.parse_message_position(answer["after"])
                await self._threads.run_in_thread(actions.mark_messages_sent_to_agent, agent_id, sent_to)
            await send_json(send, 200, answer or {"messages": [], "after": str(position)})


def begin_wait_and_record_reading(caller: KeyIdentity, agent_id: str, after: str | None) -> MessagePosition:
    position = find_wait_start_position(agent_id, after)
    if can_key_speak_as_agent(caller, agent_id):
        agent_power.refresh_agent_last_seen(agent_id, timezone.now())
        actions.mark_messages_read_by_agent(agent_id, position)
    return position


def can_key_speak_as_agent(caller: KeyIdentity, agent_id: str) -> bool:
    return agent_id in caller.bound_agents and bool(caller.scopes & SPEAK_AS_AGENTS)
