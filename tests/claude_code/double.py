"""A scripted Claude Code: it posts exactly the hooks that the real one posts, over HTTP, and honours the answers.

It is no agent: a test says what it wants to do next (`claude.prompt(…)`, `claude.call("Bash", …)`), and the
double does what Claude Code would do about it. `terminal` stands for the person at its keyboard.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from tests.patience import PATIENCE
from tests.served import KEYS, Served

Answer = dict[str, Any]
HOOK_TIMEOUT = 3 * PATIENCE


@dataclass
class Call:
    """One tool call: what was asked for, and what became of it."""

    tool: str
    tool_input: dict[str, Any]
    id: str
    outcome: Literal["ran", "denied", "open"] = "open"
    why: str = ""
    answers: list[Answer] = field(default_factory=list)
    always: list[Any] = field(default_factory=list)


class Claude:
    """One session of the scripted Claude Code."""

    def __init__(
        self,
        served: Served,
        *,
        key: str = KEYS["agent"],
        session: str | None = None,
        host: str = "laptop",
        wait: str = "",
    ) -> None:
        self.session = session or str(uuid.uuid4())
        self.turn = ""
        self.calls = 0
        self.base = served.url
        self.cwd = "/home/dev/shop"
        self.url = f"{served.url}/hooks/claude-code{f'?wait={wait}' if wait else ''}"
        self.headers = {"Authorization": f"Bearer {key}", "X-Signalbox-Host": host}
        self.http = httpx.Client(timeout=HOOK_TIMEOUT, verify=False)
        served.clients.append(self.http)
        # What the person at the terminal does when its own prompt decides: allow, or deny.
        self.terminal: Callable[[Call], bool] = lambda call: False

    def fields(self, hook: str, /, **more: Any) -> dict[str, Any]:
        """Return a hook's body as Claude Code sends it."""
        common: dict[str, Any] = {
            "session_id": self.session,
            "transcript_path": f"/home/dev/.claude/projects/shop/{self.session}.jsonl",
            "cwd": self.cwd,
            "hook_event_name": hook,
            "permission_mode": "default",
        }
        if self.turn:
            common["prompt_id"] = self.turn
        return common | more

    def hook(self, name: str, /, **more: Any) -> Answer:
        """Post one hook and return its answer, {} for an empty one."""
        return self.post(self.fields(name, **more))

    def post(self, body: dict[str, Any]) -> Answer:
        """Post a hook's body; any status outside 2xx fails the test, as nothing of ours may disturb Claude."""
        answer = self.http.post(self.url, json=body, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.text) if answer.text else {}

    def start(self, source: str = "startup") -> None:
        """Begin, as the small command hook tells it."""
        self.hook("SessionStart", source=source, model="claude-opus-4-8")

    def prompt(self, text: str) -> None:
        """A person types."""
        self.turn = str(uuid.uuid4())
        self.hook("UserPromptSubmit", prompt=text)

    def say(self, text: str) -> None:
        """The assistant says something, displayed whole."""
        self.hook(
            "MessageDisplay", turn_id=self.turn, message_id=str(uuid.uuid4()), index=0, final=True, delta=text
        )

    def stop(self, words: str | None = None) -> None:
        """The turn ends."""
        self.hook(
            "Stop",
            stop_hook_active=False,
            last_assistant_message=words,
            background_tasks=[],
            session_crons=[],
        )

    def end(self, reason: str = "prompt_input_exit") -> None:
        """The session ends."""
        self.hook("SessionEnd", reason=reason)

    def new_call(self, tool: str, tool_input: dict[str, Any]) -> Call:
        """Return a call that nobody has heard of yet."""
        self.calls += 1
        return Call(tool, tool_input, f"toolu_{self.session[:8]}_{self.calls}")

    def call(self, tool: str, tool_input: dict[str, Any], *, asks: bool = False, **more: Any) -> Call:
        """Do one tool call from beginning to end. `asks`: Claude's own rules want a prompt for it."""
        call = self.new_call(tool, tool_input)
        answer = self.before(call, **more)
        decision = answer.get("permissionDecision")
        if decision == "deny":
            return self.denied(call, answer.get("permissionDecisionReason", ""))
        call.tool_input = answer.get("updatedInput") or call.tool_input
        if decision == "ask" or (asks and decision != "allow"):
            answer = self.asked(call, **more)
            behaviour = answer.get("behavior")
            if behaviour == "deny" or (behaviour is None and not self.terminal(call)):
                return self.denied(call, answer.get("message", "No, said the person at the terminal."))
            call.tool_input = answer.get("updatedInput") or call.tool_input
            call.always = answer.get("updatedPermissions", [])
        return self.ran(call, **more)

    def before(self, call: Call, **more: Any) -> Answer:
        """Tell PreToolUse; return the decision's fields."""
        answer = self.hook(
            "PreToolUse", tool_name=call.tool, tool_input=call.tool_input, tool_use_id=call.id, **more
        )
        call.answers.append(answer)
        found = answer.get("hookSpecificOutput", {})
        assert not found or found["hookEventName"] == "PreToolUse"
        return dict(found)

    def asked(self, call: Call, suggestions: list[Any] | None = None, **more: Any) -> Answer:
        """Tell PermissionRequest, which names no call; return the decision's fields."""
        given = {} if suggestions is None else {"permission_suggestions": suggestions}
        answer = self.hook(
            "PermissionRequest", tool_name=call.tool, tool_input=call.tool_input, **given, **more
        )
        call.answers.append(answer)
        found = answer.get("hookSpecificOutput", {})
        assert not found or found["hookEventName"] == "PermissionRequest"
        return dict(found.get("decision", {}))

    def asking(self, call: Call, **more: Any) -> Asking:
        """Tell PermissionRequest in a thread of its own, as the hook waits."""
        return Asking(self, call, more)

    def ran(self, call: Call, output: Any = None, *, took: int = 40, **more: Any) -> Call:
        """Run the call and tell its result."""
        call.outcome = "ran"
        result = output if output is not None else {"stdout": "done", "stderr": "", "interrupted": False}
        more.pop("suggestions", None)
        self.hook(
            "PostToolUse",
            tool_name=call.tool,
            tool_input=call.tool_input,
            tool_response=result,
            tool_use_id=call.id,
            duration_ms=took,
            **more,
        )
        return call

    def denied(self, call: Call, why: str) -> Call:
        """The call does not run: no hook tells of that."""
        call.outcome, call.why = "denied", why
        return call


