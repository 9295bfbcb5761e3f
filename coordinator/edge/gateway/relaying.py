"""What is passed on to one server and back: requests that we need not understand, notifications, the beginning."""

from __future__ import annotations

from typing import Any

import msgspec

from coordinator.edge.gateway.clients import Clients
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.instant import Instant
from coordinator.edge.gateway.links import Links
from coordinator.edge.gateway.listings import Listings
from coordinator.edge.gateway.refusals import Refusals
from coordinator.edge.gateway.upstreams import (
    Forgotten,
    LeftOpen,
    Upstreams,
    body_of,
    call_response,
    finish,
    response_of,
)
from coordinator.errors import Forbidden
from coordinator.gateway import answers
from coordinator.gateway.http_client import Look, UpstreamAnswer
from coordinator.gateway.messages import BRAKED, INTERNAL, TASKS
from coordinator.policy.brakes import Braked

# Requests that pass a brake: what there is, what is new, and what becomes of a call that runs, or is to run no more.
PASS_A_BRAKE = frozenset(
    {
        "ping",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "server/discover",
        "subscriptions/listen",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tools/list",
    }
)


class HeldByBrake(Exception):
    """A brake is on for the agent."""

    def __init__(self, brake: Braked) -> None:
        super().__init__(brake.words)
        self.brake = brake


class Relaying:
    """One a process."""

    def __init__(
        self,
        upstreams: Upstreams,
        clients: Clients,
        links: Links,
        listings: Listings,
        *,
        instant: Instant,
        refusals: Refusals,
    ) -> None:
        self._upstreams = upstreams
        self._clients = clients
        self._links = links
        self._listings = listings
        self._instant = instant
        self._refusals = refusals

    async def relay(self, x: Exchange, change: Any) -> None:
        """Pass a request on, and its answer back; nothing that reads or does something while a brake is on."""
        try:
            await self.pass_on(x, change)
        except HeldByBrake as stopped:
            await self.refuse_for_brake(x, stopped)

    async def pass_on(self, x: Exchange, change: Any) -> bytes | None:
        """Pass a request on, and its answer back, as `relay` does; return the answer, None where it comes elsewhere.

        Raises HeldByBrake.
        """
        if x.message.method in PASS_A_BRAKE:
            return await self._relay(x, change, None)

        async def look() -> None:
            await self._require_no_brake(x)

        await look()
        return await self._relay(x, change, look)

    async def refuse_for_brake(self, x: Exchange, stopped: HeldByBrake) -> bytes:
        """Answer that a brake stops a request, and have that audited; return the answer."""
        words = f"{x.message.method} was not sent to the server {x.server.name}. {stopped}"
        await self._refusals.note(x.admission, x.agent_id, x.server.name, Forbidden(words), known=True)
        response = answers.error(x.message.id, BRAKED, words)
        await x.line.answer(response)
        return response

    async def _require_no_brake(self, x: Exchange) -> None:
        """Raise HeldByBrake where a brake is on for the agent at this instant."""
        _, brake = await self._instant.look(x.known_as)
        if brake is not None:
            raise HeldByBrake(brake)

    async def _relay(self, x: Exchange, change: Any, look: Look | None) -> bytes | None:
        async def changed(body: bytes) -> bytes:
            found: bytes = await change(x, body)
            return found

        answer = await self._sent(x, look)
        try:
            response, event = await response_of(
                answer, x.message.id, x.line, transform=changed if change else None
            )
        except LeftOpen as left:
            if not left.by_server:
                raise
            await x.line.end()  # its client asks the server for the rest
            return None
        finally:
            answer.close()
        await finish(x.line, response, event, answer.status)
        return response

    async def _sent(self, x: Exchange, look: Look | None = None) -> UpstreamAnswer:
        """Send a message on; return the answer. Raises UpstreamFailed, SessionOver, and what `look` raises."""
        link = x.client.links.get(x.server.name) if x.client else None
        session = link.upstream_session if link else None
        try:
            if look is not None:
                return await self._upstreams.send_call(x, x.message.raw, session=session, look=look)
            return await self._upstreams.send(x, x.message.raw, session=session)
        except Forgotten:
            raise await self._links.over(x) from None

    async def send_on(self, x: Exchange) -> None:
        """Pass on a notification, or the response to a request of the server's."""
        answer = await self._sent(x)
        try:
            if answer.status in {200, 202, 204}:
                await x.line.empty(202)
                return
            body = await body_of(answer, 64 * 1024)
            await x.line.answer(
                body or answers.error(None, INTERNAL, "The server refused the message."), answer.status
            )
        finally:
            answer.close()

    async def initialize(self, x: Exchange) -> None:
        """Begin a session: the server's own, and one of ours around it."""
        answer = await self._upstreams.send(x, x.message.raw, session=None)
        try:
            response, _ = await call_response(answer, x, None)
        finally:
            answer.close()
        version = _version_in(response)
        if version is not None:
            client = await self._clients.begin(
                x.server.name,
                key_id=x.key.id,
                agent_id=x.agent_id,
                version=version,
                params=x.message.params,
            )
            client = await self._clients.link(
                client, x.server.name, answer.headers.get("mcp-session-id"), version
            )
            x.line.extra.append((b"mcp-session-id", client.session_id.encode()))
        await x.line.answer(response, answer.status)

    async def discovered(self, x: Exchange, body: bytes) -> bytes:
        """Return what a server says of itself, with our tasks where a call of this agent may have to wait."""
        if not await self._listings.may_ask(x):
            return body
        try:
            value = msgspec.json.decode(body)
            extensions = value["result"]["capabilities"].setdefault("extensions", {})
            extensions.setdefault(TASKS, {})
            return msgspec.json.encode(value)
        except (msgspec.MsgspecError, KeyError, AttributeError, TypeError):
            return body


def _version_in(response: bytes) -> str | None:
    try:
        found = msgspec.json.decode(response)["result"]["protocolVersion"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None
