"""Messages of clients that are passed on to servers, and their members. What is not named here is not passed on.

A server may act on any method and any member that it knows, also on those that no version of MCP has. So nothing
passes by default: a request with another method is refused, a notification is dropped, and of a message that passes
each member that its method does not have is left out. What a person approves is then all that a server gets.

For the gateway and for `signalbox mcp` on an agent's machine alike.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
LONGEST_NAME = 200  # characters of a client's own name and version


class RequestUse(Enum):
    """What a request is for, and so how it is judged."""

    CONNECTION = "connection"  # begins or keeps a connection: passes
    TOOLS = "tools"  # lists or calls tools, each of which is judged by itself
    LIST = "list"  # names what a server has: an empty list where the server is denied
    READ = "read"  # reads or sets something at the server: only where the server is allowed
    TASK = "task"  # asks about a call that was judged when it began: passes


_PAGE = frozenset({"cursor"})
_RETRY = frozenset(
    {"requestState", "inputResponses"}
)  # of requests to which a server may answer with a question
# The requests that pass, and the members of their params in addition to `_meta`.
REQUESTS: dict[str, tuple[RequestUse, frozenset[str]]] = {
    "initialize": (RequestUse.CONNECTION, frozenset({"protocolVersion", "capabilities", "clientInfo"})),
    "ping": (RequestUse.CONNECTION, frozenset()),
    "server/discover": (RequestUse.CONNECTION, frozenset()),
    "subscriptions/listen": (RequestUse.CONNECTION, frozenset({"notifications"})),
    "tools/list": (RequestUse.TOOLS, _PAGE),
    "tools/call": (RequestUse.TOOLS, frozenset({"name", "arguments", "task"}) | _RETRY),
    "resources/list": (RequestUse.LIST, _PAGE),
    "resources/templates/list": (RequestUse.LIST, _PAGE),
    "prompts/list": (RequestUse.LIST, _PAGE),
    "resources/read": (RequestUse.READ, frozenset({"uri"}) | _RETRY),
    "resources/subscribe": (RequestUse.READ, frozenset({"uri"})),
    "resources/unsubscribe": (RequestUse.READ, frozenset({"uri"})),
    "prompts/get": (RequestUse.READ, frozenset({"name", "arguments"}) | _RETRY),
    "completion/complete": (RequestUse.READ, frozenset({"ref", "argument", "context"})),
    "logging/setLevel": (RequestUse.READ, frozenset({"level"})),
    "tasks/get": (RequestUse.TASK, frozenset({"taskId"})),
    "tasks/result": (RequestUse.TASK, frozenset({"taskId"})),
    "tasks/update": (RequestUse.TASK, frozenset({"taskId", "inputResponses"})),
    "tasks/cancel": (RequestUse.TASK, frozenset({"taskId"})),
    "tasks/list": (RequestUse.READ, _PAGE),  # the tasks of every caller, whose results a task's id opens
}
# The notifications that pass, and the members of their params.
NOTIFICATIONS: dict[str, frozenset[str]] = {
    "notifications/initialized": frozenset(),
    "notifications/cancelled": frozenset({"requestId", "reason"}),
    "notifications/progress": frozenset({"progressToken", "progress", "total", "message"}),
    "notifications/roots/list_changed": frozenset(),
    "notifications/tasks/status": frozenset(
        {"taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
    ),
}
# The list in the result of a request that lists.
LISTS = {
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
    "tasks/list": "tasks",
}
TASK_UPDATE = "tasks/update"  # answers what a task's server asks, so no brake lets it pass
REQUEST = frozenset({"jsonrpc", "id", "method", "params"})
RESPONSE = frozenset({"jsonrpc", "id", "result", "error"})
META = frozenset({META_VERSION, META_CLIENT, META_CAPABILITIES, META_LOG_LEVEL, "progressToken"})
# What a client may say of each call that it can do, and how deep: values are empty objects, or a yes or no.
CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "extensions": {
        "io.modelcontextprotocol/tasks": {},
        "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]},
    },
    "roots": {"listChanged": bool},
    "sampling": {"context": {}, "tools": {}},
    "tasks": {
        "cancel": {},
        "list": {},
        "requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}},
    },
}
TASK_TTLS = (
    60_000,
    3_600_000,
    86_400_000,
)  # milliseconds for which a task is kept: those of the client go up to one
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:/@+-]{1,64}")
LOG_LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})


def classify_mcp_request(message: dict[str, Any]) -> RequestUse | None:
    """Return what a request is for; None where its method does not pass."""
    request_members = REQUESTS.get(message.get("method", ""))
    if request_members is None:
        return None
    if message.get("method") == "subscriptions/listen" and is_subscription_beyond_list_changes(
        message.get("params")
    ):
        return RequestUse.READ
    return request_members[0]


def is_subscription_beyond_list_changes(params: Any) -> bool:
    """Say whether a subscription is to more than lists that change: to resources, or to what an extension has."""
    notifications = params.get("notifications") if isinstance(params, dict) else None
    if not isinstance(notifications, dict):
        return notifications is not None
    return any(value not in (True, False, None) for value in notifications.values())


def restrict_message_members(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with the members that its method has, and no other; itself where all of them are known."""
    names = REQUEST if "method" in message else RESPONSE
    allowed_members = {name: value for name, value in message.items() if name in names}
    if isinstance(allowed_members.get("params"), dict):
        allowed_members["params"] = restrict_params_of_method(message["method"], message["params"])
    return message if allowed_members == message else allowed_members


