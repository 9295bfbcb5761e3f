"""Requests other than calls of tools, of clients and of servers, in words for the person who decides about one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_ACT_LENGTH = 600  # characters: the card shows the whole request below


def describe_mcp_request(server: str, method: str, params: Mapping[str, Any]) -> str:
    """Return what a client's request does at a server, or a server's request at the client."""
    act = {
        "resources/read": f"Read resource {params.get('uri')} of server {server}.",
        "resources/subscribe": f"Follow resource {params.get('uri')} of server {server}.",
        "resources/unsubscribe": f"Stop following resource {params.get('uri')} of server {server}.",
        "prompts/get": f"Get prompt {params.get('name')} of server {server}.",
        "completion/complete": f"Ask server {server} to complete an argument.",
        "logging/setLevel": f"Set the log level of server {server} to {params.get('level')}.",
        "sampling/createMessage": f"Server {server} asks the agent's model for a text.",
        "roots/list": f"Server {server} asks in which folders the agent works.",
    }
    return act.get(method, f"Send {method} to server {server}.")[:MAX_ACT_LENGTH]
