"""Requests of a local MCP server and its client, put before Signalbox, which decides."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from coordinator.client import settings
from coordinator.client.connection import (
    InvalidServerAnswer,
    ServerAddress,
    ServerNotAnswering,
    SingleRequestConnection,
)
from coordinator.client.settings import NotConnected

ANSWER_WAIT_SECONDS = 45.0  # seconds in which an answer must begin: the server holds one for 25
RETRY_STATUSES = frozenset({408, 429, 502, 503, 504})


class CallRefused(Exception):
    """There is no yes; says why."""


def session_id_from_environment() -> str | None:
    return os.environ.get("SIGNALBOX_SESSION") or None


def post_to_signalbox(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what Signalbox answers. Raises CallRefused, ServerNotAnswering, InvalidServerAnswer."""
    try:
        client_settings = settings.resolve_client_settings()
        address = ServerAddress(client_settings.url)
    except NotConnected as problem:
        raise CallRefused(str(problem)) from None
    except ValueError:
        raise CallRefused("Signalbox's address cannot be understood.") from None
    headers = {"Authorization": f"Bearer {client_settings.key}"} if client_settings.key else {}
    connection = SingleRequestConnection(address, time.monotonic() + 2 * ANSWER_WAIT_SECONDS)
    answer = connection.post(path, headers, json.dumps(body).encode(), patience=ANSWER_WAIT_SECONDS)
    if answer.status in RETRY_STATUSES:
        raise ServerNotAnswering(f"it is not ready ({answer.status})")
    try:
        decoded = json.loads(answer.body) if answer.body else {}
    except (ValueError, RecursionError):
        raise InvalidServerAnswer("its answer cannot be understood") from None
    if not isinstance(decoded, dict):
        raise InvalidServerAnswer("its answer cannot be understood")
    if answer.status >= 300:
        raise CallRefused(f"Signalbox refuses ({answer.status}: {decoded.get('detail', 'no reason')}).")
    return decoded
