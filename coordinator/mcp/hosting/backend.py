"""One stdio server behind the gateway: its process while it is needed, and all its clients.

The server knows one client. Its callers are sessions of the streamable HTTP transport: each was sent the server's
answer to `initialize`, and each request goes in under an id of ours and comes back under its own. Requests of the
server to its client (sampling, elicitation, roots) go to the one session with a request under way. Where there are
several sessions, the one meant is unknown, and the server's request is refused.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from coordinator.errors import NotFound, SignalboxError
from coordinator.mcp.hosting import process
from coordinator.mcp.hosting.process import ServerProcess
from coordinator.mcp.hosting.stdio_configuration import ServerNotOffered, StdioConfiguration
from coordinator.mcp.hosting.streams import MessageStream
from coordinator.mcp.protocol import envelopes
from coordinator.mcp.protocol.envelopes import Envelope
from coordinator.mcp.servers.stdio_host import PROCESS_ENDED

GREETS_WITHIN = 60.0  # seconds; npx and uvx may have to fetch the server first
STEADY_AFTER = 60.0  # seconds after which an end counts as the first again
LONGEST_PAUSE = 60.0
SESSION_TTL_SECONDS = 24 * 3600.0
MOST_SESSIONS = 1_000
MOST_UNDER_WAY = 1_000
MOST_QUESTIONS = 1_000  # of the server's own that nobody has answered
LONGEST_NUMBER = 1_000  # bytes of a question's id
MAX_BACKGROUND_TASKS = 1_000  # words to the server, or about it, that are under way
SERVER_ENDED, REFUSED = -32000, -32601
INITIALIZE, INITIALIZED, CANCELLED = "initialize", "notifications/initialized", "notifications/cancelled"
# Notifications that concern every session, whichever has a request under way.
FOR_ALL = "/list_changed", "resources/updated"


@dataclass(slots=True)
class StdioSession:
    """One client's session: its `initialize`, and the stream on which it gets notifications."""

    id: str
    params: bytes
    asker: str = ""
    message_stream: MessageStream | None = None
    used_at: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class PendingRequest:
    """A request that the server works on: whose it is, and its own id and progress token."""

    session: StdioSession | None
    id: bytes
    stream: MessageStream
    token: bytes | None
    sent_token: bytes | None


@dataclass(frozen=True, slots=True)
class ProcessState:
    """How the process is: for the server's page."""

    state: str
    pid: int | None = None
    words: str = ""
    starts: int = 0
    failures: int = 0


