"""Report what a program says, calls and uses, as telemetry (OTLP over HTTP), into the session of its conversation.

What is reported again under the same `key` is recorded once, so a program that starts again may report all of it again.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from signalbox_sdk.connection import (
    REQUEST_TIMEOUT_SECONDS,
    Connection,
    RequestRefused,
    ServerUnavailable,
)

PATH = "/v1/traces"
MAX_RESULT_CHARACTERS = 200_000  # of a report; the run itself keeps all
REPORT_TIMEOUT_SECONDS = 5.0  # a run waits no longer for a report
RETRY_AFTER_SECONDS = 5.0  # while the server is away
MAX_QUEUED_REPORTS = 1000  # of a run while the server is away: the oldest are lost first

log = logging.getLogger("signalbox_sdk")


def session(
    conversation: str, *, agent: str | None = None, connection: Connection | None = None
) -> ReportedSession:
    """Return the session of a conversation, to which questions with the same `conversation` belong."""
    return ReportedSession(conversation, agent, connection or Connection())


@dataclass(frozen=True)
class ReportedSession:
    """A session that a program reports. Each method sends one report, and raises where the server did not take it.

    The methods raise ServerUnavailable or RequestRefused.
    """

    conversation: str
    agent: str | None = None
    connection: Connection = field(default_factory=Connection)

    def report_model_request(
        self,
        model: str,
        *,
        prompt: str = "",
        answer: str = "",
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        key: str | None = None,
    ) -> None:
        """Report a request to a model: what was said, and the tokens that it used (`input_tokens` with cached ones)."""
        report = ModelRequestReport(
            model, prompt, answer, input_tokens, output_tokens, cache_read_tokens, key
        )
        self.send_report(report)

    def report_tool_call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        result: Any = None,
        *,
        error: str | None = None,
        key: str | None = None,
    ) -> None:
        """Report a call that has ended."""
        self.send_report(ToolCallReport(tool, arguments, result, error, key))

    def send_report(self, report: Report, *, timeout: float = REQUEST_TIMEOUT_SECONDS) -> None:
        """Send one report. Raises ServerUnavailable or RequestRefused."""
        self.connection.send("POST", PATH, self.build_body(report), timeout=timeout)

    async def send_report_async(self, report: Report, *, timeout: float = REQUEST_TIMEOUT_SECONDS) -> None:
        """Do the same without blocking the event loop."""
        await self.connection.send_async("POST", PATH, self.build_body(report), timeout=timeout)

    def build_body(self, report: Report) -> dict[str, Any]:
        """Return a report's body. Its ids are those by which the server records it once, however often it comes."""
        name, attributes, error = report.build_span_fields()
        digest = hashlib.sha256(
            f"{self.conversation}\n{name}\n{report.key or uuid.uuid4().hex}".encode()
        ).hexdigest()
        attributes["gen_ai.conversation.id"] = self.conversation
        if self.agent:
            attributes["gen_ai.agent.name"] = self.agent
        now = str(time.time_ns())
        span: dict[str, Any] = {
            "traceId": digest[:32],
            "spanId": digest[32:48],
            "name": name,
            "startTimeUnixNano": now,
            "endTimeUnixNano": now,
            "attributes": [
                {"key": attribute, "value": encode_otlp_attribute_value(value)}
                for attribute, value in attributes.items()
            ],
        }
        if error is not None:
            span["status"] = {"code": 2, "message": error}
        return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


@dataclass(frozen=True)
class ModelRequestReport:
    """A request to a model that was answered. `input_tokens` include cached ones."""

    model: str
    prompt: str = ""
    answer: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    key: str | None = None

    def build_span_fields(self) -> tuple[str, dict[str, Any], str | None]:
        """Return the span's name, its attributes, and how it failed."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self.model,
            "gen_ai.usage.input_tokens": self.input_tokens,
            "gen_ai.usage.output_tokens": self.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": self.cache_read_tokens,
        }
        for name, role, text in (("input", "user", self.prompt), ("output", "assistant", self.answer)):
            if text:
                message = {"role": role, "parts": [{"type": "text", "content": text}]}
                attributes[f"gen_ai.{name}.messages"] = json.dumps([message])
        return f"chat {self.model}", attributes, None


@dataclass(frozen=True)
class ToolCallReport:
    """A call of a tool that has ended."""

    tool: str
    arguments: Mapping[str, Any]
    result: Any = None
    error: str | None = None
    key: str | None = None

    def build_span_fields(self) -> tuple[str, dict[str, Any], str | None]:
        """Return the span's name, its attributes, and how it failed."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": self.tool,
            "gen_ai.tool.call.id": self.key or uuid.uuid4().hex,
            "gen_ai.tool.call.arguments": json.dumps(dict(self.arguments), default=str),
            "gen_ai.tool.call.result": encode_tool_result(self.result),
        }
        return f"execute_tool {self.tool}", attributes, self.error


Report = ModelRequestReport | ToolCallReport


