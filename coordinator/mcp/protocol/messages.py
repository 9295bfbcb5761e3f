"""One JSON-RPC message of an MCP client: read strictly, so that nobody behind us reads something else into its bytes.

What an agent sends is judged here and passed on as the very bytes that came. So whatever two parsers may understand
differently is refused: duplicate keys, keys of the envelope that differ by case alone (Go's parser takes them for the
same) or are not spelled as they are known, invalid numbers, text that is not UTF-8.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from coordinator.client import mcp_methods
from coordinator.client.mcp_methods import META_CAPABILITIES, META_CLIENT, META_VERSION
from coordinator.client.message_lines import BYTE_ORDER_MARK
from coordinator.lib import json_bounds
from coordinator.mcp.protocol.agent_call_ids import NO_CLAIM, AgentCallIds, agent_session_and_call_id

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
HEADER_MISMATCH, MISSING_CAPABILITY = -32020, -32021
UNREACHABLE, BRAKED, DENIED = -32010, -32011, -32012  # of the codes that are left to implementations
TASKS = "io.modelcontextprotocol/tasks"
# Methods whose target is in the header Mcp-Name, with the parameter that holds it.
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
NOTIFICATIONS = "notifications/"  # how the methods begin that want no answer
ENVELOPE = ("jsonrpc", "id", "method", "params", "result", "error")
PARAMS = ("name", "arguments", "_meta", "uri", "taskId", "requestId", "requestState", "inputResponses")
META = (META_VERSION, META_CLIENT, META_CAPABILITIES, "progressToken")
MOST_BYTES = 8 * 1024 * 1024


class UnreadableMessage(Exception):
    """A body that is no message, or one that could be read in two ways; `code` is JSON-RPC's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class RawParams(msgspec.Struct):
    params: msgspec.Raw = msgspec.Raw(b"")


class RawArguments(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"")


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_parts = msgspec.json.Decoder(RawParams).decode
_arguments = msgspec.json.Decoder(RawArguments).decode


@dataclass(frozen=True)
class McpMessage:
    """A request, a notification or a response, as it goes on (`raw`) and as it was read (`value`).

    Members that its method does not have are in neither; of the others the bytes are those that came. `claim` is what
    such a member said of the agent's own call.
    """

    raw: bytes
    value: dict[str, Any] = field(repr=False)
    claim: AgentCallIds = NO_CLAIM

    @property
    def method(self) -> str:
        """Return the method's name; nothing for a response."""
        return str(self.value.get("method", ""))

    @property
    def id(self) -> Any:
        return self.value.get("id")

    @property
    def is_request(self) -> bool:
        return "method" in self.value and self.value.get("id") is not None

    @property
    def is_response(self) -> bool:
        return "method" not in self.value

    @property
    def params(self) -> dict[str, Any]:
        params = self.value.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def meta(self) -> dict[str, Any]:
        meta_field = self.params.get("_meta")
        return meta_field if isinstance(meta_field, dict) else {}

    @property
    def protocol_version(self) -> str | None:
        """Return the version that a message since 2026-07-28 says of itself; None for one of a session."""
        version_field = self.meta.get(META_VERSION)
        return version_field if isinstance(version_field, str) else None

    @property
    def is_stateless(self) -> bool:
        return self.protocol_version is not None

    @property
    def stateless_client_capabilities(self) -> dict[str, Any]:
        """Return what the client of a stateless message says that it can do."""
        capabilities_field = self.meta.get(META_CAPABILITIES)
        return capabilities_field if isinstance(capabilities_field, dict) else {}

    @property
    def target_name(self) -> str | None:
        """Return what the method is about: a tool, a prompt, a resource, a task."""
        target_field = self.params.get(NAMED_BY.get(self.method, ""))
        return target_field if isinstance(target_field, str) else None

    @property
    def progress_token(self) -> Any:
        return self.meta.get("progressToken")

    @property
    def call_metadata_for_review(self) -> dict[str, Any]:
        """Return by name what a server gets in addition to tool and arguments and a person may want to see."""
        metadata = {"id": self.id, "progressToken": self.progress_token, "task": self.params.get("task")}
        if self.stateless_client_capabilities:
            metadata["clientCapabilities"] = self.stateless_client_capabilities
        return {name: value for name, value in metadata.items() if value is not None}

    @cached_property
    def raw_arguments(self) -> bytes:
        """Return a call's arguments as the bytes that came; nothing where there are none."""
        return bytes(_arguments(_parts(self.raw).params).arguments)

    @cached_property
    def raw_params_without_meta(self) -> bytes:
        """Return a request's params but for `_meta`: of each member the bytes that came."""
        params = _parts(self.raw).params
        members = _fields(params) if bytes(params) else {}
        return _encode({name: raw for name, raw in members.items() if name != "_meta"})