class StdioBackend:
    """One process, all its callers, and its history. Runs on the event loop."""

    def __init__(
        self,
        configuration: StdioConfiguration,
        report_state: Callable[[ProcessState], Awaitable[None]],
        require_room: Callable[[], None],
    ) -> None:
        """`require_room` raises ServerNotOffered where no further process may be started."""
        self.configuration = configuration
        self._report_state = report_state
        self._require_room = require_room
        self._is_starting = False
        self._process: ServerProcess | None = None
        self._starting = asyncio.Lock()
        self._greeting: bytes | None = None  # what the server answered to `initialize`
        self._greeted_with: bytes | None = None
        self._sessions: dict[str, StdioSession] = {}
        self._under_way: dict[int, PendingRequest] = {}
        self._questions: dict[bytes, StdioSession] = {}  # the server's own requests, by id
        self._number = 0
        self._starts = self._failures = 0
        self._started_at = self._not_before = 0.0
        self._last_words = ""
        self._background_tasks: set[asyncio.Task[None]] = set()
        self.used_at = time.monotonic()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_process_running_or_starting(self) -> bool:
        """Say whether it takes the place of a process: it runs, or is being started."""
        return self.is_running or self._is_starting

    @property
    def is_idle(self) -> bool:
        return not self._under_way and not self._starting.locked()

    @property
    def has_sessions(self) -> bool:
        return bool(self._sessions)

    def expire_sessions_and_check_unused(self, old: float) -> bool:
        """Say whether nothing is lost with it: it does not run, nobody has a session, nothing was reported lately.

        `old` is on time.monotonic's clock. What failed lately is kept, for its patience.
        """
        self.drop_expired_stdio_sessions()
        at_rest = not self.is_running and self.is_idle and not self._sessions and not self._background_tasks
        return at_rest and max(self.used_at, self._not_before) < old

    def can_forward_request_now(self, session: StdioSession | None) -> bool:
        """Say whether a request of this session can go in at once."""
        is_greeted = session is None or self._greeting is not None
        return self.is_running and is_greeted and not self._starting.locked()

    async def ensure_process_initialized(self, session: StdioSession | None) -> None:
        """Have the process started and greeted. Raises ServerNotOffered."""
        if session is None:
            await self.get_or_start_process()
        else:
            await self.get_or_request_initialize_answer(session.params)

    # --- sessions ---------------------------------------------------------------------------------------

    async def begin_session_with_initialize_answer(
        self, params: bytes, asker: str = ""
    ) -> tuple[StdioSession, bytes]:
        """Begin a session with the params of its `initialize`; return it and the server's answer.

        `asker` identifies the caller. Raises ServerNotOffered.
        """
        self.drop_expired_stdio_sessions()
        if len(self._sessions) >= MOST_SESSIONS:
            self.evict_idle_session_or_refuse()
        if self._greeted_with not in (None, params) and not self._sessions and self.is_idle:
            await self.stop_stdio_process()  # no session is left that was sent another answer
            self._greeted_with = None
        greeting = await self.get_or_request_initialize_answer(params)
        session = StdioSession(secrets.token_urlsafe(24), params, asker)
        self._sessions[session.id] = session
        return session, greeting

    def require_and_touch_stdio_session(self, session_id: str) -> StdioSession:
        """Return a session. Raises NotFound: its client begins another one."""
        stdio_session = self._sessions.get(session_id)
        if stdio_session is None:
            raise NotFound("This session has ended. Initialize again.")
        stdio_session.used_at = self.used_at = time.monotonic()
        return stdio_session

    def end_session_and_cancel_requests(self, session: StdioSession) -> None:
        self._sessions.pop(session.id, None)
        for number in [n for n, pending in self._under_way.items() if pending.session is session]:
            self.cancel_pending_request(number)

    def drop_expired_stdio_sessions(self) -> None:
        old = time.monotonic() - SESSION_TTL_SECONDS
        for session in [
            stdio_session for stdio_session in self._sessions.values() if stdio_session.used_at < old
        ]:
            self.end_session_and_cancel_requests(session)

    def evict_idle_session_or_refuse(self) -> None:
        """End the oldest idle session of the caller with most sessions. Raises ServerNotOffered for none."""
        in_use = {session.session.id for session in self._under_way.values() if session.session is not None}
        unused = [
            open_session
            for open_session in self._sessions.values()
            if open_session.message_stream is None and open_session.id not in in_use
        ]
        if not unused:
            raise ServerNotOffered("Too many clients speak to this server.")
        session_counts = Counter(open_session.asker for open_session in self._sessions.values())
        self.end_session_and_cancel_requests(
            max(unused, key=lambda one: (session_counts[one.asker], -one.used_at))
        )

    # --- what callers say -------------------------------------------------------------------------------

    async def send_request_and_open_stream(
        self, message: Envelope, session: StdioSession | None
    ) -> tuple[int, MessageStream]:
        """Send a request; return its number and where its answer comes. Raises what `_running` does."""
        own_id = message.id
        assert own_id is not None
        if len(self._under_way) >= MOST_UNDER_WAY:
            raise ServerNotOffered("Too many requests to this server are under way.")
        if session is not None:
            await self.get_or_request_initialize_answer(session.params)
        running = await self.get_or_start_process()
        number, token = self.allocate_request_number(), message.progress_token
        sent_token = token
        if token is not None and any(token == pending.sent_token for pending in self._under_way.values()):
            sent_token = b'"sbx-%d"' % number
            message = message.copy_with_progress_token(sent_token)
        stream = MessageStream()
        self._under_way[number] = PendingRequest(session, own_id, stream, token, sent_token)
        self.used_at = time.monotonic()
        try:
            await running.send_server_line(
                message.copy_with_message_id(b"%d" % number).encode_as_jsonrpc_line()
            )
        except OSError:
            self.answer_request_if_pending(
                number, build_server_ended_error_line(own_id, self.describe_process_end())
            )
        return number, stream

    async def forward_client_message(self, message: Envelope, session: StdioSession | None) -> None:
        """Pass on a notification or an answer to the server; what means nothing to it is dropped."""
        if message.method == INITIALIZED or self._process is None:
            return
        if message.is_response:
            number = message.id
            if number is None or session is None or self._questions.get(number) is not session:
                return
            del self._questions[number]
        elif message.method == CANCELLED:
            number_of = {
                pending.id: n for n, pending in self._under_way.items() if pending.session is session
            }
            pending_number = number_of.get(message.get_message_param("requestId") or b"")
            if pending_number is None:
                return
            message = message.copy_with_message_param("requestId", b"%d" % pending_number)
            self._under_way.pop(pending_number).stream.put(b"", last=True)
        try:
            await self._process.send_server_line(message.encode_as_jsonrpc_line())
        except OSError:
            return

    def cancel_pending_request(self, number: int) -> None:
        """Record that nobody waits for an answer any more, and notify the server."""
        if self._under_way.pop(number, None) is None or self._process is None:
            return
        cancellation = {"requestId": number, "reason": "The client has gone away."}
        self.schedule_send_or_kill_process(envelopes.build_notification_line(CANCELLED, cancellation))

    def schedule_send_or_kill_process(self, line: bytes) -> None:
        if len(self._background_tasks) >= MAX_BACKGROUND_TASKS:
            self.kill_process("It does not read its input.")
        else:
            self.schedule_backend_coroutine(self.send_line_ignoring_errors(line))

    async def send_line_ignoring_errors(self, line: bytes) -> None:
        if self._process is not None:
            try:
                await self._process.send_server_line(line)
            except OSError:
                return

    def allocate_request_number(self) -> int:
        self._number += 1
        return self._number

    # --- what the server says ---------------------------------------------------------------------------

    def parse_and_dispatch_server_line(self, line: bytes) -> None:
        try:
            message = envelopes.parse_envelope(line)
        except envelopes.InvalidEnvelope:
            return  # a server's own chatter
        if message.is_response:
            number = message.id or b""
            if number.isdigit():
                self.deliver_response(int(number), message)
        elif message.is_request:
            self.forward_server_request(message)
        else:
            self.forward_server_notification(message)

    def deliver_response(self, number: int, message: Envelope) -> None:
        waiting = self._under_way.get(number)
        if waiting is not None:
            self.answer_request_if_pending(
                number, message.copy_with_message_id(waiting.id).encode_as_jsonrpc_line()
            )

    def answer_request_if_pending(self, number: int, answer: bytes) -> None:
        waiting = self._under_way.pop(number, None)
        if waiting is not None:
            self.used_at = time.monotonic()
            waiting.stream.put(answer, last=True)

    def forward_server_request(self, message: Envelope) -> None:
        askers = {
            question.session.id: question
            for question in self._under_way.values()
            if question.session is not None
        }
        number = message.id
        assert number is not None
        if len(number) > LONGEST_NUMBER:
            return  # no answer could carry its id
        if len(self._questions) >= MOST_QUESTIONS:
            self._questions = {key: one for key, one in self._questions.items() if one.id in askers}
        if len(self._questions) >= MOST_QUESTIONS:
            self.kill_process("It sent more requests than anybody answers.")
            return
        if len(askers) == 1:
            (asker,) = askers.values()
            assert asker.session is not None
            self._questions[number] = asker.session
            asker.stream.put(message.encode_as_jsonrpc_line())
            return
        error_message = (
            "Several callers share this server, so nobody can tell which of them it asks."
            if askers
            else "Nobody waits."
        )
        self.schedule_send_or_kill_process(envelopes.build_error_line(number, REFUSED, error_message))

    def kill_process(self, text: str) -> None:
        if self._process is not None:
            self._process.kill_with_reason(text)

    def forward_server_notification(self, message: Envelope) -> None:
        token = message.progress_token
        if token is not None and message.method == "notifications/progress":
            for pending in self._under_way.values():
                if pending.sent_token == token:
                    progress_token = (
                        message
                        if pending.token == token
                        else message.copy_with_progress_token(pending.token or token)
                    )
                    pending.stream.put(progress_token.encode_as_jsonrpc_line())
            return
        line, method = message.encode_as_jsonrpc_line(), message.method or ""
        sent_sessions = set()
        if not method.endswith(FOR_ALL):
            for pending in self._under_way.values():
                if pending.session is not None and pending.session.id not in sent_sessions:
                    sent_sessions.add(pending.session.id)
                    pending.stream.put(line)
        for session in self._sessions.values():
            if session.message_stream is not None and session.id not in sent_sessions:
                session.message_stream.put(line)

    # --- the process ------------------------------------------------------------------------------------

    async def get_or_request_initialize_answer(self, params: bytes) -> bytes:
        """Return what the server answered to `initialize`, after sending it to a process that has not had it."""
        running = await self.get_or_start_process()
        async with self._starting:
            if self._greeting is not None:
                return self._greeting
            if running is not self._process:
                raise ServerNotOffered(self.describe_process_end())
            return await self.initialize_process_and_return_answer(running, self._greeted_with or params)

    async def initialize_process_and_return_answer(self, running: ServerProcess, params: bytes) -> bytes:
        number, stream = self.allocate_request_number(), MessageStream()
        self._under_way[number] = PendingRequest(None, b"0", stream, None, None)
        try:
            async with asyncio.timeout(GREETS_WITHIN):
                await running.send_server_line(
                    envelopes.build_request_line(b"%d" % number, INITIALIZE, params)
                )
                answer, _ = await stream.get()
        except (TimeoutError, OSError):
            self._under_way.pop(number, None)
            stderr_text = self.describe_stderr_tail(running)
            failure_text = f"The server did not answer within {GREETS_WITHIN:.0f} seconds.{stderr_text}"
            await running.stop_gracefully()
            raise ServerNotOffered(failure_text) from None
        result = envelopes.parse_envelope(answer).fields.get("result")
        if result is None:
            raise ServerNotOffered(f"The server refused: {running.redact_output(answer)[:500]}")
        await running.send_server_line(envelopes.build_notification_line(INITIALIZED))
        self._greeting, self._greeted_with = bytes(result), params
        return self._greeting

    async def get_or_start_process(self) -> ServerProcess:
        """Return the process, started where it is not. Raises ServerNotOffered."""
        async with self._starting:
            if self._process is not None:
                return self._process
            remaining_seconds = self._not_before - time.monotonic()
            if remaining_seconds > 0:
                raise ServerNotOffered(
                    f"{self.describe_process_end()} The next try is in {remaining_seconds:.0f} s.",
                    retry_after=int(remaining_seconds) + 1,
                )
            return await self.require_capacity_and_start_process()

    async def require_capacity_and_start_process(self) -> ServerProcess:
        self._require_room()
        self._is_starting = True
        try:
            return await self.spawn_process()
        finally:
            self._is_starting = False

    async def spawn_process(self) -> ServerProcess:
        configuration = self.configuration
        number = self._starts = self._starts + 1
        try:
            started = await process.start_server_process(
                await asyncio.to_thread(configuration.prepare_isolated_server_command_line),
                configuration.environment,
                configuration.folder,
                self.parse_and_dispatch_server_line,
                lambda status, fault: self.record_end_and_fail_requests(number, status, fault),
            )
        except SignalboxError as problem:  # it may not be started as it is configured
            self.record_failure_and_back_off(str(problem.detail))
            raise ServerNotOffered(self._last_words) from None
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else problem
            self.record_failure_and_back_off(f"{configuration.command[0]} cannot be started: {reason}.")
            raise ServerNotOffered(self._last_words) from None
        self._process, self._started_at, self._greeting = started, time.monotonic(), None
        self.schedule_process_state_report("running")
        return started

    def record_end_and_fail_requests(self, number: int, status: int, reason: str) -> None:
        """Take note that the process ended: answer all who wait, and be patient where it was not asked to."""
        if number != self._starts or self._process is None:
            return  # it was stopped
        ended, self._process = self._process, None
        if time.monotonic() - self._started_at > STEADY_AFTER:
            self._failures = 0
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        self.record_failure_and_back_off(
            f"The server {how}. {reason}{self.describe_stderr_tail(ended)}".strip()
        )
        self.fail_pending_requests(self._last_words)

    def record_failure_and_back_off(self, text: str) -> None:
        self._failures += 1
        self._last_words = text
        pause = 0.0 if self._failures == 1 else min(LONGEST_PAUSE, 2.0 ** (self._failures - 1))
        self._not_before = time.monotonic() + pause
        self.schedule_process_state_report("failed")

    def fail_pending_requests(self, text: str) -> None:
        self._greeting = None
        self._questions = {}
        for number, pending in list(self._under_way.items()):
            self.answer_request_if_pending(number, build_server_ended_error_line(pending.id, text))

    def describe_process_end(self) -> str:
        return self._last_words or "The server has ended."

    @staticmethod
    def describe_stderr_tail(running: ServerProcess) -> str:
        return f" It said: {running.stderr_tail[-600:]}" if running.stderr_tail else ""

    async def stop_stdio_process(self, text: str = "The server was stopped.") -> None:
        """End the process; its sessions stay, and start it again when they need it."""
        async with self._starting:
            running, self._process = self._process, None
            if running is None:
                return
            self.fail_pending_requests(text)
            await running.stop_gracefully()
            self.schedule_process_state_report("stopped")

    def schedule_process_state_report(self, state: str) -> None:
        running = self._process
        process_state = ProcessState(
            state, running.pid if running else None, self._last_words, self._starts, self._failures
        )
        self.schedule_backend_coroutine(self._report_state(process_state))

    def schedule_backend_coroutine(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)


def build_server_ended_error_line(number: bytes, text: str) -> bytes:
    """Return the answer to a request whose server has ended, which is not the server's own."""
    return envelopes.build_error_line(number, SERVER_ENDED, text, {PROCESS_ENDED: True})
