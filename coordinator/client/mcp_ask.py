"""`signalbox mcp-ask`: an MCP server on stdin and stdout with one tool, `ask`, which asks a person in Signalbox.

Claude Code without a screen has nobody to ask. Started with `--permission-prompt-tool mcp__signalbox__ask` it calls
this tool instead, and runs the call only where the answer is a person's or a rule's yes. A hook has a time limit; this
has none: it asks until somebody answers or the request ends (`SIGNALBOX_HELD_FOR`), through restarts of the server,
and says with progress notifications that it is alive. Whatever cannot be understood is a no.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from urllib.parse import quote

from coordinator.client import settings, skill_files
from coordinator.client.connection import (
    InvalidServerAnswer,
    ServerAddress,
    ServerNotAnswering,
    SingleRequestConnection,
)
from coordinator.client.message_lines import LineBudgetExceeded, iterate_pipe_lines
from coordinator.client.settings import NotConnected

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

USAGE = "usage: signalbox mcp-ask\n  An MCP server on stdin and stdout, for `claude -p --permission-prompt-tool`.\n"
NAME, TOOL = "signalbox", "ask"
# Versions of MCP that begin with `initialize`; the newest is offered to a client that asks for another.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
AGENT = "claude-code"  # the one agent that asks by such a tool
WAIT = 600.0  # seconds for which the server holds one request; then it is put again, and is the same one
SILENT_FOR = 20.0  # seconds without a sign of life after which the server counts as gone
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
UNREACHED_FOR = 60.0  # seconds for which a server that never answered is tried
PROGRESS_EVERY = 10.0
RETRY_STATUSES = frozenset({408, 429, 502, 503, 504})
NOBODY = "Signalbox could not ask anyone, so the call did not run: {}. Do not work around it."
METHOD_NOT_FOUND, INVALID = -32601, -32602
INPUT = {
    "type": "object",
    "properties": {
        "tool_name": {"type": "string", "description": "The tool that wants to run"},
        "input": {"type": "object", "description": "Its input"},
        "tool_use_id": {"type": "string", "description": "The id of the call"},
    },
    "required": ["tool_name", "input"],
}


class NoDecision(Exception):
    """There will be no answer; says why."""


def run(arguments: Sequence[str]) -> int:
    """Serve until stdin ends. Returns 2 where it was called wrongly."""
    if arguments:
        wants_help = arguments[0] in {"-h", "--help"}
        (sys.stdout if wants_help else sys.stderr).write(USAGE)
        return 0 if wants_help else 2
    server = QuestionServer()
    try:
        for line in iterate_pipe_lines(sys.stdin.buffer):
            server.handle_and_answer_mcp_message(line)
    except LineBudgetExceeded as problem:
        sys.stderr.write(f"The client wrote {problem}.\n")
    # The client is gone: its response streams break off, which closes requests that no client was asked to wait for.
    sys.stdout.flush()
    os._exit(0)


class QuestionServer:
    """One client on stdin and stdout. Each question is a thread of its own."""

    def __init__(self) -> None:
        self._writes = threading.Lock()
        self._asking: dict[str, OpenQuestion] = {}

    def handle_and_answer_mcp_message(self, line: bytes) -> None:
        """Take one message in; what is none is passed over."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return
        method, number = message["method"], message.get("id")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if number is None:
            if method == "notifications/cancelled":
                self.cancel_question(params.get("requestId"))
        elif method == "tools/call":
            self.start_question_thread(number, params)
        else:
            self.send_answer_to_mcp_request(number, method, params)

    def send_answer_to_mcp_request(self, number: Any, method: str, params: dict[str, Any]) -> None:
        if method == "initialize":
            protocol_version = params.get("protocolVersion")
            version = protocol_version if protocol_version in VERSIONS else VERSIONS[0]
            about = {"name": NAME, "title": "Signalbox", "version": "1"}
            self.send_mcp_result(
                number, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
            )
        elif method == "tools/list":
            tool = {
                "name": TOOL,
                "title": "Ask a person",
                "description": "Ask a person in Signalbox whether a call may run; waits for the answer.",
                "inputSchema": INPUT,
            }
            self.send_mcp_result(number, {"tools": [tool]})
        elif method == "ping":
            self.send_mcp_result(number, {})
        else:
            self.send_mcp_error(number, METHOD_NOT_FOUND, f"There is no method {method[:80]!r} here.")

    def start_question_thread(self, number: Any, params: dict[str, Any]) -> None:
        arguments, meta = params.get("arguments"), params.get("_meta")
        if params.get("name") != TOOL or not isinstance(arguments, dict):
            self.send_mcp_error(number, INVALID, f"The one tool here is {TOOL}.")
            return
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if json.dumps(number) in self._asking:
            self.send_mcp_error(number, INVALID, "Another question has this id.")
            return
        question = OpenQuestion(self, number, arguments, token)
        self._asking[json.dumps(number)] = question
        threading.Thread(
            target=self.send_question_answer_when_decided, args=(number, question), daemon=True
        ).start()
        if token is not None:
            threading.Thread(target=question.send_progress_until_answered, daemon=True).start()

    def send_question_answer_when_decided(self, number: Any, question: OpenQuestion) -> None:
        try:
            answer = question.wait_for_permission_answer()
        except NoDecision as problem:
            answer = build_prompt_denial(str(problem))
        except BaseException as problem:
            answer = build_prompt_denial(
                f"signalbox mcp-ask met an error ({type(problem).__name__}: {problem})"
            )
        question.ended.set()
        del self._asking[json.dumps(number)]
        if not question.cancelled.is_set():
            self.send_mcp_result(number, {"content": [{"type": "text", "text": json.dumps(answer)}]})

    def cancel_question(self, number: Any) -> None:
        question = self._asking.get(json.dumps(number))
        if question is not None:
            question.cancel_answer_wait()

    def send_mcp_error(self, number: Any, code: int, text: str) -> None:
        self._write_message({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}})

    def send_mcp_result(self, number: Any, result: dict[str, Any]) -> None:
        """Answer one request."""
        self._write_message({"jsonrpc": "2.0", "id": number, "result": result})

    def send_mcp_notification(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        self._write_message({"jsonrpc": "2.0", "method": method, "params": params})

    def _write_message(self, message: dict[str, Any]) -> None:
        with self._writes:
            sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
            sys.stdout.buffer.flush()


class OpenQuestion:
    """One call about which a person is asked, and the state of that."""

    def __init__(self, server: QuestionServer, number: Any, question: dict[str, Any], token: Any) -> None:
        self.ended, self.cancelled = threading.Event(), threading.Event()
        self._server = server
        self._number = number
        self._question = question
        self._token = token
        self._id = os.urandom(16).hex()
        self._connection: SingleRequestConnection | None = None
        self._reached = False
        self._state = "Asks in Signalbox"

    def cancel_answer_wait(self) -> None:
        """Ask no more: the client does not want to know."""
        self.cancelled.set()
        self.ended.set()
        connection = self._connection
        if connection is not None:
            connection.until = 0.0  # it ends at the server's next sign of life

    def send_progress_until_answered(self) -> None:
        """Report progress at intervals, so that the client keeps waiting."""
        progress = 0
        while not self.ended.wait(PROGRESS_EVERY if progress else 0.5):
            progress += 1
            notification_params = {"progressToken": self._token, "progress": progress, "message": self._state}
            self._server.send_mcp_notification("notifications/progress", notification_params)

    def wait_for_permission_answer(self) -> dict[str, Any]:
        """Return the answer in the words of Claude Code's permission prompt. Raises NoDecision where there is none."""
        tool, tool_arguments = self._question.get("tool_name"), self._question.get("input")
        if not isinstance(tool, str) or not tool.strip() or not isinstance(tool_arguments, dict):
            raise NoDecision("the question names no tool and input")
        try:
            client_settings = settings.resolve_client_settings()
            address = ServerAddress(client_settings.url)
        except NotConnected as problem:
            raise NoDecision(str(problem)) from None
        body = json.dumps(self.build_permission_request_hook(tool, tool_arguments)).encode()
        headers = {"X-Signalbox-Hook-Id": self._id, "X-Signalbox-Host": quote(os.uname().nodename, safe="")}
        if client_settings.key:
            headers["Authorization"] = f"Bearer {client_settings.key}"
        decision = self._poll_until_decision(address, headers, body)
        if decision.get("behavior") == "allow":
            changed = decision.get("updatedInput", tool_arguments)
            allowed = {"behavior": "allow", "updatedInput": changed}
            if isinstance(changed, dict):
                return allowed
            raise NoDecision("the approved input cannot be understood")
        if decision.get("behavior") == "deny":
            return {"behavior": "deny", "message": str(decision.get("message") or "Denied in Signalbox.")}
        raise NoDecision("its answer cannot be understood")

    def build_permission_request_hook(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the hook by which Claude Code asks where it has a screen."""
        call_id = self._question.get("tool_use_id")
        hook = {
            "session_id": os.environ.get("CLAUDE_CODE_SESSION_ID") or f"mcp-ask-{os.getpid()}-{os.getppid()}",
            "cwd": os.environ.get("CLAUDE_PROJECT_DIR") or os.getcwd(),
            "hook_event_name": "PermissionRequest",
            "tool_name": tool,
            "tool_input": arguments,
            **({"tool_use_id": call_id} if isinstance(call_id, str) and call_id else {}),
        }
        if skill_files.is_skill_hook(hook):
            hook[skill_files.FIELD] = skill_files.collect_skill_shell_report(hook)
        return hook

    def _poll_until_decision(
        self, address: ServerAddress, headers: dict[str, str], body: bytes
    ) -> dict[str, Any]:
        """Ask until there is a decision. Raises NoDecision where none can be hoped for."""
        started_at, pause = time.monotonic(), FIRST_PAUSE
        while not self.cancelled.is_set():
            try:
                decision = self._poll_question_once(address, headers, body)
                if decision is not None:
                    return decision
                pause = FIRST_PAUSE
                continue
            except (ServerNotAnswering, InvalidServerAnswer) as problem:
                self._state = f"Signalbox is away: {problem}"
                if not self._reached and time.monotonic() - started_at > UNREACHED_FOR:
                    raise NoDecision(
                        f"{problem}. Start Signalbox, or mend the connection, and try again"
                    ) from None
            self.cancelled.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        raise NoDecision("the question was cancelled")

    def _poll_question_once(
        self, address: ServerAddress, headers: dict[str, str], body: bytes
    ) -> dict[str, Any] | None:
        """Ask once; None where the question is still open.

        Raises ServerNotAnswering, InvalidServerAnswer, NoDecision.
        """
        self._connection = SingleRequestConnection(address, time.monotonic() + WAIT + 60.0)
        path = f"/hooks/{AGENT}?wait={WAIT:.0f}&hold=on"
        answer = self._connection.post(
            path, headers, body, patience=SILENT_FOR, begun=self._validate_headers_and_return_patience
        )
        if answer.status in RETRY_STATUSES:
            raise ServerNotAnswering(f"it is not ready ({answer.status})")
        if answer.status != 200:
            raise NoDecision(f"Signalbox refuses ({answer.status}{question_error_detail(answer.body)})")
        self._reached = True
        json_object = parse_json_object_or_empty(answer.body)
        problem = json_object.get("signalbox")
        if isinstance(problem, dict):
            if "held" in problem:
                return None
            status = problem.get("status")
            if status in RETRY_STATUSES:
                raise ServerNotAnswering(f"it is not ready ({status})")
            raise NoDecision(f"Signalbox refuses ({status}: {problem.get('detail')})")
        output = json_object.get("hookSpecificOutput")
        decision = output.get("decision") if isinstance(output, dict) else None
        if not isinstance(decision, dict):
            raise NoDecision("Signalbox has no answer to it")
        return decision

    def _validate_headers_and_return_patience(self, answer: Any) -> float:
        if answer.status == 200 and answer.headers.get("x-signalbox-hook-id") is None:
            raise InvalidServerAnswer("what answers is not Signalbox")
        if answer.status == 200:
            self._reached, self._state = True, "Waits for a person in Signalbox"
        return SILENT_FOR


def build_prompt_denial(reason: str) -> dict[str, Any]:
    """Return the answer that lets nothing run, with why."""
    return {"behavior": "deny", "message": NOBODY.format(reason.rstrip("."))}


def parse_json_object_or_empty(body: bytes) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def question_error_detail(body: bytes) -> str:
    detail = parse_json_object_or_empty(body).get("detail")
    return f": {detail}" if isinstance(detail, str) else ""
