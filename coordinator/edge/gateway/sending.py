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

from coordinator.client.mcp_methods import META_CAPABILITIES, META_CLIENT, META_VERSION
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.line import Line
from coordinator.edge.gateway.links import Links
from coordinator.edge.gateway.resuming import Resuming
from coordinator.edge.gateway.server_tasks import ServerTasks
from coordinator.edge.gateway.upstreams import BOTH, Forgotten, Upstreams, call_response, own_response
from coordinator.gateway import answers, sse
from coordinator.gateway.http_client import Look

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Sending:
    """One a process."""

    def __init__(self, upstreams: Upstreams, links: Links, tasks: ServerTasks) -> None:
        self._upstreams = upstreams
        self._tasks = tasks
        self._links = links
        self._resuming = Resuming(upstreams)

    async def call(
        self, x: Exchange, body: bytes, line: Line | None, look: Look
    ) -> tuple[bytes, bytes | None, int]:
        """Send a call that may run, and what its server tells before the response to the line.

        Returns the response, the event in which it came if in one, and the status. Nothing runs in a session that the
        server forgot, so the call is sent once more in a new one, once `look` has found that it still may. Where the
        stream ends before the response, the rest is asked for. Raises UpstreamFailed (LeftOpen where the client asks
        for the rest itself), SessionOver, and what `look` raises.
        """
        try:
            answer = await self._call(x, body, line, look)
        except Forgotten:
            await self._links.renew(x)
            await look()
            answer = await self._call(x, body, line, look)
        await self._tasks.note(x, answer[0])
        return answer

    async def _call(
        self, x: Exchange, body: bytes, line: Line | None, look: Look
    ) -> tuple[bytes, bytes | None, int]:
        ids = _Ids.of(x)
        answer = await self._upstreams.send_call(
            x, ids.sent(body) if ids else body, session=_session(x), look=look
        )
        follow = functools.partial(self._resuming.rest, x)
        try:
            if ids is None:
                response, event = await call_response(answer, x, line, follow=follow)
            else:
                response, event = await call_response(
                    answer, x, line, follow=follow, number=ids.number, transform=ids.answered, told=ids.told
                )
            return response, event, answer.status
        finally:
            answer.close()

    async def ask(self, x: Exchange, method: str, params: dict[str, Any]) -> bytes:
        """Return the response to a question of ours in the client's place. Raises UpstreamFailed, SessionOver."""
        try:
            return await self._ask(x, method, params)
        except Forgotten:
            await self._links.renew(x)
            return await self._ask(x, method, params)

    async def _ask(self, x: Exchange, method: str, params: dict[str, Any]) -> bytes:
        headers = [BOTH, ("Content-Type", "application/json")]
        if x.client is None:
            names = (META_VERSION, META_CLIENT, META_CAPABILITIES)
            params = params | {
                "_meta": {name: x.message.meta[name] for name in names if name in x.message.meta}
            }
            headers += [("Mcp-Protocol-Version", x.message.version or ""), ("Mcp-Method", method)]
        else:
            link = x.client.links.get(x.server.name)
            headers.append(
                ("Mcp-Protocol-Version", link.protocol_version if link else x.client.protocol_version)
            )
        number = _unique()
        body = answers.request(number, method, params)
        answer = await self._upstreams.ask(x.server, headers, body, session=_session(x), caller=x.agent_id)
        try:
            return await own_response(answer, number)
        finally:
            answer.close()


@dataclass(frozen=True, slots=True)
class _Ids:
    """A call's id in the session that its client shares with others, and the client's own id and progress token."""

    number: str
    own: Any
    token: Any

    @classmethod
    def of(cls, x: Exchange) -> _Ids | None:
        """Return new ids for a call; None where its client has the session for itself, or there is none."""
        if x.client is None or not x.message.is_stateless:
            return None
        return cls(_unique(), x.message.id, x.message.progress_token)

    def sent(self, body: bytes) -> bytes:
        """Return a call as its server gets it."""
        fields = _fields(body) | {"id": _raw(self.number)}
        if self.token is not None:
            params = _fields(fields["params"])
            meta = _fields(params["_meta"]) | {"progressToken": _raw(self.number)}
            fields["params"] = _raw(params | {"_meta": _raw(meta)})
        return _encode(fields)

    async def answered(self, response: bytes) -> bytes:
        """Return the response as its client gets it."""
        return _encode(_fields(response) | {"id": _raw(self.own)})

    def told(self, event: bytes) -> bytes:
        """Return what comes before the response as its client gets it: progress under the client's own token."""
        data = sse.data_of(event)
        if self.token is None or self.number.encode() not in data:
            return event
        try:
            fields = _fields(data)
            params = _fields(fields["params"])
            if msgspec.json.decode(params["progressToken"]) != self.number:
                return event
        except (msgspec.MsgspecError, KeyError):
            return event
        params["progressToken"] = _raw(self.token)
        return sse.with_data(event, _encode(fields | {"params": _raw(params)}))


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _unique() -> str:
    return f"signalbox-{uuid.uuid4().hex}"


def _session(x: Exchange) -> str | None:
    link = x.client.links.get(x.server.name) if x.client else None
    return link.upstream_session if link else None
