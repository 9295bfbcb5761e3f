"""Calls, and questions of our own, on their way to a server and back, in whichever session the server knows.

Stateless clients of one caller share a session with a server of an older version. Their messages go there under ids
of ours, and come back under their own: each client counts for itself.
"""

from __future__ import annotations

import functools
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from coordinator.client import sse
from coordinator.client.mcp_methods import META_CAPABILITIES, META_CLIENT, META_VERSION
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.resumption import ResponseResumer
from coordinator.edge.gateway.server_tasks import ServerTasks
from coordinator.edge.gateway.upstream_sessions import UpstreamSessions
from coordinator.edge.gateway.upstreams import (
    BOTH,
    UpstreamClient,
    UpstreamSessionForgotten,
    read_call_response,
    read_own_response,
)
from coordinator.mcp.gateway import answers
from coordinator.mcp.protocol.http_client import Look

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class UpstreamSender:
    """One a process."""

    def __init__(self, upstreams: UpstreamClient, links: UpstreamSessions, tasks: ServerTasks) -> None:
        self._upstreams = upstreams
        self._tasks = tasks
        self._links = links
        self._resuming = ResponseResumer(upstreams)

    async def send_upstream_call(
        self, x: Exchange, body: bytes, line: ResponseStream | None, look: Look
    ) -> tuple[bytes, bytes | None, int]:
        """Send a call that may run, and what its server tells before the response to the line.

        Returns the response, the event in which it came if in one, and the status. Nothing runs in a session that the
        server forgot, so the call is sent once more in a new one, once `look` has found that it still may. Where the
        stream ends before the response, the rest is asked for. Raises UpstreamFailed (LeftOpen where the client asks
        for the rest itself), SessionOver, and what `look` raises.
        """
        try:
            answer = await self.try_upstream_call(x, body, line, look)
        except UpstreamSessionForgotten:
            await self._links.renew_upstream_session(x)
            await look()
            answer = await self.try_upstream_call(x, body, line, look)
        await self._tasks.record_task_owner(x, answer[0])
        return answer

    async def try_upstream_call(
        self, x: Exchange, body: bytes, line: ResponseStream | None, look: Look
    ) -> tuple[bytes, bytes | None, int]:
        ids = SharedCallIds.create_call_ids(x)
        answer = await self._upstreams.send_call_when_ready(
            x, ids.set_call_ids(body) if ids else body, session=find_upstream_session(x), look=look
        )
        follow = functools.partial(self._resuming.fetch_remaining_response, x)
        try:
            if ids is None:
                response, event = await read_call_response(answer, x, line, follow=follow)
            else:
                response, event = await read_call_response(
                    answer,
                    x,
                    line,
                    follow=follow,
                    number=ids.number,
                    transform=ids.restore_response_id,
                    told=ids.restore_progress_token,
                )
            return response, event, answer.status
        finally:
            answer.close()

    async def send_own_request(self, x: Exchange, method: str, params: dict[str, Any]) -> bytes:
        """Return the response to a question of ours in the client's place. Raises UpstreamFailed, SessionOver."""
        try:
            return await self.try_own_request(x, method, params)
        except UpstreamSessionForgotten:
            await self._links.renew_upstream_session(x)
            return await self.try_own_request(x, method, params)

    async def try_own_request(self, x: Exchange, method: str, params: dict[str, Any]) -> bytes:
        headers = [BOTH, ("Content-Type", "application/json")]
        if x.client is None:
            names = (META_VERSION, META_CLIENT, META_CAPABILITIES)
            params = params | {
                "_meta": {name: x.message.meta[name] for name in names if name in x.message.meta}
            }
            headers += [("Mcp-Protocol-Version", x.message.protocol_version or ""), ("Mcp-Method", method)]
        else:
            link = x.client.links.get(x.server.name)
            headers.append(
                ("Mcp-Protocol-Version", link.protocol_version if link else x.client.protocol_version)
            )
        number = create_request_id()
        body = answers.build_json_rpc_request(number, method, params)
        answer = await self._upstreams.send_to_server(
            x.server, headers, body, session=find_upstream_session(x), caller=x.agent_id
        )
        try:
            return await read_own_response(answer, number)
        finally:
            answer.close()


@dataclass(frozen=True, slots=True)
class SharedCallIds:
    """A call's id in the session that its client shares with others, and the client's own id and progress token."""

    number: str
    own: Any
    token: Any

    @classmethod
    def create_call_ids(cls, x: Exchange) -> SharedCallIds | None:
        """Return new ids for a call; None where its client has the session for itself, or there is none."""
        if x.client is None or not x.message.is_stateless:
            return None
        return cls(create_request_id(), x.message.id, x.message.progress_token)

    def set_call_ids(self, body: bytes) -> bytes:
        """Return a call as its server gets it."""
        fields = _fields(body) | {"id": encode_raw_json(self.number)}
        if self.token is not None:
            params = _fields(fields["params"])
            meta = _fields(params["_meta"]) | {"progressToken": encode_raw_json(self.number)}
            fields["params"] = encode_raw_json(params | {"_meta": encode_raw_json(meta)})
        return _encode(fields)

    async def restore_response_id(self, response: bytes) -> bytes:
        """Return the response as its client gets it."""
        return _encode(_fields(response) | {"id": encode_raw_json(self.own)})

    def restore_progress_token(self, event: bytes) -> bytes:
        """Return what comes before the response as its client gets it: progress under the client's own token."""
        data = sse.extract_event_data(event)
        if self.token is None or self.number.encode() not in data:
            return event
        try:
            fields = _fields(data)
            params = _fields(fields["params"])
            if msgspec.json.decode(params["progressToken"]) != self.number:
                return event
        except (msgspec.MsgspecError, KeyError):
            return event
        params["progressToken"] = encode_raw_json(self.token)
        return sse.replace_event_data(event, _encode(fields | {"params": encode_raw_json(params)}))


def encode_raw_json(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def create_request_id() -> str:
    return f"signalbox-{uuid.uuid4().hex}"


def find_upstream_session(x: Exchange) -> str | None:
    link = x.client.links.get(x.server.name) if x.client else None
    return link.upstream_session if link else None