def restrict_params_of_method(method: str, params: dict[str, Any]) -> dict[str, Any]:
    _, own = REQUESTS.get(method, (None, NOTIFICATIONS.get(method, frozenset[str]())))
    names = own | {"_meta"}  # by which a request that does not pass is answered, too
    allowed_params = {name: value for name, value in params.items() if name in names}
    for name, restrict in (
        ("_meta", restrict_request_meta),
        ("task", restrict_task_to_rounded_ttl),
        ("clientInfo", restrict_client_info),
    ):
        if name in allowed_params:
            allowed_params[name] = restrict(allowed_params[name])
    return drop_none_members(allowed_params)


def drop_none_members(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def restrict_request_meta(meta: Any) -> dict[str, Any] | None:
    if not isinstance(meta, dict):
        return None
    allowed_meta = {name: value for name, value in meta.items() if name in META}
    if META_CLIENT in allowed_meta:
        allowed_meta[META_CLIENT] = restrict_client_info(allowed_meta[META_CLIENT])
    if META_CAPABILITIES in allowed_meta:
        allowed_meta[META_CAPABILITIES] = restrict_value_to_schema(
            allowed_meta[META_CAPABILITIES], CAPABILITIES
        )
    if allowed_meta.get(META_LOG_LEVEL) not in LOG_LEVELS:
        allowed_meta.pop(META_LOG_LEVEL, None)
    return drop_none_members(allowed_meta)


def restrict_task_to_rounded_ttl(task: Any) -> dict[str, Any] | None:
    """Return what a call of 2025-11-25 says of the task that it is to become: for how long it is kept, in few steps."""
    if not isinstance(task, dict):
        return None
    ttl = task.get("ttl")
    if not isinstance(ttl, int | float) or isinstance(ttl, bool):
        return {}
    step = next((step for step in TASK_TTLS if ttl <= step), TASK_TTLS[-1])
    return task if task == {"ttl": step} else {"ttl": step}


def restrict_value_to_schema(value: Any, shape: Any) -> Any:
    """Return as much of a value as is of the known shape, itself where all of it is; None where nothing is."""
    if shape is bool:
        return value if isinstance(value, bool) else None
    if isinstance(shape, list):
        return value if isinstance(value, list) and all(item in shape for item in value) else None
    if not isinstance(value, dict):
        return None
    shaped = {
        name: restrict_value_to_schema(inner, shape[name]) for name, inner in value.items() if name in shape
    }
    shaped = drop_none_members(shaped)
    return value if shaped == value else shaped


def is_safe_request_id(value: Any) -> bool:
    """Say whether a call's id, or its progress token, is a number or a short name: it reaches the server unjudged."""
    if isinstance(value, str):
        return _PLAIN_ID.fullmatch(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def find_tool_call_id_problem(message: dict[str, Any]) -> str | None:
    """Return what is wrong with the id or the progress token of a call of a tool; None where nothing is."""
    if message.get("method") != "tools/call":
        return None
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    for label, value in (("id", message.get("id")), ("progressToken", token)):
        if value is not None and not is_safe_request_id(value):
            return f"The {label} of a call must be a whole number, or at most 64 letters, digits and . _ : / @ + -"
    return None


def restrict_client_info(info: Any) -> dict[str, Any] | None:
    if not isinstance(info, dict):
        return None
    names = ("name", "title", "version")
    return {name: info[name][:LONGEST_NAME] for name in names if isinstance(info.get(name), str)}
