"""Requests to the server while a machine is connected: no redirects, every failure in words."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

from coordinator.client.connection import ServerAddress, replace_localhost_subdomain

ANSWER_WAIT_SECONDS = 10.0
LARGEST = 1 << 20


class ServerRequestFailed(Exception):
    """The server cannot be reached, or refused; the text says why. `status` is its answer's, 0 where none came."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class NoRedirectHandler(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to wherever it leads."""

    def redirect_request(self, *_args: Any, **_fields: Any) -> None:
        return None


def require_mcp_gateway_access(url: str, key: str) -> None:
    """Check that the MCP gateway lets the key in. Raises ServerRequestFailed."""
    about = {"name": "signalbox-connect", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = send_server_request(url, "/mcp", key, body, accept="application/json, text/event-stream")
    if b'"protocolVersion"' not in answer:
        raise ServerRequestFailed(f"{url}/mcp is not an MCP server: it answered something else.")


def send_server_request(
    url: str, path: str, key: str = "", body: Any = None, *, accept: str = "application/json"
) -> bytes:
    """Return the body of the answer to a GET, or to a POST of `body` as JSON. Raises ServerRequestFailed."""
    headers = {"Accept": accept, "User-Agent": "signalbox-connect"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None
    if body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    request = urllib.request.Request(url + path, data=data, headers=headers)  # noqa: S310 - http or https, see address()
    try:
        with build_url_opener(url).open(request, timeout=ANSWER_WAIT_SECONDS) as answer:
            return bytes(answer.read(LARGEST))
    except urllib.error.HTTPError as refusal:
        with refusal:
            raise ServerRequestFailed(describe_http_error(refusal), refusal.code) from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as problem:
        failure_reason = getattr(problem, "reason", None) or problem
        raise ServerRequestFailed(
            f"{url} does not answer: {failure_reason}. Is Signalbox running there?"
        ) from None


def build_url_opener(url: str) -> urllib.request.OpenerDirector:
    proxies: list[urllib.request.BaseHandler] = (
        [urllib.request.ProxyHandler({})] if ServerAddress(url).is_local_host else []
    )
    return urllib.request.build_opener(NoRedirectHandler, *proxies)


def describe_http_error(refusal: urllib.error.HTTPError) -> str:
    detail = refusal.read(10_000).decode("utf-8", "replace")
    with suppress(ValueError, AttributeError):
        body = json.loads(detail)
        detail = body.get("detail") or body.get("message") or detail
    printable = "".join(sign if sign.isprintable() else " " for sign in str(detail))
    return f"HTTP {refusal.code}: {printable[:500]}"


def normalize_server_url(text: str) -> str:
    """Return a server's address as agents are given it: no slash at its end, no query.

    Raises ServerRequestFailed for others.
    """
    text = text.strip().partition("#")[0].rstrip("/")
    with suppress(ValueError):
        scheme = ServerAddress(text).scheme
        if "?" not in text:
            return replace_localhost_subdomain(f"{scheme}://{text.partition('://')[2]}")
    raise ServerRequestFailed(
        f"{text!r} is not an address. It looks like http://127.0.0.1:8765 or https://signalbox.example."
    )


def is_key_sent_unencrypted(url: str) -> bool:
    """Say whether a key sent there could be read on the way."""
    return url.startswith("http://") and not ServerAddress(url).is_local_host


def exchange_connect_code_for_key(url: str, code: str) -> str:
    """Exchange the code for a key. Raises ServerRequestFailed."""
    answer = send_server_request(
        url, "/api/connect/exchange", body={"code": code, "host": socket.gethostname()}
    )
    with suppress(ValueError, KeyError, TypeError):
        key = json.loads(answer)["key"]
        if isinstance(key, str) and key:
            return key
    raise ServerRequestFailed(f"{url} did not answer with a key. Is it Signalbox?")


def require_working_key(url: str, key: str) -> None:
    """Check that the key may report there. Raises ServerRequestFailed."""
    answer = send_server_request(url, "/sessions?limit=1", key)
    with suppress(ValueError, KeyError, TypeError):
        if isinstance(json.loads(answer)["sessions"], list):
            return
    raise ServerRequestFailed(f"{url} is not Signalbox: it answered something else.")


def request_session_id_from_server(url: str, key: str, executor_session_id: str) -> str | None:
    """Return the id of the newest session that an agent calls by this id. Raises ServerRequestFailed."""
    answer = json.loads(send_server_request(url, "/sessions?limit=100", key))
    for session in answer.get("sessions", []):
        if session.get("executor_session_id") == executor_session_id:
            return str(session.get("session_id"))
    return None
