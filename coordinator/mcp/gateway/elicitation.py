"""Elicitation: parsing and answering a server's questions to a person, in each generation of MCP.

Until 2025-11-25 the question is a request on the line of the call. Since 2026-07-28 it is the call's result
(`input_required`), and the answer goes with the same call sent again. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from coordinator.client.mcp_methods import META_CAPABILITIES
from coordinator.lib import json_bounds
from coordinator.policy.requests.questions import ELICITATION, parse_elicitation_or_none

CANCELLED = "notifications/cancelled"
CAPABILITY: dict[str, Any] = {"form": {}, "url": {}}
MAX_QUESTION_BYTES = 64 * 1024  # nobody reads more
MAX_QUESTIONS_AT_ONCE = 5  # of one call
FORM_FIELDS = frozenset({"mode", "message", "requestedSchema", "url"})  # what a card shows of a question
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ServerElicitation:
    """A server's question on the line of a call. `params` is None where no person could answer it."""

    number: Any
    params: dict[str, Any] | None
    mode: str


def parse_server_elicitation_or_none(data: bytes) -> ServerElicitation | None:
    """Return the question that a message is; None for any other message."""
    if ELICITATION.encode() not in data and b"elicitation" not in data:
        return None
    value = decode_jsonrpc_object_or_none(data)
    if value is None or value.get("method") != ELICITATION:
        return None
    number = value.get("id")
    if isinstance(number, bool) or not isinstance(number, str | int | float):
        return None
    params = value.get("params")
    return ServerElicitation(
        number, params if is_elicitation_answerable(params, len(data)) else None, elicitation_mode(params)
    )


def cancelled_request_id_or_none(data: bytes) -> Any:
    """Return the id of the request that a server says it needs no answer to any more; None for any other message."""
    if b"cancelled" not in data:
        return None
    value = decode_jsonrpc_object_or_none(data)
    params = value.get("params") if value is not None and value.get("method") == CANCELLED else None
    return params.get("requestId") if isinstance(params, dict) else None


def decode_jsonrpc_object_or_none(data: bytes) -> dict[str, Any] | None:
    try:
        json_bounds.require_json_bounds(data)
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_elicitation_answerable(params: Any, size: int) -> bool:
    return (
        size <= MAX_QUESTION_BYTES
        and isinstance(params, dict)
        and parse_elicitation_or_none(params) is not None
    )


def elicitation_mode(params: Any) -> str:
    return "url" if isinstance(params, dict) and params.get("mode") == "url" else "form"


def can_client_present_elicitation(capabilities: Mapping[str, Any], mode: str) -> bool:
    """Say whether a client says that it can put a question of this mode to its person."""
    declared = capabilities.get("elicitation")
    if not isinstance(declared, dict):
        return False
    return mode in declared or (mode == "form" and "url" not in declared)


def copy_capabilities_adding_elicitation(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client can do, with what people can answer in Signalbox."""
    return {**capabilities, "elicitation": CAPABILITY}


def add_elicitation_to_initialize(raw: bytes) -> bytes:
    """Return an `initialize` that says that questions are answered; itself where it cannot be read."""
    try:
        fields = _fields(raw)
        params = _fields(fields["params"])
        capabilities = msgspec.json.decode(params["capabilities"]) if "capabilities" in params else {}
        declared = copy_capabilities_adding_elicitation(
            capabilities if isinstance(capabilities, dict) else {}
        )
    except (msgspec.MsgspecError, KeyError):
        return raw
    params["capabilities"] = msgspec.Raw(_encode(declared))
    return _encode(fields | {"params": msgspec.Raw(_encode(params))})


def add_elicitation_capability_to_call(raw: bytes) -> bytes:
    """Return a stateless call that says that questions are answered; every other byte of it stays."""
    try:
        fields = _fields(raw)
        params = _fields(fields["params"])
        meta = _fields(params["_meta"])
        capabilities = msgspec.json.decode(meta[META_CAPABILITIES]) if META_CAPABILITIES in meta else {}
        declared = copy_capabilities_adding_elicitation(
            capabilities if isinstance(capabilities, dict) else {}
        )
    except (msgspec.MsgspecError, KeyError):
        return raw
    meta[META_CAPABILITIES] = msgspec.Raw(_encode(declared))
    params["_meta"] = msgspec.Raw(_encode(meta))
    return _encode(fields | {"params": msgspec.Raw(_encode(params))})


@dataclass(frozen=True, slots=True)
class RequiredInput:
    """The questions in the result of a call, by their names, and the server's state, which goes back as it came.

    Of a question that no person could answer, and of a request that is no such question, the params are None.
    """

    questions: dict[str, dict[str, Any] | None]
    modes: frozenset[str]
    state: str | None
    has_other_requests: bool

    def build_call_with_input_responses(self, body: bytes, responses: Mapping[str, Any]) -> bytes:
        """Return the call with the answers to its questions."""
        fields = _fields(body)
        params = _fields(fields["params"])
        params.pop("requestState", None)
        params["inputResponses"] = msgspec.Raw(_encode(responses))
        if self.state is not None:
            params["requestState"] = msgspec.Raw(_encode(self.state))
        return _encode(fields | {"params": msgspec.Raw(_encode(params))})


def parse_input_required_or_none(response: bytes) -> RequiredInput | None:
    """Return what the result of a call asks; None for a result that asks nothing."""
    if b"input_required" not in response:
        return None
    value = decode_jsonrpc_object_or_none(response)
    result = value.get("result") if value is not None else None
    if not isinstance(result, dict) or result.get("resultType") != "input_required":
        return None
    requests, state = result.get("inputRequests"), result.get("requestState")
    if not isinstance(requests, dict) or not requests:
        return None
    questions: dict[str, dict[str, Any] | None] = {}
    modes, has_other_requests = set(), False
    for name, request in requests.items():
        if not isinstance(request, dict) or request.get("method") != ELICITATION:
            has_other_requests = True
            continue
        params = request.get("params")
        modes.add(elicitation_mode(params))
        questions[name] = params if is_elicitation_answerable(params, len(_encode(params))) else None
    return RequiredInput(
        questions, frozenset(modes), state if isinstance(state, str) else None, has_other_requests
    )