def parse_mcp_message(raw: bytes) -> McpMessage:
    """Read one message, without a byte order mark before it. Raises UnreadableMessage."""
    raw = raw.removeprefix(BYTE_ORDER_MARK)
    try:
        text = raw.decode()
        json_bounds.require_json_bounds(raw)
        value = json.loads(
            text, object_pairs_hook=build_dict_refusing_repeated_keys, parse_constant=reject_non_json_number
        )
        if rb"\u" in raw:
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text in UTF-8
    except (UnicodeError, RecursionError):
        raise UnreadableMessage(PARSE_ERROR, "The body is not JSON in UTF-8.") from None
    except DuplicateKey as twins:
        raise UnreadableMessage(INVALID_REQUEST, str(twins)) from None
    except ValueError as problem:
        raise UnreadableMessage(PARSE_ERROR, f"The body is not JSON: {problem}.") from None
    if not isinstance(value, dict):
        raise UnreadableMessage(
            INVALID_REQUEST, "Send one JSON-RPC message, an object. Batches are not accepted."
        )
    return build_validated_mcp_message(raw, value)


def build_validated_mcp_message(raw: bytes, value: dict[str, Any]) -> McpMessage:
    refuse_misspelled_keys(value, ENVELOPE)
    refuse_misspelled_keys(value.get("params"), PARAMS)
    refuse_misspelled_keys(get_message_param_or_none(value, "_meta"), META)
    if value.get("jsonrpc") != "2.0":
        raise UnreadableMessage(INVALID_REQUEST, 'The message has no `"jsonrpc": "2.0"`.')
    number = value.get("id")
    if isinstance(number, bool) or not isinstance(number, str | int | float | None):
        raise UnreadableMessage(INVALID_REQUEST, "A message's id must be a string or a number.")
    if "method" in value:
        if not isinstance(value["method"], str) or (
            "params" in value and not isinstance(value["params"], dict)
        ):
            raise UnreadableMessage(INVALID_REQUEST, "The method must be a string and its params an object.")
        refuse_request_without_id(value)
        if (odd := mcp_methods.find_tool_call_id_problem(value)) is not None:
            raise UnreadableMessage(INVALID_REQUEST, odd)
    elif number is None or ("result" in value) == ("error" in value):
        raise UnreadableMessage(INVALID_REQUEST, "The message is not a request, notification or response.")
    return remove_members_unknown_to_method(raw, value)


def remove_members_unknown_to_method(raw: bytes, value: dict[str, Any]) -> McpMessage:
    """Return the message without the members that its method does not have. Raises UnreadableMessage."""
    allowed_members = mcp_methods.restrict_message_members(value)
    if allowed_members is value:
        return McpMessage(raw, value)
    try:
        return McpMessage(
            encode_reusing_unchanged_bytes(raw, value, allowed_members),
            allowed_members,
            agent_session_and_call_id(value),
        )
    except (msgspec.MsgspecError, UnicodeError):
        raise UnreadableMessage(PARSE_ERROR, "The body is not JSON in UTF-8.") from None


def encode_reusing_unchanged_bytes(raw: bytes, before: dict[str, Any], after: dict[str, Any]) -> bytes:
    """Return the JSON object `after`, which is part of `before`, with the bytes of `raw` for what has not changed."""
    fields = _fields(raw)
    rebuilt = {}
    for name, value in after.items():
        if value is before[name]:
            rebuilt[name] = fields[name]
        elif isinstance(value, dict):
            rebuilt[name] = msgspec.Raw(
                encode_reusing_unchanged_bytes(bytes(fields[name]), before[name], value)
            )
        else:
            rebuilt[name] = msgspec.Raw(_encode(value))
    return _encode(rebuilt)


def get_message_param_or_none(value: dict[str, Any], name: str) -> Any:
    params = value.get("params")
    return params.get(name) if isinstance(params, dict) else None


def refuse_request_without_id(value: dict[str, Any]) -> None:
    """Refuse a call that is written as a notification: servers run it, and nobody would have judged it."""
    if "id" in value and value["id"] is None:
        raise UnreadableMessage(
            INVALID_REQUEST, "A message's id must be a string or a number, or be left out."
        )
    if "id" not in value and not value["method"].startswith(NOTIFICATIONS):
        raise UnreadableMessage(INVALID_REQUEST, "A request needs an id. Only notifications have none.")


def refuse_misspelled_keys(level: Any, known_keys: tuple[str, ...]) -> None:
    if not isinstance(level, dict):
        return
    folded = {key.casefold(): key for key in level}
    if len(folded) != len(level):
        raise UnreadableMessage(INVALID_REQUEST, "Two keys of the message differ only in case.")
    for name in known_keys:
        expected_key = folded.get(name.casefold(), name)
        if expected_key != name:
            raise UnreadableMessage(
                INVALID_REQUEST, f"A key of the message must be spelled {name}, not {expected_key}."
            )


class DuplicateKey(Exception):
    pass


def build_dict_refusing_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields_by_key = dict(pairs)
    if len(fields_by_key) != len(pairs):
        raise DuplicateKey("A key occurs twice in one object, so it is not clear what is meant.")
    return fields_by_key


def reject_non_json_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number in JSON")
