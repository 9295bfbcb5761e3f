"""One stdio server behind the gateway: its process while it is needed, and all its clients.

The server knows one client. Who speaks to it are sessions of the streamable HTTP transport: each was told what the
server answered to `initialize`, each request goes in under an id of ours and comes back under its own. What the server
asks its client (sampling, elicitation, roots) goes to the one session with a request under way; where there are several
it cannot be told whom it means, and it is refused.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from coordinator.errors import NotFound, SignalboxError
from coordinator.hosting import envelopes, process
from coordinator.hosting.configured import Configuration, NotOffered
from coordinator.hosting.envelopes import Envelope
from coordinator.hosting.process import ServerProcess
from coordinator.hosting.streams import Stream

GREETS_WITHIN = 60.0  # seconds; npx and uvx may have to fetch the server first
STEADY_AFTER = 60.0  # seconds after which an end counts as the first again
LONGEST_PAUSE = 60.0
SESSION_KEPT = 24 * 3600.0
MOST_SESSIONS = 1_000
MOST_UNDER_WAY = 1_000
MOST_QUESTIONS = 1_000  # of the server's own that nobody has answered
LONGEST_NUMBER = 1_000  # bytes of a question's id
MOST_TOLD = 1_000  # words to the server, or about it, that are under way
SERVER_ENDED, REFUSED = -32000, -32601
INITIALIZE, INITIALIZED, CANCELLED = "initialize", "notifications/initialized", "notifications/cancelled"
# What concerns every session, whoever has a request under way.
FOR_ALL = "/list_changed", "resources/updated"


@dataclass(slots=True)
class Session:
    """One client's session: its `initialize`, and the stream on which it gets notifications."""

    id: str
    params: bytes
    asker: str = ""
    news: Stream | None = None
    used_at: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class UnderWay:
    """A request that the server works on: whose it is, and its own id and progress token."""

    session: Session | None
    id: bytes
    stream: Stream
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


