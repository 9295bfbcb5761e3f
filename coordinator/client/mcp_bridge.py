"""Signalbox's MCP gateway on stdin and stdout, for agents whose settings cannot name a key without holding it.

It adds nothing of its own but the key, which stays in Signalbox's own file, and the session that a runner started the
agent in. Each message goes to the gateway as it came, and so does what comes back.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from coordinator.client import mcp_lines, settings, sse
from coordinator.client.connection import ServerAddress, find_environment_proxy
from coordinator.client.message_lines import MAX_LINE_BYTES, LineBudgetExceeded, iterate_pipe_lines
from coordinator.client.settings import NotConnected

SILENT_FOR = 60.0  # seconds without a sign of life after which the gateway counts as gone
UNREACHED_FOR = 30.0  # seconds for which a gateway that cannot be reached is tried
SERVER_AWAY_FOR = 5.0  # … and for which one is that says itself that the server behind it cannot be
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
CONNECTION, SESSION, NOT_SENT = -32000, "Mcp-Session-Id", "X-Signalbox-Not-Sent"
READ_BYTES = 1 << 16  # of a stream of events at once, as they come
INITIALIZED = "notifications/initialized"
RETRY_STATUSES = frozenset({429, 502, 503, 504})
LOST = "No answer says how the call ended ({}), so it may have run. Check whether it did before you call it again."


class GatewayRequestFailed(Exception):
    """There is no answer; says why. `sent`: the request may have arrived. `answer_body`: the gateway's own answer."""

    def __init__(self, text: str, *, sent: bool = False, answer_body: bytes | None = None) -> None:
        super().__init__(text)
        self.sent = sent
        self.answer_body = answer_body


