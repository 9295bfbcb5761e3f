"""The conforming server, on the official package's low level: sessions of 2025, and messages of 2026-07-28 without one.

Its results are written as they go on the wire.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from tests.gateway.conforming.questions import A_TEXT, IMAGE, Context, Json, an_object, form, needs
from tests.gateway.conforming.tasks import Tasks
from tests.gateway.conforming.tools import Tools
from tests.gateway.example_server import PIXEL, serving

TEXT = "This is the content of the static text resource."


class Conforming(Tools):
    """Every handler of the server; one for all of its clients."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = Tasks()
        self.tools |= {name: ({"type": "object"}, tool) for name, tool in self.tasks.tools.items()}

    async def list_tools(self, ctx: Context, params: Any) -> Json:
        return {
            "tools": [
                {"name": name, "description": f"For {name}.", "inputSchema": schema}
                for name, (schema, _) in self.tools.items()
            ]
        }

    async def call_tool(self, ctx: Context, params: Any) -> Json:
        if params.name not in self.tools:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await self.tools[params.name][1](ctx, params.arguments or {})

    async def list_resources(self, ctx: Context, params: Any) -> Json:
        kinds = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
        return {
            "resources": [
                {"uri": f"test://{name}", "name": name, "description": f"The {name}.", "mimeType": kind}
                for name, kind in kinds.items()
            ]
        }

    async def list_templates(self, ctx: Context, params: Any) -> Json:
        about = {"name": "template", "description": "Data by id.", "mimeType": "application/json"}
        return {"resourceTemplates": [{"uriTemplate": "test://template/{id}/data"} | about]}

    async def read_resource(self, ctx: Context, params: Any) -> Json:
        uri = str(params.uri)
        if uri == "test://static-binary":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL}]}
        if uri in {"test://static-text", "test://watched-resource"}:
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": TEXT}]}
        if uri.startswith("test://template/") and uri.endswith("/data"):
            number = uri.split("/")[3]
            data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]}
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})

    async def nothing(self, ctx: Context, params: Any) -> Json:
        return {}

    async def list_prompts(self, ctx: Context, params: Any) -> Json:
        named = {
            "test_simple_prompt": (),
            "test_prompt_with_arguments": ("arg1", "arg2"),
            "test_prompt_with_embedded_resource": ("resourceUri",),
            "test_prompt_with_image": (),
            "test_input_required_result_prompt": (),
        }
        return {
            "prompts": [
                {
                    "name": name,
                    "description": f"For {name}.",
                    "arguments": [{"name": one, "description": one, "required": True} for one in arguments],
                }
                for name, arguments in named.items()
            ]
        }

    async def get_prompt(self, ctx: Context, params: Any) -> Json:
        given = params.arguments or {}
        said: list[Json] = []
        words = "This is a simple prompt for testing."
        if params.name == "test_prompt_with_arguments":
            words = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
        elif params.name == "test_prompt_with_embedded_resource":
            held = {"uri": given.get("resourceUri"), "mimeType": "text/plain"}
            said = [
                {"type": "resource", "resource": held | {"text": "Embedded resource content for testing."}}
            ]
            words = "Please process the embedded resource above."
        elif params.name == "test_prompt_with_image":
            said, words = [IMAGE], "Please analyze the image above."
        elif params.name == "test_input_required_result_prompt":
            context = an_object(context=A_TEXT)
            more = needs(ctx, user_context=form("What context should the prompt use?", context))
            if more:
                return more
        elif params.name != "test_simple_prompt":
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        said.append({"type": "text", "text": words})
        return {"messages": [{"role": "user", "content": one} for one in said]}

    async def complete(self, ctx: Context, params: Any) -> Json:
        return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}


class Events(EventStore):
    """What was told, so that a client whose stream was closed hears the rest of it."""

    def __init__(self) -> None:
        self._told: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._told.append((stream_id, message))
        return str(len(self._told))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        place = int(last_event_id)
        stream = self._told[place - 1][0]
        for number, (of, message) in enumerate(self._told[place:], place + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def as_of_the_era(handler: Callable[[Context, Any], Awaitable[Json]]) -> Any:
    """Return the handler, whose results say what they are where the message is one of 2026."""

    async def handle(ctx: Context, params: Any) -> Json:
        result = await handler(ctx, params)
        return {"resultType": "complete"} | result if ctx.protocol_version >= "2026" else result

    return handle


def build() -> Server[Any]:
    """Return the server."""
    one = Conforming()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        server: Server[Any] = Server(
            "conforming",
            version="1.0.0",
            cache_hints={
                method: CacheHint(1_000, "public")
                for method in (
                    "tools/list",
                    "prompts/list",
                    "resources/list",
                    "resources/templates/list",
                    "resources/read",
                )
            },
            on_list_tools=as_of_the_era(one.list_tools),
            on_call_tool=as_of_the_era(one.call_tool),
            on_list_resources=as_of_the_era(one.list_resources),
            on_list_resource_templates=as_of_the_era(one.list_templates),
            on_read_resource=as_of_the_era(one.read_resource),
            on_subscribe_resource=as_of_the_era(one.nothing),
            on_unsubscribe_resource=as_of_the_era(one.nothing),
            on_subscriptions_listen=ListenHandler(one.bus),
            on_list_prompts=as_of_the_era(one.list_prompts),
            on_get_prompt=as_of_the_era(one.get_prompt),
            on_completion=as_of_the_era(one.complete),
            on_set_logging_level=as_of_the_era(one.nothing),
        )
    one.tasks.join(server)
    server.middleware.append(
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="conforming")
    )
    return server


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Serve it in a thread for the length of the block; yields its address."""
    with serving(build().streamable_http_app(event_store=Events(), retry_interval=100)) as url:
        yield url
