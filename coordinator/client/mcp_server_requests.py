"""Requests of a local MCP server to its agent's client: for its model, its person, its folders.

Each request is put before Signalbox and reaches the client where policy allows it. So does each answer of the client:
the same request is asked about once more, since a brake may be on by then. What Signalbox refuses, or cannot be asked
about, is answered in the other's place.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from coordinator.client import mcp_lines
from coordinator.client.policy_requests import post_to_signalbox, session_id_from_environment

ELICITATION = "elicitation/create"
FREE_METHODS = frozenset({"ping"})  # which use nothing of the client
REJECTED = -1  # the code of a refusal of sampling, as MCP has it
TWO_MEANINGS = "What the server asks can be read in two ways."
MAX_OPEN_REQUESTS = 100
MAX_JUDGED_AT_ONCE = 50


class ServerRequests:
    """The requests of one server that its client has not answered yet."""

    def __init__(self, server: str, forward_to_server: Callable[[bytes], None]) -> None:
        self._server = server
        self._forward_to_server = forward_to_server
        self._judging: set[str] = set()
        self._passed: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def forward_server_request_in_background(self, message: dict[str, Any], line: bytes) -> None:
        """Pass a request on where policy allows it; else answer its server."""
        key = mcp_lines.normalize_request_id(message.get("id"))
        with self._lock:
            if key in self._judging or len(self._judging) >= MAX_JUDGED_AT_ONCE:
                return
            self._judging.add(key)
        threading.Thread(
            target=self.forward_server_request_if_allowed, args=(key, message, line), daemon=True
        ).start()

    def forward_server_request_if_allowed(self, key: str, message: dict[str, Any], line: bytes) -> None:
        refusal = self.ask_policy_for_refusal(message)
        with self._lock:
            if key not in self._judging:
                return  # taken back meanwhile
            self._judging.discard(key)
            if refusal is None:
                while len(self._passed) >= MAX_OPEN_REQUESTS:  # of a client that does not answer
                    del self._passed[next(iter(self._passed))]
                self._passed[key] = message
        if refusal is None:
            mcp_lines.write_stdout_line(line)
        else:
            self.send_refusal_to_server(message, refusal)

    def drop_cancelled_server_request(self, message: dict[str, Any]) -> bool:
        """Say whether a notification takes back a request of which the client does not know yet; then that is over."""
        params = message.get("params")
        if message.get("method") != "notifications/cancelled" or not isinstance(params, dict):
            return False
        key = mcp_lines.normalize_request_id(params.get("requestId"))
        with self._lock:
            is_judged = key in self._judging
            self._judging.discard(key)
            self._passed.pop(key, None)
        return is_judged

    def handle_client_answer(self, message: dict[str, Any], line: bytes) -> None:
        """Pass on a client's answer to a request that it was asked; any other is dropped."""
        with self._lock:
            request = self._passed.pop(mcp_lines.normalize_request_id(message.get("id")), None)
        if request is not None:
            threading.Thread(
                target=self.forward_client_answer_if_allowed, args=(request, line), daemon=True
            ).start()

    def forward_client_answer_if_allowed(self, request: dict[str, Any], line: bytes) -> None:
        refusal = self.ask_policy_for_refusal(request)
        if refusal is None:
            self._forward_to_server(line)
        else:
            self.send_refusal_to_server(request, refusal)

    def ask_for_answer_refusal_reason(self, message: dict[str, Any]) -> str | None:
        """Return why what an answer asks of the client may not reach it; None where it may."""
        for requests in extract_requests_to_client(message):
            if not isinstance(requests, dict):
                return TWO_MEANINGS
            for request in requests.values():
                if not isinstance(request, dict) or not request.keys() <= {"method", "params"}:
                    return TWO_MEANINGS
                refusal = self.ask_policy_for_refusal(request)
                if refusal is not None:
                    return str(refusal.get("reason"))
        return None

    def ask_policy_for_refusal(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return Signalbox's answer where it does not allow a request, None where it does."""
        method, params = request.get("method"), request.get("params", {})
        if method in FREE_METHODS:
            return None
        names = {name.casefold() for name in request}
        if not isinstance(method, str) or not isinstance(params, dict) or (names - set(request)):
            return {"reason": TWO_MEANINGS}
        question = {
            "server": self._server,
            "tool": method,
            "method": method,
            "arguments": json.dumps(params),
            "from_server": True,
            "session": session_id_from_environment(),
        }
        try:
            decision = post_to_signalbox("/api/mcp/calls", question)
        except BaseException as problem:
            return {"reason": f"Signalbox could not be asked: {problem}."}
        return None if decision.get("decision") == "allow" else decision

    def send_refusal_to_server(self, request: dict[str, Any], refusal: dict[str, Any]) -> None:
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": request.get("id")}
        if request.get("method") == ELICITATION:
            response["result"] = {"action": "cancel" if refusal.get("braked") else "decline"}
        else:
            reason = str(refusal.get("reason") or "Denied.")
            response["error"] = {"code": REJECTED, "message": reason}
        self._forward_to_server(json.dumps(response).encode())


def has_requests_to_client(message: dict[str, Any]) -> bool:
    """Say whether an answer asks something of the client (2026-07-28)."""
    return bool(extract_requests_to_client(message))


def extract_requests_to_client(message: dict[str, Any]) -> list[Any]:
    """Return the requests in a result, by their names, and in an error the addresses that a person is to open."""
    addresses = [
        {
            str(number): {"method": ELICITATION, "params": question}
            for number, question in enumerate(questions)
        }
        if isinstance(questions, list)
        else questions
        for error in list_member_values_ignoring_case([message], "error")
        for questions in list_member_values_ignoring_case(
            list_member_values_ignoring_case([error], "data"), "elicitations"
        )
    ]
    return (
        list_member_values_ignoring_case(
            list_member_values_ignoring_case([message], "result"), "inputrequests"
        )
        + addresses
    )


def list_member_values_ignoring_case(values: list[Any], folded_name: str) -> list[Any]:
    return [
        inner
        for value in values
        if isinstance(value, dict)
        for name, inner in value.items()
        if name.casefold() == folded_name
    ]