class GatewayBridge:
    """One agent on stdin and stdout, the gateway behind."""

    def __init__(self, server: str | None) -> None:
        self._path = "/mcp" if server is None else f"/mcp/{quote(server, safe='')}"
        self._session: str | None = None
        self._version: str | None = None
        self._greeting: tuple[dict[str, Any], bytes] | None = None  # the agent's `initialize`
        self._is_greeted = False  # … and whether it confirmed that it received the answer
        self._beginning = threading.Lock()

    def relay_until_stdin_closes_and_exit(self) -> int:
        """Pass on what both say until stdin ends."""
        try:
            self.relay_agent_messages()
        except LineBudgetExceeded as problem:
            sys.stderr.write(f"The agent wrote {problem}.\n")
        sys.stdout.flush()
        os._exit(0)

    def relay_agent_messages(self) -> None:
        waiting: list[threading.Thread] = []
        for line in iterate_pipe_lines(sys.stdin.buffer):
            try:
                message = mcp_lines.parse_mcp_line(line)
            except mcp_lines.AmbiguousMessage as problem:
                mcp_lines.send_jsonrpc_error(problem.number, mcp_lines.INVALID_REQUEST, str(problem))
                continue
            if message.get("method") == "initialize":
                self.relay_agent_message(message, line)  # nothing may overtake it
                continue
            thread = threading.Thread(target=self.relay_agent_message, args=(message, line), daemon=True)
            thread.start()
            waiting = [one for one in waiting if one.is_alive()]
            waiting.append(thread)
            if message.get("id") is None:
                thread.join(SILENT_FOR)  # notifications keep their order

    def relay_agent_message(self, message: dict[str, Any], line: bytes) -> None:
        number, method = message.get("id"), message.get("method")
        try:
            for data in self.send_and_iterate_gateway_answers(message, line):
                mcp_lines.write_stdout_line(data)
        except GatewayRequestFailed as problem:
            if number is None or method is None:
                return
            if method == "tools/call":
                mcp_lines.send_refused_tool_result(
                    number, LOST.format(problem) if problem.sent else f"The call did not run: {problem}"
                )
            else:
                mcp_lines.send_jsonrpc_error(number, CONNECTION, str(problem))
            return
        if method == INITIALIZED:
            self._is_greeted = True
            threading.Thread(target=self.relay_server_messages, daemon=True).start()

    def send_and_iterate_gateway_answers(self, message: dict[str, Any], line: bytes) -> Iterator[bytes]:
        """Yield the messages that answer one. Raises GatewayRequestFailed."""
        first, pause = time.monotonic(), FIRST_PAUSE
        is_new_session = message.get("method") == "initialize"
        if is_new_session:
            self._greeting, self._is_greeted, self._session = (message, line), False, None
        while True:
            session = self._session
            try:
                connection, answer = self._open_gateway_connection_and_response(
                    "POST", line, message, session
                )
                # Nothing has run where the gateway does not know the session: it is sent once more in a new one.
                if (
                    answer.status != 404
                    or session is None
                    or is_new_session
                    or not self._try_renew_gateway_session(session)
                ):
                    break
                connection.close()
                is_new_session = True
            except GatewayRequestFailed as problem:
                again = not problem.sent or message.get("method") != "tools/call"
                patience = UNREACHED_FOR if problem.answer_body is None else SERVER_AWAY_FOR
                if not again or time.monotonic() - first > patience:
                    if problem.answer_body is None or message.get("id") is None:
                        raise
                    yield join_message_lines(problem.answer_body)
                    return
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        with contextlib.closing(connection):
            yield from self._iterate_gateway_answer_messages(message, answer)

    def _iterate_gateway_answer_messages(
        self, message: dict[str, Any], answer: http.client.HTTPResponse
    ) -> Iterator[bytes]:
        body = b""
        try:
            if answer.getheader("Content-Type", "").startswith("text/event-stream"):
                yield from iterate_event_data(answer)
                return
            body = answer.read()
        except (OSError, http.client.HTTPException):
            raise GatewayRequestFailed("it broke off before its answer", sent=True) from None
        if answer.status >= 300 and not is_jsonrpc_body(body):
            was_received = answer.status >= 500 and answer.getheader(NOT_SENT) is None
            raise GatewayRequestFailed(
                f"Signalbox refuses ({answer.status}{gateway_error_detail(body)})", sent=was_received
            )
        if message.get("method") == "initialize":
            self._save_gateway_session(answer, body)
        if body.strip():
            yield join_message_lines(body)

    def _try_renew_gateway_session(self, session: str) -> bool:
        """Begin another session in place of one that is over, as the agent began it; False where that is refused.

        Raises GatewayRequestFailed where it cannot be asked for.
        """
        with self._beginning:
            if self._session != session or self._greeting is None:
                return self._session is not None  # somebody was faster
            message, line = self._greeting
            try:
                connection, answer = self._open_gateway_connection_and_response("POST", line, message, None)
                with contextlib.closing(connection):
                    body = answer.read()
            except GatewayRequestFailed as problem:
                raise GatewayRequestFailed(
                    str(problem)
                ) from None  # what it received is no answer to anything that the agent asks
            except (OSError, http.client.HTTPException):
                raise GatewayRequestFailed("it broke off before a new session had begun") from None
            if answer.getheader(SESSION) is None:
                return False
            self._save_gateway_session(answer, body)
            if self._is_greeted:
                greeted = {"jsonrpc": "2.0", "method": INITIALIZED}
                self._open_gateway_connection_and_response(
                    "POST", json.dumps(greeted).encode(), greeted, self._session
                )[0].close()
            return True

    def _save_gateway_session(self, answer: http.client.HTTPResponse, body: bytes) -> None:
        self._session = answer.getheader(SESSION)
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            self._version = json.loads(body)["result"]["protocolVersion"]

    def relay_server_messages(self) -> None:
        """Pass on what the gateway says unasked, for as long as it offers that."""
        pause = FIRST_PAUSE
        while (session := self._session) is not None:
            try:
                connection, answer = self._open_gateway_connection_and_response("GET", b"", {}, session)
                with contextlib.closing(connection):
                    if answer.status != 200 and not (
                        answer.status == 404 and self._try_renew_gateway_session(session)
                    ):
                        return
                    pause = FIRST_PAUSE
                    for data in iterate_event_data(answer):
                        mcp_lines.write_stdout_line(data)
            except (GatewayRequestFailed, OSError, http.client.HTTPException):
                pass
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _open_gateway_connection_and_response(
        self, method: str, line: bytes, message: dict[str, Any], session: str | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request; return its answer as soon as it begins. Raises GatewayRequestFailed."""
        try:
            client_settings = settings.resolve_client_settings()
            connection, target = build_gateway_connection_and_target(client_settings.url, self._path)
        except (NotConnected, ValueError, OSError) as problem:
            raise GatewayRequestFailed(str(problem)) from None
        was_sent = False
        try:
            connection.connect()
            was_sent = True
            body = line.strip() if method == "POST" else None
            connection.request(
                method, target, body, self.build_gateway_headers(client_settings.key, message, session)
            )
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as problem:
            connection.close()
            explanation = (
                f"{client_settings.url} cannot be reached ({getattr(problem, 'strerror', None) or problem})"
            )
            raise GatewayRequestFailed(explanation, sent=was_sent) from None
        is_call = message.get("method") == "tools/call"
        # A call is sent again on Signalbox's own word alone: other statuses may follow a call that ran.
        if answer.status in RETRY_STATUSES and not (is_call and answer.getheader(NOT_SENT) is None):
            body = b""
            with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                body = answer.read(MAX_LINE_BYTES)
            explanation = f"Signalbox is not ready ({answer.status}{gateway_error_detail(body)})"
            raise GatewayRequestFailed(explanation, answer_body=body if is_jsonrpc_body(body) else None)
        return connection, answer

    def build_gateway_headers(self, key: str, message: dict[str, Any], session: str | None) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        if agent_id := os.environ.get("SIGNALBOX_AGENT"):
            headers["X-Signalbox-Agent"] = agent_id
        if started_in := os.environ.get("SIGNALBOX_SESSION"):
            headers["X-Signalbox-Session"] = started_in
        if session is not None:
            headers[SESSION] = session
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        stateless = meta.get("io.modelcontextprotocol/protocolVersion") if isinstance(meta, dict) else None
        if isinstance(stateless, str):
            headers |= stateless_message_headers(message, stateless)
        elif self._version is not None:
            headers["MCP-Protocol-Version"] = self._version
        return headers


def stateless_message_headers(message: dict[str, Any], version: str) -> dict[str, str]:
    """Return the headers that must equal a stateless message's body."""
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": str(message.get("method", ""))}
    params = message.get("params")
    for name in ("name", "uri", "taskId"):
        value = params.get(name) if isinstance(params, dict) else None
        if isinstance(value, str) and message.get("method") in _NAMED.get(name, ()):
            headers["Mcp-Name"] = encode_mcp_header(value)
    return headers


_NAMED = {
    "name": {"tools/call", "prompts/get"},
    "uri": {"resources/read"},
    "taskId": {"tasks/get", "tasks/update", "tasks/cancel"},
}


def encode_mcp_header(value: str) -> str:
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?"):
        return value
    import base64  # noqa: PLC0415 - hardly ever

    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def build_gateway_connection_and_target(url: str, path: str) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection, not made yet, and what to ask for on it. Raises ValueError, OSError."""
    address = ServerAddress(url)
    proxy, target = find_environment_proxy(address), address.path + path
    socket_address = (proxy or address).socket_addresses()[0]
    if address.scheme == "https":
        secure = http.client.HTTPSConnection(
            *socket_address, timeout=SILENT_FOR, context=ssl.create_default_context()
        )
        if proxy is not None:
            secure.set_tunnel(address.host, address.port)
        return secure, target
    connection = http.client.HTTPConnection(*socket_address, timeout=SILENT_FOR)
    return connection, f"http://{address.netloc}{target}" if proxy is not None else target


def iterate_event_data(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the messages of a stream of events, each on one line. Raises HTTPException where one is too long."""
    events = sse.EventSplitter(MAX_LINE_BYTES)
    while piece := answer.read1(READ_BYTES):
        try:
            event_blocks = events.feed(piece)
        except sse.EventTooLong as problem:
            raise http.client.HTTPException(str(problem)) from None
        for event in event_blocks:
            data = join_message_lines(sse.extract_event_data_or_empty(event))
            if data.strip():
                yield data


def join_message_lines(message: bytes) -> bytes:
    return message.replace(b"\r", b" ").replace(b"\n", b" ")


def is_jsonrpc_body(body: bytes) -> bool:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "jsonrpc" in value


def gateway_error_detail(body: bytes) -> str:
    try:
        detail = json.loads(body).get("detail")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return f": {detail}" if isinstance(detail, str) else ""
