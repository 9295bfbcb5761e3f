"""Counts the functions of Signalbox that a hook calls, from the request to the commit and the answer.

`python -m tests.bench.hook_functions` runs the application in one process with a database of its own, posts hooks of
one session, and traces one PostToolUse and one PreToolUse about which a rule asks. A function counts once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OURS = f"{ROOT / 'coordinator'}/"
# What runs beside every request, with all that it calls, and is no part of a hook's way.
BACKGROUND = (
    "feed/",
    "live/",
    "operations/",
    "engine/",
    "lib/logs",
    "actions/upkeep/jobs",
    "edge/ingest/adoption",
)
INNER = ("<lambda>", "<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<module>")
WAIT_SECONDS = "0.3"  # how long the asked call waits for a person


class CalledFunctions:
    """Collects the code objects of our functions that any thread enters while `active`."""

    def __init__(self) -> None:
        self.active = False
        self.codes: set[CodeType] = set()

    def trace_call(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note one call; to be set as the profile function of each thread."""
        code = frame.f_code
        if not self.active or event != "call" or not code.co_filename.startswith(OURS):
            return
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code.co_filename.removeprefix(OURS).startswith(BACKGROUND):
                return
            caller = caller.f_back
        self.codes.add(code)

    def list_functions(self) -> list[str]:
        """Return the functions by module, without comprehensions."""
        names = []
        for code in self.codes:
            module = code.co_filename.removeprefix(OURS)
            if code.co_name not in INNER:
                names.append(f"{module}:{code.co_firstlineno} {code.co_qualname}")
        return sorted(names)


async def post_hook(app: Any, key: str, fields: dict[str, Any]) -> bytes:
    """Post a hook to the application and return the answer's body."""
    body = json.dumps({"session_id": "counted", "cwd": "/work", **fields}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = {"authorization": f"Bearer {key}", "host": "localhost", "content-type": "application/json"}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/hooks/claude-code",
        "query_string": f"wait={WAIT_SECONDS}".encode(),
        "headers": [
            (name.encode(), value.encode())
            for name, value in (
                headers | {"content-length": str(len(body)), "x-signalbox-host": "laptop"}
            ).items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    assert sent[0]["status"] == 200, sent
    return b"".join(message.get("body", b"") for message in sent[1:])


async def count_hook_functions(app: Any, key: str, calls: CalledFunctions) -> dict[str, list[str]]:
    """Return the functions that each traced hook called."""
    lifespan: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    started = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        started.set()

    serving = asyncio.ensure_future(app({"type": "lifespan"}, lifespan.get, send))
    await lifespan.put({"type": "lifespan.startup"})
    await started.wait()
    start = {"hook_event_name": "SessionStart", "source": "startup"}
    call = {"tool_name": "Bash", "tool_input": {"command": "ls"}}
    result = call | {"hook_event_name": "PostToolUse", "tool_response": {"stdout": "README.md"}}
    question = call | {"hook_event_name": "PreToolUse"}
    for number, hook in enumerate(
        (start, question, result)
    ):  # caches are filled, as they are for nearly every hook
        await post_hook(app, key, hook | {"tool_use_id": f"toolu_warm{number}"})
    counted = {}
    for number, hook in enumerate((result, question)):
        await asyncio.sleep(1)  # what the hook before left in the background is over
        calls.codes, calls.active = set(), True
        answer = await post_hook(app, key, hook | {"tool_use_id": f"toolu_{number}"})
        calls.active = False
        assert ("permissionDecision" in answer.decode()) == (hook is question), answer
        counted[str(hook["hook_event_name"])] = calls.list_functions()
    await lifespan.put({"type": "lifespan.shutdown"})
    await serving
    return counted


def main() -> None:
    """Print the counts, and with `-v` the functions."""
    calls = CalledFunctions()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"SIGNALBOX_DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "coordinator.settings"}
        os.environ.setdefault("DJANGO_DEBUG", "1")
        threading.setprofile(calls.trace_call)
        sys.setprofile(calls.trace_call)
        import django

        django.setup()
        from django.core.management import call_command
        from django.utils import timezone

        from coordinator.actions.people import keys
        from coordinator.edge.app import Application
        from coordinator.identity.actors import Actor
        from coordinator.models import ToolRule
        from tests.unbound import accept_unbound_keys

        call_command("migrate", verbosity=0)
        by, now = Actor("user", "ann"), timezone.now()
        accept_unbound_keys()
        _row, key = keys.issue_api_key(name="counted", scopes=["agent"], actor=by, now=now)
        ToolRule.objects.create(position=1, tool="Bash", verdict="ask", changed_at=now, changed_by=str(by))
        counted = asyncio.run(count_hook_functions(Application(), key, calls))
    for name, functions in counted.items():
        by_package = Counter(function.split("/", 1)[0] for function in functions)
        packages = ", ".join(f"{package} {count}" for package, count in by_package.most_common())
        print(f"{name}: {len(functions)} functions ({packages})")
        if "-v" in sys.argv:
            print(*(f"  {function}" for function in functions), sep="\n")


if __name__ == "__main__":
    main()
