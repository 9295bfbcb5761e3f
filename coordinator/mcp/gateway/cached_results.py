"""Results of read-only tools that are answered again: for which calls, under which key, in which form. Pure.

A result is answered to nobody but the agent that got it, with the same sign-in at the server, in the same version of
MCP. Its key holds all of that, the arguments, and everything that the result depends on here: how the server is
reached and with which credentials, the tool's definition, its limits. After a change of any of it the key is another
one, so no result from before is found, also one that was on its way while the change was made.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

import msgspec
from django.utils.crypto import salted_hmac

from coordinator.mcp.gateway.servers import UpstreamServer

MAX_CACHED_BYTES = 128 * 1024  # of one result
MAX_ARGUMENT_BYTES = 16 * 1024  # of a call whose result is cached
CACHED_META = "signalbox/cached"
CALL_MEMBERS = frozenset({"name", "arguments", "_meta"})  # of a call that is no task and answers no question
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_encode_canonical = msgspec.json.Encoder(decimal_format="number", order="deterministic").encode


@dataclass(frozen=True, slots=True)
class CachedCall:
    """A call whose result may be answered again, without what only the database knows of its caller.

    `scope` is the same for all results of the tool until something changes on which they depend.
    """

    server_id: str
    tool: str
    agent_id: str
    seconds: int
    scope: str
    question: bytes

    def build_cache_key(self, sign_in: str) -> str:
        """Return the key of the call's result; `sign_in` names whose sign-in at the server goes with it."""
        identity = json.dumps([self.scope, self.server_id, self.tool, self.agent_id, sign_in]).encode()
        return hmac_cached_result_value(identity + b"\n" + self.question)


class CallParams(msgspec.Struct):
    params: dict[str, msgspec.Raw]


class ResultHead(msgspec.Struct):
    """What in a result says whether it is one that may be answered again."""

    isError: Any = None
    resultType: Any = None
    task: Any = None


_params = msgspec.json.Decoder(CallParams).decode
_head = msgspec.json.Decoder(ResultHead).decode


def tool_result_cache_seconds(server: UpstreamServer, tool: str) -> int:
    """Return for how many seconds a result of the tool is answered again; 0 where it is not.

    The definition that a person accepted says that the tool only reads, and the server still lists that one.
    """
    known_tool = server.tools.get(tool)
    if known_tool is None or not known_tool.is_read_only or known_tool.is_gone:
        return 0
    return server.effective_limits_for_tool(tool).cache_seconds or 0


def hash_tool_cache_version(server: UpstreamServer, tool: str) -> str:
    """Return what is the same for all results of a tool until it changes, its server, its credentials or its limits."""
    known_tool = server.tools[tool]
    parts = [
        server.edition,
        server.headers,
        tool,
        known_tool.definition,
        known_tool.accepted,
        known_tool.changed_at,
        asdict(server.effective_limits_for_tool(tool)),
    ]
    return hmac_cached_result_value(json.dumps(parts, default=str).encode())


def build_cache_lookup_or_none(
    server: UpstreamServer, tool: str, agent_id: str, body: bytes, dialect: list[Any]
) -> CachedCall | None:
    """Return what to look a call's result up by; None where it is not cached.

    `body` is the call as its server would get it. `dialect` is the version of MCP that its client speaks, and what the
    client can do: servers answer accordingly.
    """
    seconds = tool_result_cache_seconds(server, tool)
    if not seconds:
        return None
    try:
        params = _params(body).params
        arguments = bytes(params.get("arguments", b"{}"))
        if not params.keys() <= CALL_MEMBERS or len(arguments) > MAX_ARGUMENT_BYTES:
            return None
        question = _encode_canonical([dialect, json.loads(arguments, parse_int=Decimal, parse_float=Decimal)])
    except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
        return None
    return CachedCall(server.name, tool, agent_id, seconds, hash_tool_cache_version(server, tool), question)


def extract_cachable_result_or_none(response: bytes) -> bytes | None:
    """Return the result of a response that may be answered again; None for an error, a task, a question, a long one."""
    if len(response) > MAX_CACHED_BYTES:
        return None
    try:
        fields = _fields(response)
        if "error" in fields or "result" not in fields:
            return None
        head = _head(fields["result"])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if (
        head.isError not in (None, False)
        or head.resultType not in (None, "complete")
        or head.task is not None
    ):
        return None
    return bytes(fields["result"])


def build_cached_response(number: Any, result: bytes, age_seconds: int) -> bytes:
    """Return a cached result as the response to another call. Raises ValueError for what is no result any more."""
    fields = _fields(result)
    try:
        meta = _fields(fields["_meta"]) if "_meta" in fields else {}
    except msgspec.MsgspecError:
        meta = {}
    meta[CACHED_META] = msgspec.Raw(_encode({"age_seconds": age_seconds}))
    fields["_meta"] = msgspec.Raw(_encode(meta))
    return _encode({"jsonrpc": "2.0", "id": number, "result": fields})


def hmac_cached_result_value(value: bytes) -> str:
    """Return a digest that says nothing of the value to who reads the database."""
    return salted_hmac("mcp cached result", value, algorithm="sha256").hexdigest()
