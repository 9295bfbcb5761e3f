"""A stdio MCP server that runs on its agent's machine, with Signalbox before each call of its tools. Fails closed.

What the server says passes through as it came, but for the list of tools, which shows those that the agent may call or
ask for, and for what it asks of its client (its model, its person, its folders), which policy must allow. What the
agent says passes without members that MCP does not have, and where its method is known: a call once Signalbox allows
it, which may take as long as a person does; what reads something, once policy allows it. Whatever cannot be
understood, or asked, is a no.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from typing import Any
from urllib.parse import quote

from coordinator.client import mcp_lines, mcp_methods, mcp_server_requests, settings
from coordinator.client.connection import InvalidServerAnswer, ServerNotAnswering
from coordinator.client.mcp_methods import RequestUse
from coordinator.client.message_lines import LineBudgetExceeded, iterate_pipe_lines
from coordinator.client.policy_requests import CallRefused, post_to_signalbox, session_id_from_environment
from coordinator.client.settings import NotConnected

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
UNREACHED_FOR = 30.0  # seconds for which a server that cannot be reached is tried before a call is denied
ENDS_WITHIN = 5.0  # seconds that a server has to end once its input has
MAX_SENT_RESULT_BYTES = 64 * 1024  # bytes of a result that are sent to Signalbox
NOBODY = "Signalbox could not be asked, so the call did not run: {}. Do not work around it; try again later."
NO_CONNECTION = -32000


class McpGuard:
    """One agent on stdin and stdout, one server behind."""

    def __init__(self, server: str, command: list[str]) -> None:
        self._server = server
        self._command = command
        self._definitions: dict[str, Any] = {}
        self._lists: set[str] = set()  # ids of requests for tools
        self._calls: dict[str, LocalServerCall] = {}
        self._requests = mcp_server_requests.ServerRequests(server, self.forward_to_server)
        self._lock = threading.Lock()
        self._input = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def serve_guarded_server_and_exit(self) -> int:
        """Start the server and pass on what both say until one of them ends; return its exit code."""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command that the agent's settings name
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=build_server_environment()
            )
        except OSError as problem:
            sys.stderr.write(f"{self._command[0]} cannot be started: {problem.strerror}.\n")
            return 127
        listening = threading.Thread(target=self.relay_server_output, daemon=True)
        listening.start()
        threading.Thread(target=self.relay_agent_messages, daemon=True).start()
        listening.join()
        code = self._process.wait()
        sys.stdout.flush()
        os._exit(code if code >= 0 else 128 - code)

    # --- the agent ----------------------------------------------------------------------------------------

    def relay_agent_messages(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(LineBudgetExceeded):
            for line in iterate_pipe_lines(sys.stdin.buffer):
                self.handle_client_message(mcp_lines.escape_line_separators(line))
        with self._lock:
            for call in self._calls.values():
                call.cancel_permission_wait()
        with contextlib.suppress(OSError), self._input:
            self._process.stdin.close()
        self.terminate_server_process()

    def terminate_server_process(self) -> None:
        """End a server that does not end with its input."""
        assert self._process is not None
        for stop in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                stop()

    def handle_client_message(self, line: bytes) -> None:
        try:
            message = mcp_lines.parse_mcp_line(line)
        except mcp_lines.AmbiguousMessage as problem:
            mcp_lines.send_jsonrpc_error(problem.number, mcp_lines.INVALID_REQUEST, str(problem))
            return
        method, number = message.get("method"), message.get("id")
        use = mcp_methods.classify_mcp_request(message)
        line = mcp_lines.drop_unknown_message_members(line, message)
        if "method" not in message:
            self._requests.handle_client_answer(message, line)
        elif "id" not in message:
            if method in mcp_methods.NOTIFICATIONS and not (
                method == "notifications/cancelled" and self.cancel_local_call_before_start(message)
            ):
                self.forward_to_server(line)
        elif use is None:
            explanation = f"The method {str(method)[:100]!r} does not pass Signalbox."
            mcp_lines.send_jsonrpc_error(number, mcp_lines.METHOD_NOT_FOUND, explanation)
        elif method == "tools/call":
            self.start_guarded_call(number, message, line)
        elif use in {RequestUse.READ, RequestUse.LIST} or method == mcp_methods.TASK_UPDATE:
            threading.Thread(
                target=self.forward_read_request_if_allowed, args=(number, str(method), line), daemon=True
            ).start()
        else:
            if method == "tools/list":
                with self._lock:
                    self._lists.add(mcp_lines.normalize_request_id(number))
            self.forward_to_server(line)

    def forward_read_request_if_allowed(self, number: Any, method: str, line: bytes) -> None:
        """Pass on a request other than a call once Signalbox allows it."""
        params = mcp_lines.extract_raw_json(line, "params") or "{}"
        question = {"server": self._server, "tool": method, "method": method, "arguments": params}
        try:
            answer = post_to_signalbox(
                "/api/mcp/calls", question | {"session": session_id_from_environment()}
            )
            reason = None if answer.get("decision") == "allow" else str(answer.get("reason") or "Denied.")
        except BaseException as problem:
            reason = f"Signalbox could not be asked, so nothing was sent: {problem}."
        if reason is None:
            self.forward_to_server(line)
        elif method in mcp_methods.LISTS:
            mcp_lines.send_jsonrpc_message({"id": number, "result": {mcp_methods.LISTS[method]: []}})
        else:
            mcp_lines.send_jsonrpc_error(number, mcp_lines.DENIED, reason)

    def forward_to_server(self, line: bytes) -> None:
        with self._input:
            self._write_to_server(line)

    def _write_to_server(self, line: bytes) -> None:
        """Write a line to the server; its input is the caller's. It may read no more before its own output is read."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.rstrip(b"\r\n") + b"\n")
            self._process.stdin.flush()

    def start_guarded_call(self, number: Any, message: dict[str, Any], line: bytes) -> None:
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if number is None or not isinstance(params, dict) or not isinstance(name, str):
            mcp_lines.send_jsonrpc_error(
                number, mcp_lines.INVALID_REQUEST, "The call names no tool, or has no id."
            )
            return
        call = LocalServerCall(self._server, name, params, line, self._definitions.get(name))
        with self._lock:
            is_used = mcp_lines.normalize_request_id(number) in self._calls
            if not is_used:
                self._calls[mcp_lines.normalize_request_id(number)] = call
        if is_used:
            mcp_lines.send_jsonrpc_error(number, mcp_lines.INVALID_REQUEST, "Another call has this id.")
            return
        threading.Thread(target=self.forward_call_when_permitted, args=(number, call), daemon=True).start()

    def forward_call_when_permitted(self, number: Any, call: LocalServerCall) -> None:
        try:
            call.wait_and_require_permission()
        except CallRefused as problem:
            reason = str(problem)
        except BaseException as problem:
            reason = NOBODY.format(f"it met an error ({type(problem).__name__}: {problem})")
        else:
            with self._input:  # a cancellation that comes from here on is written after the call
                if self._mark_call_begun_unless_cancelled(call):
                    self._write_to_server(call.line)
                    return
            reason = "The call was cancelled."
        with self._lock:
            if self._calls.get(mcp_lines.normalize_request_id(number)) is call:
                del self._calls[mcp_lines.normalize_request_id(number)]
        if not call.cancelled.is_set():
            mcp_lines.send_refused_tool_result(number, reason)

    def _mark_call_begun_unless_cancelled(self, call: LocalServerCall) -> bool:
        """Note that a call is sent now; False where it was cancelled."""
        with self._lock:
            if call.cancelled.is_set():
                return False
            call.began = time.monotonic()
            return True

    def cancel_local_call_before_start(self, message: dict[str, Any]) -> bool:
        """Ask no more for a call that did not begin; say whether it was one."""
        params = message.get("params")
        number = params.get("requestId") if isinstance(params, dict) else None
        with self._lock:
            call = self._calls.get(mcp_lines.normalize_request_id(number))
            if call is None or call.began is not None:
                return False
            call.cancel_permission_wait()
            del self._calls[mcp_lines.normalize_request_id(number)]
        reason = params.get("reason") if isinstance(params, dict) else None
        threading.Thread(target=call.report_cancellation, args=(str(reason or ""),), daemon=True).start()
        return True

    # --- the server ---------------------------------------------------------------------------------------

    def relay_server_output(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            for line in iterate_pipe_lines(self._process.stdout):
                self.handle_server_message(line)
        except LineBudgetExceeded as problem:
            sys.stderr.write(f"{self._command[0]} wrote {problem}.\n")
            self._process.kill()

    def handle_server_message(self, line: bytes) -> None:
        try:
            message = mcp_lines.parse_unambiguous_server_message(line)
        except ValueError:
            return  # chatter, which no client should have to read
        if not isinstance(message, dict):
            return
        names = [name.casefold() for name in message]
        if len(set(names)) != len(names) or ("method" in names and "method" not in message):
            return  # clients disagree about what it is
        if "method" not in message:
            self.handle_server_answer(message, line)
        elif "id" in names:
            self._requests.forward_server_request_in_background(message, line)
        elif not self._requests.drop_cancelled_server_request(message):
            mcp_lines.write_stdout_line(line)

    def handle_server_answer(self, message: dict[str, Any], line: bytes) -> None:
        number = mcp_lines.normalize_request_id(message.get("id"))
        with self._lock:
            call = self._calls.get(number)
            if call is not None and call.began is None:
                return  # the server cannot know of it yet: this is no answer to it
            self._calls.pop(number, None)
            is_list = number in self._lists
            self._lists.discard(number)
        if is_list and isinstance(message.get("result"), dict):
            threading.Thread(target=self.send_visible_tool_list, args=(message,), daemon=True).start()
            return
        if mcp_server_requests.has_requests_to_client(message):
            threading.Thread(
                target=self.forward_server_answer_if_allowed, args=(message, line, call), daemon=True
            ).start()
            return
        mcp_lines.write_stdout_line(line)
        if call is not None:
            threading.Thread(target=call.report_call_result, args=(message,), daemon=True).start()

    def forward_server_answer_if_allowed(
        self, message: dict[str, Any], line: bytes, call: LocalServerCall | None
    ) -> None:
        """Pass on an answer that asks something of the client, or say why that may not be asked."""
        reason = self._requests.ask_for_answer_refusal_reason(message)
        if reason is None:
            mcp_lines.write_stdout_line(line)
        else:
            mcp_lines.send_jsonrpc_error(message.get("id"), mcp_lines.DENIED, reason)
        if call is not None:
            call.report_call_result(message)

    def send_visible_tool_list(self, message: dict[str, Any]) -> None:
        tools = message["result"].get("tools")
        tools = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        try:
            visible_tools = request_visible_tool_names(self._server, tools)
        except BaseException as problem:
            mcp_lines.send_jsonrpc_error(
                message.get("id"), NO_CONNECTION, f"Signalbox could not be asked: {problem}."
            )
            return
        for tool in tools:
            if isinstance(tool.get("name"), str):
                self._definitions[tool["name"]] = tool
        matching_tools = [tool for tool in tools if tool.get("name") in visible_tools]
        mcp_lines.send_jsonrpc_message({**message, "result": {**message["result"], "tools": matching_tools}})


def build_server_environment() -> dict[str, str]:
    """Return the server's environment: without the key by which it would speak for the agent, in any variable."""
    keys = {os.environ.get(settings.KEY_VARIABLE, "").strip()}
    with contextlib.suppress(NotConnected):
        keys.add(settings.resolve_client_settings().key)
    return {
        name: value
        for name, value in os.environ.items()
        if name != settings.KEY_VARIABLE and not any(key and key in value for key in keys)
    }


class LocalServerCall:
    """One call, from the question to its end."""

    def __init__(self, server: str, tool: str, params: dict[str, Any], line: bytes, definition: Any) -> None:
        self.line = line
        self.cancelled = threading.Event()
        self.began: float | None = None
        self._question = {
            "server": server,
            "tool": tool,
            "arguments": mcp_lines.extract_raw_json(line, "params", "arguments")
            or "{}",  # as the text that goes in
            "definition": definition,
            "session": session_id_from_environment(),
        }
        meta = params.get("_meta")
        self._token = meta.get("progressToken") if isinstance(meta, dict) else None
        self._id = f"sbx-{uuid.uuid4().hex}"  # of our own choice: it may be cancelled before the first answer
        self._is_known = False  # Signalbox has answered about it
        self._progress_count = 0

    def cancel_permission_wait(self) -> None:
        """Ask no more."""
        self.cancelled.set()

    def wait_and_require_permission(self) -> None:
        """Return where the call may run. Raises CallRefused."""
        last, pause = time.monotonic(), FIRST_PAUSE
        while not self.cancelled.is_set():
            question_body = {**self._question, "call_id": self._id, "begins": not self._is_known}
            try:
                server_reply = post_to_signalbox("/api/mcp/calls", question_body)
            except (ServerNotAnswering, InvalidServerAnswer) as problem:
                if time.monotonic() - last > UNREACHED_FOR and not self._is_known:
                    raise CallRefused(NOBODY.format(problem)) from None
                self.cancelled.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            decision = server_reply.get("decision")
            self._is_known = True
            self._id = server_reply["call_id"] if isinstance(server_reply.get("call_id"), str) else self._id
            if decision == "allow":
                return
            if decision != "wait":
                raise CallRefused(str(server_reply.get("reason") or "Denied in Signalbox."))
            self.send_waiting_progress(server_reply)
        raise CallRefused("The call was cancelled.")

    def report_cancellation(self, reason: str) -> None:
        """Report to Signalbox that nobody waits for the call any more, and the `reason` in the client's words."""
        path, until = f"/api/mcp/calls/{quote(self._id, safe='')}/cancel", time.monotonic() + UNREACHED_FOR
        pause = FIRST_PAUSE
        while time.monotonic() < until:
            try:
                post_to_signalbox(path, {"reason": reason[:200]})
            except (ServerNotAnswering, InvalidServerAnswer):
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except CallRefused:  # an older one, perhaps, that has no such endpoint
                return
            else:
                return

    def send_waiting_progress(self, waiting: dict[str, Any]) -> None:
        if self._token is not None:
            self._progress_count += 1
            progress_text = (
                f"Waits for a person in Signalbox: {waiting.get('card') or waiting.get('reason') or ''}"
            )
            params = {
                "progressToken": self._token,
                "progress": self._progress_count,
                "message": progress_text,
            }
            mcp_lines.send_jsonrpc_message({"method": "notifications/progress", "params": params})

    def report_call_result(self, message: dict[str, Any]) -> None:
        """Report to Signalbox how the call ended."""
        if self.began is None:
            return
        result = message.get("result")
        is_error = "error" in message or (isinstance(result, dict) and result.get("isError") is True)
        result_text = json.dumps(message.get("error") if "error" in message else result)
        body = {
            "is_error": is_error,
            "milliseconds": round((time.monotonic() - self.began) * 1000),
            "result": result_text.encode()[:MAX_SENT_RESULT_BYTES].decode(errors="ignore"),
        }
        with contextlib.suppress(Exception):
            post_to_signalbox(f"/api/mcp/calls/{quote(self._id, safe='')}/end", body)


def request_visible_tool_names(server: str, tools: list[dict[str, Any]]) -> set[str]:
    """Return the names of the tools that the agent may see.

    Raises CallRefused, ServerNotAnswering, InvalidServerAnswer.
    """
    server_reply = post_to_signalbox(f"/api/mcp/listings/{quote(server, safe='')}", {"tools": tools})
    names = server_reply.get("tools")
    if not isinstance(names, list):
        raise InvalidServerAnswer("its answer cannot be understood")
    return {name for name in names if isinstance(name, str)}
