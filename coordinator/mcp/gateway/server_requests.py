"""Requests of a server to its client, in either generation of MCP: for its model (sampling), its person, its folders.

Until 2025-11-25 each is a request on a stream to the client. Since 2026-07-28 they are in the result of a request
(`inputRequests`). Names of members are compared as the most lenient clients do. Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from coordinator.client.mcp_lines import build_dict_of_unique_keys
from coordinator.lib import json_bounds
from coordinator.mcp.gateway.elicitation import FORM_FIELDS, decode_jsonrpc_object_or_none
from coordinator.policy.requests.questions import ELICITATION

SAMPLING, ROOTS = "sampling/createMessage", "roots/list"
# About which a person is asked where policy asks, and the capability with which a client says that it answers one.
ASKABLE = {SAMPLING: "sampling", ROOTS: "roots"}
UNREADABLE = "(unreadable request)"
FREE_METHODS = frozenset({"ping"})  # which read and use nothing of the client
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request of a server. `number` is its id, None where it is part of a result."""

    method: str
    params: dict[str, Any]
    number: Any = None

    def build_rule_arguments(self, server: str) -> dict[str, Any]:
        """Return what patterns of rules see of it."""
        if self.method == ELICITATION:
            form_fields = {name: value for name, value in self.params.items() if name in FORM_FIELDS}
            return form_fields | {"server": server}
        return {name: value for name, value in self.params.items() if name != "_meta"}

    def encode_as_jsonrpc_message(self) -> bytes:
        """Return the request as a message that holds what was judged, and nothing else."""
        return _encode({"jsonrpc": "2.0", "id": self.number, "method": self.method, "params": self.params})


def can_client_answer_server_request(capabilities: dict[str, Any], method: str) -> bool:
    """Say whether a client says that it answers such a request, and a person can be asked about it."""
    return isinstance(capabilities.get(ASKABLE.get(method, "")), dict)


def parse_server_request_or_none(data: bytes) -> ServerRequest | None:
    """Return the request that a message on a stream is; None for another message, and for one that is always free."""
    try:
        fields = _fields(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    folded = {name.casefold(): raw for name, raw in fields.items()}
    if "method" not in folded or "id" not in folded:
        return None
    number = decode_jsonrpc_id_or_none(folded["id"])
    if len(folded) != len(fields):  # clients disagree about which of two members counts
        return ServerRequest(UNREADABLE, {}, number)
    if decode_json_string_or_none(folded["method"]) in FREE_METHODS and not has_repeated_json_key(data):
        return None
    value = decode_jsonrpc_object_or_none(data)
    if value is None or has_repeated_json_key(data):
        return ServerRequest(UNREADABLE, {}, number)
    return build_server_request({name.casefold(): inner for name, inner in value.items()}, number)


def find_server_requests_in_response(response: bytes) -> list[ServerRequest]:
    """Return what the response to a request asks of the client: in a result, or addresses to open in an error."""
    required: list[ServerRequest] = []
    try:
        for raw in select_raw_members_ignoring_case(_fields(response), "result"):
            for requests in select_raw_members_ignoring_case(_fields(raw), "inputrequests"):
                required += parse_input_requests_or_unreadable(requests)
        for raw in select_raw_members_ignoring_case(_fields(response), "error"):
            required += parse_url_elicitations_or_unreadable(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return required  # a result that is no object asks nothing
    return required


def rebuild_input_required_or_none(response: bytes) -> bytes | None:
    """Return the result of a request with what it asks written as it was judged.

    None where clients may read in two ways what it asks.
    """
    try:
        fields = _fields(response)
        results = select_raw_members_ignoring_case(fields, "result")
        result = _fields(fields["result"])
        server_request = select_raw_members_ignoring_case(result, "inputrequests")
        requests = _decode(result["inputRequests"])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        return None
    is_plain = isinstance(requests, dict) and all(
        isinstance(request, dict) and request.keys() <= {"method", "params"} for request in requests.values()
    )
    if len(results) != 1 or len(server_request) != 1 or not is_plain:
        return None
    result["inputRequests"] = msgspec.Raw(_encode(requests))
    return _encode(fields | {"result": msgspec.Raw(_encode(result))})


def parse_input_requests_or_unreadable(raw: msgspec.Raw) -> list[ServerRequest]:
    value = decode_jsonrpc_object_or_none(b'{"requests":' + bytes(raw) + b"}")
    if value is None or has_repeated_json_key(bytes(raw)):
        return [ServerRequest(UNREADABLE, {})]
    requests = value["requests"]
    if not isinstance(requests, dict):
        return []
    return [
        build_input_request_or_unreadable(request)
        for request in requests.values()
        if isinstance(request, dict)
    ]


def parse_url_elicitations_or_unreadable(raw: msgspec.Raw) -> list[ServerRequest]:
    """Return the questions in an error of 2025-11-25 that says that a person must open addresses first."""
    error = decode_jsonrpc_object_or_none(bytes(raw))
    if error is None:
        return [ServerRequest(UNREADABLE, {})] if b"elicit" in bytes(raw).lower() else []
    questions = [
        question
        for data_name, data in error.items()
        if data_name.casefold() == "data" and isinstance(data, dict)
        for name, value in data.items()
        if name.casefold() == "elicitations" and isinstance(value, list)
        for question in value
    ]
    return [
        ServerRequest(ELICITATION, question if isinstance(question, dict) else {}) for question in questions
    ]


def build_input_request_or_unreadable(request: dict[str, Any]) -> ServerRequest:
    members = {name.casefold(): inner for name, inner in request.items()}
    if len(members) != len(request):  # clients disagree about which of two members counts
        return ServerRequest(UNREADABLE, {})
    return build_server_request(members, None)


def build_server_request(members: dict[str, Any], number: Any) -> ServerRequest:
    method, params = members.get("method"), members.get("params")
    if not isinstance(method, str):
        return ServerRequest(UNREADABLE, {}, number)
    return ServerRequest(method, params if isinstance(params, dict) else {}, number)


def has_repeated_json_key(data: bytes) -> bool:
    """Say whether an object in a message has a member twice, or cannot be read: clients disagree about that."""
    try:
        json_bounds.require_json_bounds(data)
        json.loads(data, object_pairs_hook=build_dict_of_unique_keys)
    except (ValueError, RecursionError):
        return True
    return False


def select_raw_members_ignoring_case(fields: dict[str, msgspec.Raw], folded_name: str) -> list[msgspec.Raw]:
    return [raw for name, raw in fields.items() if name.casefold() == folded_name]


def decode_jsonrpc_id_or_none(raw: msgspec.Raw) -> Any:
    try:
        number = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return number if isinstance(number, str | int | float) and not isinstance(number, bool) else None


def decode_json_string_or_none(raw: msgspec.Raw) -> str | None:
    try:
        text = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return text if isinstance(text, str) else None
