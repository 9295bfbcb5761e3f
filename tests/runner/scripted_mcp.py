"""How the scripted agent uses an MCP server that it was handed: over HTTP, or as a program on stdin and stdout."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from typing import Any

BEGIN = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "scripted", "version": "7"},
}


def ask(server: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Begin a session, send one request and return its answer; an HTTP refusal as `{"status": …}`."""
    return over_http(server, method, params) if "url" in server else over_stdio(server, method, params)


def over_http(server: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any]:
    headers = {one["name"]: one["value"] for one in server["headers"]}
    headers |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    try:
        _, session = posted(server["url"], headers, {"id": 1, "method": "initialize", "params": BEGIN})
        headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": BEGIN["protocolVersion"]}
        posted(server["url"], headers, {"method": "notifications/initialized"})
        answer, _ = posted(server["url"], headers, {"id": 2, "method": method, "params": params})
    except urllib.error.HTTPError as refusal:
        return {"status": refusal.code}
    return answer


def posted(url: str, headers: dict[str, str], message: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Post a message; return the last message of the answer, and the session's id."""
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
        lines = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
        return json.loads(lines[-1] or "{}"), answer.headers.get("Mcp-Session-Id", "")


def over_stdio(server: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any]:
    env = {**os.environ, **{one["name"]: one["value"] for one in server["env"]}}
    messages = [
        {"id": 1, "method": "initialize", "params": BEGIN},
        {"method": "notifications/initialized"},
        {"id": 2, "method": method, "params": params},
    ]
    program = subprocess.Popen(
        [server["command"], *server["args"]],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    with program:
        for message in messages:
            program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            program.stdin.flush()
        for line in program.stdout:
            told: dict[str, Any] = json.loads(line)
            if told.get("id") == 2:
                program.stdin.close()
                return told
    return {}
