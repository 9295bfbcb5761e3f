"""What an agent at the gateway needs in tests: a key of its own, a server, grants and rules; and raw MCP over HTTP."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx

from tests.served import Served

AGENT, KEY = "agent.one", "sbx_gateway-agent-one"
OTHER, OTHER_KEY = "agent.two", "sbx_gateway-agent-two"
LONG_AGO = "2026-01-01T00:00:00+00:00"
V2026 = "2026-07-28"
BOTH = "application/json, text/event-stream"


def furnish(box: Served, url: str, *, server: str = "example", policy: str = "opt-out") -> None:
    """Register two agents' keys and the server."""
    for agent, raw in ((AGENT, KEY), (OTHER, OTHER_KEY)):
        bind(box, agent, raw)
    box.sql("DELETE FROM mcp_servers WHERE name = ?", (server,))
    box.sql(
        "INSERT INTO mcp_servers (name, command, created_at, default_policy) VALUES (?, ?, ?, ?)",
        (server, "", 1_767_225_600, policy),
    )
    box.sql("DELETE FROM mcp_upstreams WHERE server_id = ?", (server,))
    box.sql(
        "INSERT INTO mcp_upstreams (server_id, transport, url, sharing, private_network, call_seconds, enabled,"
        " changed_at) VALUES (?, 'http', ?, 'shared', ?, 20, ?, ?)",
        (server, url, True, True, LONG_AGO),
    )
    box.wait_until_known()


def bind(box: Served, agent: str, raw: str) -> None:
    """Give an agent a key of its own."""
    from coordinator.actions.people.keys import hash_api_key  # which needs Django

    box.sql("DELETE FROM api_keys WHERE name = ?", (agent,))
    box.sql(
        "INSERT INTO api_keys (name, prefix, key_hash, scopes, created_at, agent_id) VALUES (?, ?, ?, ?, ?, ?)",
        (agent, "sbx_", hash_api_key(raw), '["agent"]', LONG_AGO, agent),
    )


def accept_command(box: Served, server: str) -> None:
    """Let a stdio server be started that was written into the database, as an admin does who read it on its page."""
    admin = box.sign_in("admin")
    shown = re.search(r'name="command"\s+value="([^"]+)"', admin.get(f"/ui/mcp/servers/{server}/").text)
    assert shown is not None
    assert "Accepted." in admin.post(f"/ui/mcp/command/{server}/", data={"command": shown[1]}).text


def grant(box: Served, agent: str, tool: str, says: str, *, server: str = "example") -> None:
    """Grant an agent a tool: allow, ask or deny. One that asks stands as a denial with a mark beside it."""
    box.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, tool_name, permission, granted_at)"
        " VALUES ('tool_grant', ?, ?, ?, ?, ?)",
        (agent, server, tool, "deny" if says == "ask" else says, LONG_AGO),
    )
    if says == "ask":
        box.sql("INSERT INTO asking_grants (grant_id) SELECT max(id) FROM mcp_access_control")


def rule(box: Served, tool: str, verdict: str, pattern: str = "", program: str = "") -> None:
    """Add a rule at the end of the list."""
    box.sql(
        "INSERT INTO tool_rules (position, tool, pattern, verdict, reason, deny_at_deadline, program, changed_by,"
        " changed_at) VALUES ((SELECT coalesce(max(position), 0) + 1 FROM tool_rules), ?, ?, ?, '', ?, ?, 'test', ?)",
        (tool, pattern, verdict, False, program, LONG_AGO),
    )


class GatewayRefused(Exception):
    """An answer with another status than 200."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(f"{answer.status_code} {answer.text}")
        self.status = answer.status_code
        self.text = answer.text


class Wire:
    """A client that speaks raw MCP: one of a session, or (stateless) one of 2026-07-28."""

    def __init__(
        self,
        box: Served,
        *,
        key: str = KEY,
        server: str = "example",
        capabilities: dict[str, Any] | None = None,
        stateless: bool = False,
        name: str = "test-client",
    ) -> None:
        self.box = box
        self.http = box.client(key=None)
        self.http.headers["Authorization"] = f"Bearer {key}"
        self.path = f"/mcp/{server}" if server else "/mcp"
        self.capabilities = capabilities or {}
        self.stateless = stateless
        self.name = name
        self.session: str | None = None
        self.number = 0
        self.heard: list[dict[str, Any]] = []

    def initialize(self, version: str = "2025-11-25") -> dict[str, Any]:
        """Begin a session."""
        params = {
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": self.name, "version": "1"},
        }
        answer = self.send("initialize", params)
        if answer.status_code != 200:
            raise GatewayRefused(answer)
        self.session = answer.headers["mcp-session-id"]
        result: dict[str, Any] = self.response(answer)["result"]
        self.http.headers["MCP-Protocol-Version"] = result["protocolVersion"]
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
        return result

    def message(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return a request with the next number."""
        self.number += 1
        params = dict(params or {})
        if self.stateless:
            params["_meta"] = params.get("_meta", {}) | {
                "io.modelcontextprotocol/protocolVersion": V2026,
                "io.modelcontextprotocol/clientInfo": {"name": self.name, "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            }
        return {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}

    def headers_for(self, message: dict[str, Any]) -> dict[str, str]:
        """Return the headers that go with a message."""
        found = {"Accept": BOTH, "Content-Type": "application/json"}
        if self.session:
            found["Mcp-Session-Id"] = self.session
        if self.stateless:
            found |= {"MCP-Protocol-Version": V2026, "Mcp-Method": message["method"]}
            params = message["params"]
            name = params.get("name") or params.get("taskId") or params.get("uri")
            if name:
                found["Mcp-Name"] = name
        return found

    def post(self, message: dict[str, Any] | bytes, **headers: str) -> httpx.Response:
        """Post a message, or bytes as they are."""
        value = json.loads(message) if isinstance(message, bytes) else message
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.http.post(self.path, content=body, headers=self.headers_for(value) | headers)

    def send(self, method: str, params: dict[str, Any] | None = None) -> httpx.Response:
        """Send a request; return the answer whole."""
        return self.post(self.message(method, params))

    def response(self, answer: httpx.Response) -> dict[str, Any]:
        """Return the response in an answer; what came before it is in `heard`."""
        if answer.status_code != 200:
            raise GatewayRefused(answer)
        if not answer.headers["content-type"].startswith("text/event-stream"):
            found: dict[str, Any] = answer.json()
            return found
        messages = list(events(answer.iter_lines()))
        self.heard += messages[:-1]
        return messages[-1]

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request; return its result."""
        found = self.response(self.send(method, params))
        assert "result" in found, found
        result: dict[str, Any] = found["result"]
        return result

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; return its result."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a stream."""
    data: list[str] = []
    for line in itertools.chain(lines, [""]):
        if line.startswith("data:") and line[5:].strip():
            data.append(line[5:])
        elif not line and data:
            yield json.loads("\n".join(data))
            data = []


def text_of(result: dict[str, Any]) -> str:
    """Return the text of a call's result."""
    return "".join(block.get("text", "") for block in result["content"])
