"""The conversation with a stdio MCP server: the official SDK speaks the protocol, over pipes that are bounded here.

The SDK's own `stdio_client` reads lines of any length, gives stderr away and leaves the children of a server
that ends by itself alone, so the process and its pipes stay ours and the SDK gets streams. Importing the SDK
takes half a second and 27 MB: only `coordinator.mcp.servers.discovery` imports this module, and only when
somebody discovers tools.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import anyio
from mcp import ClientSession, MCPError
from mcp.shared.message import SessionMessage
from mcp.types import (
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    Implementation,
    JSONRPCResponse,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from coordinator.client.message_lines import READ_BYTES, LineBudgetExceeded, MessageLines
from coordinator.errors import UnprocessableRequest
from coordinator.lib.json_bounds import replace_lone_surrogates
from coordinator.mcp.servers.tools import (
    ToolListing,
    parse_decoded_tool_listing,
    skipped_page_reason_or_empty,
)

MOST_LINES = 10_000  # each costs more to look at than its bytes say
ENDED = "The server ended before it answered."
SHOWN = 600  # of what a server says in its own words


def list_tools_of_running_server(
    process: subprocess.Popen[bytes], *, within: float, most_bytes: int
) -> ToolListing:
    """Ask a started server for its tools; return those of all its pages.

    Raises UnprocessableRequest, with the end of what the server wrote on stderr, where it refuses, breaks the
    protocol, ends, or takes too long or too many bytes. The process is left running.
    """
    assert process.stderr is not None
    stderr_tail = StderrTail(process.stderr.fileno())
    outcome = anyio.run(fetch_tools_or_timeout_error, process, stderr_tail, within, most_bytes)
    if isinstance(outcome, UnprocessableRequest):
        stderr_tail.read_stderr_and_check_open()
        raise UnprocessableRequest(f"{outcome.detail}{stderr_tail}")
    return outcome


# Refusals travel as values up to here, for the task groups on the way (one of them the SDK's) would wrap them.
async def fetch_tools_or_timeout_error(
    process: subprocess.Popen[bytes], stderr_tail: StderrTail, within: float, most_bytes: int
) -> ToolListing | UnprocessableRequest:
    outcome: ToolListing | UnprocessableRequest = UnprocessableRequest(
        f"The server did not answer within {within:g} seconds. Try again, or paste its tools/list."
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stderr_tail.collect_stderr_tail)
        with anyio.move_on_after(within):
            outcome = await list_tools_or_return_protocol_error(process, most_bytes)
        tasks.cancel_scope.cancel()
    return outcome


async def list_tools_or_return_protocol_error(
    process: subprocess.Popen[bytes], most_bytes: int
) -> ToolListing | UnprocessableRequest:
    assert process.stdin is not None
    assert process.stdout is not None
    output, server_input = (
        ServerOutput(process.stdout.fileno(), most_bytes),
        ServerInput(process.stdin.fileno()),
    )
    about = Implementation(name="signalbox", version="0.1.0")
    async with ClientSession(output, server_input, client_info=about) as session:
        try:
            await initialize_or_discover_session(session)
            return await fetch_tool_pages(session, output)
        except MCPError as problem:
            return UnprocessableRequest(
                output.ended or server_input.ended or f"The server refused: {problem.message[:SHOWN]}."
            )
        except ValidationError as problem:
            return UnprocessableRequest(
                f"The server's answer is not MCP: {describe_first_validation_error(problem)}."
            )
        except RuntimeError as problem:  # the SDK's word for a version that it does not speak
            return UnprocessableRequest(f"{str(problem)[:SHOWN]}.")


async def initialize_or_discover_session(session: ClientSession) -> None:
    """Agree on a version. `initialize` goes first: many servers end at any other first message."""
    try:
        await session.initialize()
    except MCPError as problem:
        if problem.code not in {UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND}:
            raise
        await session.discover()  # since 2026-07-28 a server may know this alone


async def fetch_tool_pages(session: ClientSession, output: ServerOutput) -> ToolListing:
    tools: list[Any] = []
    earlier_pages: set[str] = set()  # a tool that is on two pages alike is one
    cursors: list[str] = []
    while True:
        params = PaginatedRequestParams(cursor=cursors[-1] if cursors else None)
        page = await session.send_request(ListToolsRequest(params=params), ListToolsResult)
        texts = [json.dumps(tool, sort_keys=True) for tool in output.listed_tools]
        tools += [
            tool for tool, text in zip(output.listed_tools, texts, strict=True) if text not in earlier_pages
        ]
        earlier_pages.update(texts)
        cut_off = "" if page.next_cursor is None else skipped_page_reason_or_empty(page.next_cursor, cursors)
        if page.next_cursor is None or cut_off:
            listing = parse_decoded_tool_listing({"tools": tools, "nextCursor": page.next_cursor})
            return replace(listing, cut_off=cut_off)
        cursors.append(page.next_cursor)


def describe_first_validation_error(problem: ValidationError) -> str:
    first = problem.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:SHOWN]


class PipeStream:
    """The interface that the SDK needs in both directions. The pipes are closed by the code that opened them."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self.ended = ""  # why it goes no further

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class ServerOutput(PipeStream):
    """The messages on a server's stdout, up to a number of bytes; lines that are none are passed over.

    The SDK gets a list of tools without its tools, which are in `listed_tools` as they came: it refuses the whole list
    for one odd tool, and drops annotations that it does not know.
    """

    def __init__(self, pipe: int, most_bytes: int) -> None:
        super().__init__(pipe)
        self.listed_tools: list[Any] = []  # of the last list
        self._lines = MessageLines(max_bytes=most_bytes, max_lines=MOST_LINES)
        self._unread_lines: list[bytes] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while (line := await self.read_output_line()) is not None:
            try:
                message = jsonrpc_message_adapter.validate_json(replace_lone_surrogates(line), by_name=False)
            except ValueError:
                continue
            if isinstance(message, JSONRPCResponse) and isinstance(message.result.get("tools"), list):
                self.listed_tools, message.result["tools"] = message.result["tools"], []
            return SessionMessage(message)
        raise StopAsyncIteration

    async def receive(self) -> SessionMessage:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def read_output_line(self) -> bytes | None:
        while not self._unread_lines:
            await anyio.wait_readable(self._pipe)
            chunk = os.read(self._pipe, READ_BYTES)
            if not chunk:
                self.ended = ENDED
                return None
            try:
                self._unread_lines = self._lines.feed_chunk_and_pop_lines(chunk)
            except LineBudgetExceeded as problem:
                self.ended = f"The server wrote {problem}."
                return None
        return self._unread_lines.pop(0)


class ServerInput(PipeStream):
    """The way to a server's stdin: a message a line."""

    def __init__(self, pipe: int) -> None:
        super().__init__(pipe)
        self._turn = anyio.Lock()

    async def send(self, item: SessionMessage, /) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._turn:
            while text:
                await anyio.wait_writable(self._pipe)
                try:
                    text = text[os.write(self._pipe, text) :]
                except BlockingIOError:
                    continue  # room for less than a line that has to go in one piece
                except BrokenPipeError:
                    self.ended = ENDED
                    raise anyio.BrokenResourceError from None


class StderrTail:
    """The end of what a server writes on stderr; the rest is read and dropped, so that it never waits."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._tail = b""

    async def collect_stderr_tail(self) -> None:
        await anyio.wait_readable(self._pipe)
        while self.read_stderr_and_check_open():
            await anyio.wait_readable(self._pipe)

    def read_stderr_and_check_open(self) -> bool:
        """Take what is there now; False at the end."""
        try:
            chunk = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return True
        self._tail = (self._tail + chunk)[-SHOWN:]
        return bool(chunk)

    def __str__(self) -> str:
        text = self._tail.decode(errors="replace").strip()
        return f" It said: {text}" if text else ""