class Asking:
    """A PermissionRequest hook that waits for its answer. `cut` drops its connection."""

    def __init__(self, claude: Claude, call: Call, more: dict[str, Any]) -> None:
        self.answer: Answer | None = None
        self.refused = ""
        self.http = httpx.Client(timeout=HOOK_TIMEOUT, verify=False)
        body = claude.fields("PermissionRequest", tool_name=call.tool, tool_input=call.tool_input, **more)
        self.thread = threading.Thread(target=self._ask, args=(claude, body), daemon=True)
        self.thread.start()

    def _ask(self, claude: Claude, body: dict[str, Any]) -> None:
        try:
            answer = self.http.post(claude.url, json=body, headers=claude.headers)
        except httpx.HTTPError:
            return
        if answer.status_code != 200:
            self.refused = f"{answer.status_code} {answer.text[:200]}"
            return
        self.answer = json.loads(answer.text) if answer.text else {}

    def result(self, within: float = PATIENCE) -> dict[str, Any]:
        """Return the decision's fields, {} for no opinion; fails if none comes in time."""
        self.thread.join(within)
        assert self.answer is not None, self.refused or "the hook still waits"
        found: dict[str, Any] = self.answer.get("hookSpecificOutput", {}).get("decision", {})
        return found

    @property
    def waits(self) -> bool:
        """Say whether no answer has come."""
        return self.answer is None and self.thread.is_alive()


def cut(served: Served, claude: Claude, body: dict[str, Any]) -> None:
    """Post a hook and close the connection before its answer."""
    import socket

    payload = json.dumps(body).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in claude.headers.items())
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        path = claude.url.removeprefix(served.url)
        line.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n{head}\r\n".encode()
            + payload
        )
        threading.Event().wait(0)  # hand over once; what matters is that the request is sent whole
        yield_until_waiting(served, claude)


def yield_until_waiting(served: Served, claude: Claude) -> None:
    """Return as soon as a request of the session waits."""
    import time

    deadline = time.monotonic() + 60
    while not served.sql(
        "SELECT 1 FROM permission_requests r JOIN permission_context c ON c.request_id = r.request_id"
        " JOIN sessions s ON s.session_id = c.session_id"
        " WHERE r.status = 'pending' AND s.executor_session_id = ?",
        (claude.session,),
    ):
        assert time.monotonic() < deadline, "no request came"
        time.sleep(0.02)
