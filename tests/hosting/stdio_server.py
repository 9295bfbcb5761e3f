"""A stdio MCP server for tests: raw JSON lines, so that what passes can be compared byte by byte.

Its tools say what shall happen: echo, wait (until told by a notification), die, flood, ask (the client), count, log.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from typing import Any

INSTANCE = secrets.token_hex(4)  # its process id may be the same each time: it has a namespace of its own
lock = threading.Lock()
released = threading.Event()
answers: dict[str, Any] = {}
answered = threading.Condition()
calls = 0


def send(**message: Any) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def call(number: Any, params: dict[str, Any]) -> None:
    global calls  # noqa: PLW0603 - how often this process was called
    calls += 1
    name, given = params["name"], params.get("arguments", {})
    token = params.get("_meta", {}).get("progressToken")
    if name == "die":
        sys.stderr.write(f"I cannot go on with token={os.environ.get('TOKEN', '')}\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "flood":
        sys.stdout.write("x" * (17 << 20) + "\n")
        sys.stdout.flush()
    if name == "wait":
        if token is not None:
            send(method="notifications/progress", params={"progressToken": token, "progress": 1})
        released.wait(20)
    if name == "ask":
        send(id=f"q{number}", method="elicitation/create", params={"message": "Who?"})
        with answered:
            answered.wait_for(lambda: f"q{number}" in answers, 20)
        send(id=number, result=text(json.dumps(answers[f"q{number}"])))
        return
    if name == "ask_on":
        for count in range(50_000):
            send(id=f"q{count}", method="elicitation/create", params={"message": "Who?"})
    if name == "log":
        send(method="notifications/message", params={"level": "info", "data": "noted"})
    if name == "environment":
        send(id=number, result=text(json.dumps(dict(os.environ))))
        return
    send(id=number, result={**text(f"{name} {given} {calls} {INSTANCE}"), "odd": 1.50})


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        while sys.argv[1:] and not os.path.exists(sys.argv[1]):  # it takes long to start
            time.sleep(0.02)
        sys.stdout.write("some chatter\n")
        info = {"name": "double", "version": "1"}
        send(
            id=number,
            result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info},
        )
    elif method == "tools/list":
        schema = {"type": "object"}
        names = ("echo", "die", "wait", "flood")
        send(id=number, result={"tools": [{"name": name, "inputSchema": schema} for name in names]})
    elif method == "tools/call":
        threading.Thread(target=call, args=(number, message["params"]), daemon=True).start()
    elif method == "notifications/release":
        released.set()
    elif method == "notifications/cancelled":
        with open("cancelled", "a") as file:
            file.write(f"{message['params']['requestId']}\n")
    elif method is None:
        with answered:
            answers[number] = message.get("result", message.get("error"))
            answered.notify_all()
    elif number is not None:
        send(id=number, result={"method": method})
time.sleep(0)