class RunReporter:
    """Reports what a run does as it does it, for the adapters of SDKs.

    Reporting stops no run, and each report is recorded once, in the order in which they were made. A report that the
    server cannot take now waits in memory with all that follow it, and a thread sends them when the server is back. A
    run waits for the first of them alone. Lost are, with a line in the log: what the server refuses, the oldest of
    more than `MAX_QUEUED_REPORTS`, and what still waits some seconds after the program has ended.
    """

    def __init__(
        self, conversation: str, agent: str | None = None, connection: Connection | None = None
    ) -> None:
        self._session = session(conversation, agent=agent, connection=connection)
        self._lock = threading.Lock()  # of the queue and of who sends it
        self._queue: deque[dict[str, Any]] = deque(maxlen=MAX_QUEUED_REPORTS)
        self._sender: threading.Thread | None = None  # while the queue has to be sent
        self._is_ending = threading.Event()

    def send_report(self, report: Report) -> None:
        """Send a report, behind those that wait for the server."""
        with log_reporting_failures():
            body = self._session.build_body(report)
            if self._queue_if_others_wait(body):
                return
            try:
                self._session.connection.send("POST", PATH, body, timeout=REPORT_TIMEOUT_SECONDS)
            except ServerUnavailable as problem:
                self._queue_and_start_sending(body, problem)

    async def send_report_async(self, report: Report) -> None:
        """Do the same without blocking the event loop."""
        with log_reporting_failures():
            body = self._session.build_body(report)
            if self._queue_if_others_wait(body):
                return
            try:
                await self._session.connection.send_async("POST", PATH, body, timeout=REPORT_TIMEOUT_SECONDS)
            except ServerUnavailable as problem:
                self._queue_and_start_sending(body, problem)

    def _queue_if_others_wait(self, body: dict[str, Any]) -> bool:
        """Put a report into the queue if others wait there, and say whether it was."""
        with self._lock:
            if self._sender is None:
                return False
            if len(self._queue) == MAX_QUEUED_REPORTS:
                log.warning("Signalbox is away: the oldest report of this run is lost.")
            self._queue.append(body)
            return True

    def _queue_and_start_sending(self, body: dict[str, Any], problem: ServerUnavailable) -> None:
        """Put a report that failed into the queue, and start to send it."""
        if self._queue_if_others_wait(body):
            return
        log.warning("Reports to Signalbox wait until it is back: %s", problem)
        with self._lock:
            self._queue.append(body)
            if self._sender is None:
                self._sender = threading.Thread(
                    target=self._send_queued_reports, name="signalbox-reports", daemon=True
                )
                atexit.register(self._send_queued_reports_at_exit)
                self._sender.start()

    def _send_queued_reports(self) -> None:
        """Send what waits, the oldest first, until nothing does."""
        self._is_ending.wait(RETRY_AFTER_SECONDS)
        while body := self._peek_queued_report_or_stop():
            try:
                with log_reporting_failures(ServerUnavailable):
                    self._session.connection.send("POST", PATH, body, timeout=REPORT_TIMEOUT_SECONDS)
            except ServerUnavailable:
                if self._is_ending.is_set():
                    return
                self._is_ending.wait(RETRY_AFTER_SECONDS)
                continue
            with self._lock:
                if self._queue and self._queue[0] is body:  # it may have been lost to a newer one meanwhile
                    self._queue.popleft()

    def _peek_queued_report_or_stop(self) -> dict[str, Any] | None:
        """Return the oldest report that waits. None: there is none, and the next one is sent at once again."""
        with self._lock:
            if self._queue:
                return self._queue[0]
            self._sender = None
        atexit.unregister(self._send_queued_reports_at_exit)
        return None

    def _send_queued_reports_at_exit(self) -> None:
        """Try once more to send what waits when the program ends."""
        sender = self._sender
        self._is_ending.set()
        if sender is not None:
            sender.join(REPORT_TIMEOUT_SECONDS)
        if self._queue:
            log.warning("Signalbox is away: the last %s reports of this run are lost.", len(self._queue))


@contextmanager
def log_reporting_failures(*raised: type[Exception]) -> Iterator[None]:
    """Log what fails within, as an attribute that another version of an SDK lacks: reporting stops no run.

    Args:
        raised: What is raised all the same.
    """
    try:
        yield
    except Exception as problem:
        if isinstance(problem, raised):
            raise
        is_expected = isinstance(problem, RequestRefused)
        log.warning("Not reported to Signalbox: %s", problem, exc_info=None if is_expected else problem)


def encode_tool_result(result: Any) -> str:
    """Return a tool's result as JSON; of one that is too long, or no JSON, the beginning of its text."""
    try:
        encoded = json.dumps(result)
    except (TypeError, ValueError):
        encoded = json.dumps(str(result))
    return encoded if len(encoded) <= MAX_RESULT_CHARACTERS else json.dumps(encoded[:MAX_RESULT_CHARACTERS])


def read_count(value: Any) -> int:
    """Return a number of tokens; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def read_text(content: Any) -> str:
    """Return the text of a message, whose content is a text or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list | tuple) else []
    texts = [
        block if isinstance(block, str) else block.get("text")
        for block in blocks
        if isinstance(block, str | dict)
    ]
    return "\n".join(text for text in texts if isinstance(text, str))


def encode_otlp_attribute_value(value: Any) -> dict[str, Any]:
    """Return an attribute's value as OTLP's JSON writes it."""
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}