class Backend:
    """One process, all its callers, and its history. Runs on the event loop."""

    def __init__(
        self,
        configuration: Configuration,
        tell: Callable[[ProcessState], Awaitable[None]],
        require_room: Callable[[], None],
    ) -> None:
        """`require_room` raises NotOffered where no further process may be started."""
        self.configuration = configuration
        self._tell = tell
        self._require_room = require_room
        self._is_starting = False
        self._process: ServerProcess | None = None
        self._starting = asyncio.Lock()
        self._greeting: bytes | None = None  # what the server answered to `initialize`
        self._greeted_with: bytes | None = None
        self._sessions: dict[str, Session] = {}
        self._under_way: dict[int, UnderWay] = {}
        self._questions: dict[bytes, Session] = {}  # the server's own requests, by id
        self._number = 0
        self._starts = self._failures = 0
        self._started_at = self._not_before = 0.0
        self._last_words = ""
        self._telling: set[asyncio.Task[None]] = set()
        self.used_at = time.monotonic()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def has_process(self) -> bool:
        """Say whether it takes the place of a process: it runs, or is being started."""
        return self.is_running or self._is_starting

    @property
    def is_idle(self) -> bool:
        return not self._under_way and not self._starting.locked()

    @property
    def has_sessions(self) -> bool:
        return bool(self._sessions)

    def is_forgettable(self, old: float) -> bool:
        """Say whether nothing is lost with it: it does not run, nobody has a session, nothing was reported lately.

        `old` is on time.monotonic's clock. What failed lately is kept, for its patience.
        """
        self._forget_old_sessions()
        at_rest = not self.is_running and self.is_idle and not self._sessions and not self._telling
        return at_rest and max(self.used_at, self._not_before) < old

    def is_ready(self, session: Session | None) -> bool:
        """Say whether a request of this session can go in at once."""
        is_greeted = session is None or self._greeting is not None
        return self.is_running and is_greeted and not self._starting.locked()

    async def get_ready(self, session: Session | None) -> None:
        """Have the process started and greeted. Raises NotOffered."""
        if session is None:
            await self._running()
        else:
            await self._greeted(session.params)

    # --- sessions ---------------------------------------------------------------------------------------

    async def begin(self, params: bytes, asker: str = "") -> tuple[Session, bytes]:
        """Begin a session with the params of its `initialize`; return it and the server's answer.

        `asker` tells callers apart. Raises NotOffered.
        """
        self._forget_old_sessions()
        if len(self._sessions) >= MOST_SESSIONS:
            self._end_one_unused()
        if self._greeted_with not in (None, params) and not self._sessions and self.is_idle:
            await self.stop()  # nobody is there who was told another answer
            self._greeted_with = None
        greeting = await self._greeted(params)
        session = Session(secrets.token_urlsafe(24), params, asker)
        self._sessions[session.id] = session
        return session, greeting

    def session(self, session_id: str) -> Session:
        """Return a session. Raises NotFound: its client begins another one."""
        found = self._sessions.get(session_id)
        if found is None:
            raise NotFound("This session has ended. Initialize again.")
        found.used_at = self.used_at = time.monotonic()
        return found

    def end(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        for number in [n for n, one in self._under_way.items() if one.session is session]:
            self.give_up(number)

    def _forget_old_sessions(self) -> None:
        old = time.monotonic() - SESSION_KEPT
        for session in [one for one in self._sessions.values() if one.used_at < old]:
            self.end(session)

    def _end_one_unused(self) -> None:
        """End a session with nothing under way: the oldest of whoever has most. Raises NotOffered for none."""
        in_use = {one.session.id for one in self._under_way.values() if one.session is not None}
        unused = [one for one in self._sessions.values() if one.news is None and one.id not in in_use]
        if not unused:
            raise NotOffered("Too many clients speak to this server.")
        shares = Counter(one.asker for one in self._sessions.values())
        self.end(max(unused, key=lambda one: (shares[one.asker], -one.used_at)))

    # --- what callers say -------------------------------------------------------------------------------

    async def ask(self, message: Envelope, session: Session | None) -> tuple[int, Stream]:
        """Send a request; return its number and where its answer comes. Raises what `_running` does."""
        own_id = message.id
        assert own_id is not None
        if len(self._under_way) >= MOST_UNDER_WAY:
            raise NotOffered("Too many requests to this server are under way.")
        if session is not None:
            await self._greeted(session.params)
        running = await self._running()
        number, token = self._next(), message.progress_token
        sent = token
        if token is not None and any(token == one.sent_token for one in self._under_way.values()):
            sent = b'"sbx-%d"' % number
            message = message.with_progress_token(sent)
        stream = Stream()
        self._under_way[number] = UnderWay(session, own_id, stream, token, sent)
        self.used_at = time.monotonic()
        try:
            await running.send(message.with_id(b"%d" % number).line())
        except OSError:
            self._answer(number, envelopes.error(own_id, SERVER_ENDED, self._ended_words()))
        return number, stream

    async def say(self, message: Envelope, session: Session | None) -> None:
        """Pass on a notification or an answer to the server; what means nothing to it is dropped."""
        if message.method == INITIALIZED or self._process is None:
            return
        if message.is_response:
            number = message.id
            if number is None or session is None or self._questions.get(number) is not session:
                return
            del self._questions[number]
        elif message.method == CANCELLED:
            number_of = {one.id: n for n, one in self._under_way.items() if one.session is session}
            meant = number_of.get(message.param("requestId") or b"")
            if meant is None:
                return
            message = message.with_param("requestId", b"%d" % meant)
            self._under_way.pop(meant).stream.put(b"", last=True)
        try:
            await self._process.send(message.line())
        except OSError:
            return

    def give_up(self, number: int) -> None:
        """Take note that nobody waits for an answer any more, and tell the server."""
        if self._under_way.pop(number, None) is None or self._process is None:
            return
        words = {"requestId": number, "reason": "The client has gone away."}
        self._say_later(envelopes.notification(CANCELLED, words))

    def _say_later(self, line: bytes) -> None:
        if len(self._telling) >= MOST_TOLD:
            self._break_off("It does not read its input.")
        else:
            self._later(self._say_quietly(line))

    async def _say_quietly(self, line: bytes) -> None:
        if self._process is not None:
            try:
                await self._process.send(line)
            except OSError:
                return

    def _next(self) -> int:
        self._number += 1
        return self._number

    # --- what the server says ---------------------------------------------------------------------------

    def _hear(self, line: bytes) -> None:
        try:
            message = envelopes.read(line)
        except envelopes.NoMessage:
            return  # a server's own chatter
        if message.is_response:
            number = message.id or b""
            if number.isdigit():
                self._finish(int(number), message)
        elif message.is_request:
            self._put_question(message)
        else:
            self._pass_on(message)

    def _finish(self, number: int, message: Envelope) -> None:
        waiting = self._under_way.get(number)
        if waiting is not None:
            self._answer(number, message.with_id(waiting.id).line())

    def _answer(self, number: int, answer: bytes) -> None:
        waiting = self._under_way.pop(number, None)
        if waiting is not None:
            self.used_at = time.monotonic()
            waiting.stream.put(answer, last=True)

    def _put_question(self, message: Envelope) -> None:
        askers = {one.session.id: one for one in self._under_way.values() if one.session is not None}
        number = message.id
        assert number is not None
        if len(number) > LONGEST_NUMBER:
            return  # nobody could be told what it was about
        if len(self._questions) >= MOST_QUESTIONS:
            self._questions = {key: one for key, one in self._questions.items() if one.id in askers}
        if len(self._questions) >= MOST_QUESTIONS:
            self._break_off("It sent more requests than anybody answers.")
            return
        if len(askers) == 1:
            (asker,) = askers.values()
            assert asker.session is not None
            self._questions[number] = asker.session
            asker.stream.put(message.line())
            return
        words = (
            "Several callers share this server, so nobody can tell which of them it asks."
            if askers
            else "Nobody waits."
        )
        self._say_later(envelopes.error(number, REFUSED, words))

    def _break_off(self, words: str) -> None:
        if self._process is not None:
            self._process.kill(words)

    def _pass_on(self, message: Envelope) -> None:
        token = message.progress_token
        if token is not None and message.method == "notifications/progress":
            for one in self._under_way.values():
                if one.sent_token == token:
                    told = message if one.token == token else message.with_progress_token(one.token or token)
                    one.stream.put(told.line())
            return
        line, method = message.line(), message.method or ""
        sent = set()
        if not method.endswith(FOR_ALL):
            for one in self._under_way.values():
                if one.session is not None and one.session.id not in sent:
                    sent.add(one.session.id)
                    one.stream.put(line)
        for session in self._sessions.values():
            if session.news is not None and session.id not in sent:
                session.news.put(line)

    # --- the process ------------------------------------------------------------------------------------

    async def _greeted(self, params: bytes) -> bytes:
        """Return what the server answered to `initialize`, after sending it to a process that has not had it."""
        running = await self._running()
        async with self._starting:
            if self._greeting is not None:
                return self._greeting
            if running is not self._process:
                raise NotOffered(self._ended_words())
            return await self._greet(running, self._greeted_with or params)

    async def _greet(self, running: ServerProcess, params: bytes) -> bytes:
        number, stream = self._next(), Stream()
        self._under_way[number] = UnderWay(None, b"0", stream, None, None)
        try:
            async with asyncio.timeout(GREETS_WITHIN):
                await running.send(envelopes.request(b"%d" % number, INITIALIZE, params))
                answer, _ = await stream.get()
        except (TimeoutError, OSError):
            self._under_way.pop(number, None)
            words = f"The server did not answer within {GREETS_WITHIN:.0f} seconds.{self._said(running)}"
            await running.stop()
            raise NotOffered(words) from None
        found = envelopes.read(answer).fields.get("result")
        if found is None:
            raise NotOffered(f"The server refused: {running.without_secrets(answer)[:500]}")
        await running.send(envelopes.notification(INITIALIZED))
        self._greeting, self._greeted_with = bytes(found), params
        return self._greeting

    async def _running(self) -> ServerProcess:
        """Return the process, started where it is not. Raises NotOffered."""
        async with self._starting:
            if self._process is not None:
                return self._process
            left = self._not_before - time.monotonic()
            if left > 0:
                raise NotOffered(
                    f"{self._ended_words()} The next try is in {left:.0f} s.", retry_after=int(left) + 1
                )
            return await self._start()

    async def _start(self) -> ServerProcess:
        self._require_room()
        self._is_starting = True
        try:
            return await self._started()
        finally:
            self._is_starting = False

    async def _started(self) -> ServerProcess:
        configuration = self.configuration
        number = self._starts = self._starts + 1
        try:
            started = await process.start(
                await asyncio.to_thread(configuration.command_line),
                configuration.environment,
                configuration.folder,
                self._hear,
                lambda status, fault: self._note_end(number, status, fault),
            )
        except SignalboxError as problem:  # it may not be started as it is configured
            self._fail(str(problem.detail))
            raise NotOffered(self._last_words) from None
        except (OSError, ValueError) as problem:
            why = problem.strerror if isinstance(problem, OSError) else problem
            self._fail(f"{configuration.command[0]} cannot be started: {why}.")
            raise NotOffered(self._last_words) from None
        self._process, self._started_at, self._greeting = started, time.monotonic(), None
        self._report("running")
        return started

    def _note_end(self, number: int, status: int, fault: str) -> None:
        """Take note that the process ended: answer all who wait, and be patient where it was not asked to."""
        if number != self._starts or self._process is None:
            return  # it was stopped
        ended, self._process = self._process, None
        if time.monotonic() - self._started_at > STEADY_AFTER:
            self._failures = 0
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        self._fail(f"The server {how}. {fault}{self._said(ended)}".strip())
        self._drop_all(self._last_words)

    def _fail(self, words: str) -> None:
        self._failures += 1
        self._last_words = words
        pause = 0.0 if self._failures == 1 else min(LONGEST_PAUSE, 2.0 ** (self._failures - 1))
        self._not_before = time.monotonic() + pause
        self._report("failed")

    def _drop_all(self, words: str) -> None:
        self._greeting = None
        self._questions = {}
        for number, one in list(self._under_way.items()):
            self._answer(number, envelopes.error(one.id, SERVER_ENDED, words))

    def _ended_words(self) -> str:
        return self._last_words or "The server has ended."

    @staticmethod
    def _said(running: ServerProcess) -> str:
        return f" It said: {running.words[-600:]}" if running.words else ""

    async def stop(self, words: str = "The server was stopped.") -> None:
        """End the process; its sessions stay, and start it again when they need it."""
        async with self._starting:
            running, self._process = self._process, None
            if running is None:
                return
            self._drop_all(words)
            await running.stop()
            self._report("stopped")

    def _report(self, state: str) -> None:
        running = self._process
        process_state = ProcessState(
            state, running.pid if running else None, self._last_words, self._starts, self._failures
        )
        self._later(self._tell(process_state))

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
