"""`POST /hooks/claude-code`: whatever Claude Code tells, at the rate it tells it. It never waits for us to write.

Hooks are not sent again, and Claude Code stands still while one is out. So what came in is written as soon as the
database can, and the answer goes out when it is committed. A database that takes its time holds nobody up: after
`ANSWER_AFTER` the answer goes out, and we go on trying for `WRITE_WITHIN`. What could not be written by then, or
is refused before, is a line in the log, and an event in its session as soon as that can be written: a gap is seen.

A hook that policy or people decide is answered in any case: a denial holds though nothing can be written, and
anything that goes wrong here leaves the call to Claude Code's own prompt. Only a status outside 2xx would show the
person an error; those are for what a person must mend (a key, a body that is no hook) and for what is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from django.conf import settings
from django.utils import timezone

from coordinator import instants
from coordinator.actions import claude_code as sessions
from coordinator.actions import tool_calls
from coordinator.actions.claude_code import Known, Whereabouts
from coordinator.actions.events import NewEvent
from coordinator.actions.keys import KeyIdentity
from coordinator.actions.tool_calls import AskedCall, Settled
from coordinator.dialects import claude_code as dialect
from coordinator.dialects.claude_code import Answer, Hook
from coordinator.edge.asking import Asker
from coordinator.edge.auth import Admission, Authenticator
from coordinator.edge.bridge import Receive, Scope, Send
from coordinator.edge.http import Gone, Headers, headers_of, plain_body, read_body, send_json
from coordinator.edge.polls import seconds
from coordinator.edge.rulings import Rulings
from coordinator.edge.writer import GroupWriter, not_written
from coordinator.errors import NotFound, SignalboxError, Unauthorized
from coordinator.tool_rules import ALLOW, ASK, DENY, NO_OPINION, Ruling

log = logging.getLogger(__name__)

T = TypeVar("T")

SCOPES = ("agent",)
DECIDED = frozenset({"PreToolUse", "PermissionRequest"})
# Seconds a hook waits for a person where its address does not say (`?wait=`): some versions give up after 60.
WAIT = 50.0
LONGEST_WAIT = 6 * 3600.0
MOST_BYTES = 20 * 1024 * 1024
MOST_KNOWN = 20_000  # sessions whose ids a process remembers
KNOWN_FOR = 60.0  # seconds without a hook after which it looks again: silence may have ended the session
ANSWER_AFTER = 0.25  # seconds after which a hook is answered although it is not written yet
DECIDE_WITHIN = 3.0  # seconds for which a hook that policy or people decide may wait for the database
WRITE_WITHIN = 30.0  # seconds for which a hook that is answered already may wait for the database
BEGINNINGS = frozenset({"SessionStart", "UserPromptSubmit"})
CANNOT_RUN: Settled = {
    "status": "denied",
    "allowed": False,
    "reason": "the edited call holds a mask whose secret is not known here. Ask again.",
}
ENDS_OF_TURN = frozenset({"Stop", "StopFailure", "SessionEnd", "UserPromptSubmit"})


class ClaudeCodeDoor:
    """The door for Claude Code's hooks. One a process."""

    def __init__(self, auth: Authenticator, recorder: Recorder, rulings: Rulings, asker: Asker) -> None:
        self._auth = auth
        self._recorder = recorder
        self._rulings = rulings
        self._asker = asker

    async def hook(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one hook in and answer it; empty, which leaves everything to Claude Code, unless policy speaks."""
        headers = headers_of(scope)
        admission = await self._auth.admit(scope, headers, *SCOPES)
        wait = seconds(scope, "wait", default=WAIT, most=LONGEST_WAIT)
        body = await plain_body(await read_body(receive, headers, MOST_BYTES), headers, MOST_BYTES)
        hook = dialect.hook_of(body, instants.canonical(timezone.now()))
        asks = _Asks(admission, where_of(hook, headers, admission.caller), wait, len(body), receive)
        if hook.name not in DECIDED or not hook.text("tool_name"):
            await self._recorder.observe(hook, asks.where, asks.size)
            await send_no_opinion(send)
            return
        answer = await self._decision(hook, asks)
        await (send_no_opinion(send) if answer is None else send_json(send, 200, answer))

    async def _decision(self, hook: Hook, asks: _Asks) -> Answer | None:
        """Return the hook's answer, once it is known; None leaves the call to Claude Code, whatever went wrong.

        Raises Unauthorized where the hook's key was revoked while it waited for a person.
        """
        try:
            ruling = await self._rulings.on(hook.tool, dialect.about(hook), asks.caller.agent_id)
            if ruling.decision == DENY:
                return await self._denied(hook, ruling, asks)
            if ruling.decision in {ALLOW, ASK} or hook.name == "PermissionRequest":
                return await self._decided(hook, ruling, asks)
            await self._recorder.observe(hook, asks.where, asks.size, ruling)
        except Unauthorized:
            raise
        except Gone:
            log.debug("the asker of %s in %s is gone", hook.name, hook.session)
        except SignalboxError as refusal:
            log.warning(
                "A hook %s of %s is left to its terminal: %s", hook.name, hook.session, refusal.detail
            )
        except Exception:
            log.exception("A hook %s of %s is left to its terminal", hook.name, hook.session)
        return None

    async def _denied(self, hook: Hook, ruling: Ruling, asks: _Asks) -> Answer:
        """Write down what policy denies; it is denied even where that fails."""
        try:
            await self._decided(hook, ruling, asks)
        except Exception:
            log.exception("A hook %s of %s is denied, but not all of it is written", hook.name, hook.session)
        return dialect.answer_of_ruling(hook, ruling)

    async def _decided(self, hook: Hook, ruling: Ruling, asks: _Asks) -> Answer | None:
        """Return the hook's answer when all is written, None for no opinion. Raises Gone for a caller that left."""
        with contextlib.suppress(SignalboxError):  # it is in the log, and will be in the session
            await self._recorder.observe(hook, asks.where, asks.size, ruling)
        known = await self._recorder.session_of(hook, asks.where, within=DECIDE_WITHIN)
        call = dialect.call_of(hook, known.session_id, asks.caller.agent_id)
        answer: Answer | None
        if ruling.decision in {ALLOW, DENY}:
            note = functools.partial(
                tool_calls.note_ruling, call, ruling, by=asks.caller.actor, now=timezone.now()
            )
            await self._recorder.perform(note, within=DECIDE_WITHIN)
            answer = dialect.answer_of_ruling(hook, ruling)
        else:
            call, answer = await self._asked(hook, call, ruling, asks)
        if answer is not None:
            refused = dialect.refused(hook, call.session_id, call.call_id, answer)
            with contextlib.suppress(SignalboxError):  # likewise: a person's word holds, too
                await self._recorder.write(hook, refused, 0, asks.caller)
        return answer

    async def _asked(
        self, hook: Hook, call: AskedCall, ruling: Ruling, asks: _Asks
    ) -> tuple[AskedCall, Answer | None]:
        wait = min(asks.wait, ruling.wait_seconds or asks.wait)
        call, settled = await self._asker.ask(
            call,
            ruling,
            by=asks.caller.actor,
            wait=wait,
            still_allowed=asks.admission.still_allowed,
            receive=asks.receive,
        )
        if settled["status"] == "expired":
            return call, dialect.answer_of_silence(hook, wait, deny=ruling.deny_at_deadline)
        if settled["status"] == "elsewhere":
            return call, None
        unmasked = tool_calls.unmasked(settled, call)
        return call, dialect.answer_of_person(hook, unmasked or CANNOT_RUN)


@dataclass(frozen=True, slots=True)
class _Asks:
    """Whose hook it is, from where, how long it may wait, its length in bytes, and its line."""

    admission: Admission
    where: Whereabouts
    wait: float
    size: int
    receive: Receive

    @property
    def caller(self) -> KeyIdentity:
        """Whose hook it is."""
        return self.admission.caller


def where_of(hook: Hook, headers: Headers, caller: KeyIdentity) -> Whereabouts:
    """Return where the hook's session runs; the machine's name comes as a header, which settings can add."""
    host = unquote_to_bytes(headers.get(b"x-signalbox-host", b"")).decode("utf-8", "replace").strip()
    host = "" if host.startswith("$") else dialect.mended(host)  # a variable that was not filled in
    return Whereabouts(
        project_dir=hook.text("cwd"),
        hostname=host[:255] or None,
        agent_name=caller.agent_id or "claude-code",
        by=caller,
    )


async def send_no_opinion(send: Send) -> None:
    """Answer 200 with nothing: Claude Code goes on as if there were no hook."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class Recorder:
    """Finds each hook's session and has its events written."""

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        # Until when, on the loop's clock; by key, because a key finds only sessions that are open to it.
        self._known: dict[tuple[KeyIdentity | None, str], tuple[Known, float]] = {}
        self._writing: set[asyncio.Task[SignalboxError | None]] = set()
        self._lost: dict[str, Counter[str]] = {}  # hooks by name, by Claude's session id

    async def session_of(self, hook: Hook, where: Whereabouts, *, within: float = WRITE_WITHIN) -> Known:
        """Return our session for the hook's, one open to its key; made on its first hook. Raises Busy."""
        now = asyncio.get_running_loop().time()
        known, until = self._known.get((where.by, hook.session), (None, 0.0))
        if known is None or until < now or (where.hostname and not known.complete):
            at = instants.parse(hook.at) or timezone.now()
            known = await self._heard(hook, where, at, within)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
        until = now + min(KNOWN_FOR, settings.SESSION_SILENT_AFTER / 2)
        self._known[where.by, hook.session] = known, until
        if hook.name in BEGINNINGS:
            take_up = functools.partial(sessions.take_up, known.session_id, timezone.now())
            await self.perform(take_up, within=within)
        return known

    async def _heard(self, hook: Hook, where: Whereabouts, at: datetime, within: float) -> Known:
        return await self.perform(functools.partial(sessions.heard, hook.session, where, at), within=within)

    async def observe(self, hook: Hook, where: Whereabouts, size: int, ruling: Ruling = NO_OPINION) -> None:
        """Have the hook written, with what policy says of it; returns when it is, or a moment later.

        Raises what it was refused for by then.
        """
        await self._soon(hook, self._observed(hook, where, size, ruling))

    async def _observed(self, hook: Hook, where: Whereabouts, size: int, ruling: Ruling) -> None:
        known = await self.session_of(hook, where)
        events = await self._events(hook, known.session_id, ruling)
        await self._write(hook, events, size, where.by)

    async def write(
        self, hook: Hook, events: Sequence[NewEvent], size: int, by: KeyIdentity | None = None
    ) -> None:
        """Have events of the hook's session written; returns when they are, or a moment later."""
        if events:
            await self._soon(hook, self._write(hook, list(events), size, by))

    async def _soon(self, hook: Hook, work: Coroutine[Any, Any, None]) -> None:
        """Have `work` done; returns when it is, or after `ANSWER_AFTER`. Raises what it was refused by then."""
        task = asyncio.ensure_future(self._kept(hook, work))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        await asyncio.wait([task], timeout=ANSWER_AFTER)
        if task.done() and (refusal := task.result()) is not None:
            raise refusal

    async def _kept(self, hook: Hook, work: Coroutine[Any, Any, None]) -> SignalboxError | None:
        """Do `work`, to the end; return why it failed, for whoever still waits."""
        try:
            await work
            return None
        except SignalboxError as problem:
            refusal = problem
            log.error("A hook %s of %s is lost: %s", hook.name, hook.session, problem.detail)
        except Exception:
            refusal = not_written()
            log.exception("A hook %s of %s is lost", hook.name, hook.session)
        self._lost.setdefault(hook.session, Counter())[hook.name] += 1
        return refusal

    async def _write(self, hook: Hook, events: list[NewEvent], size: int, by: KeyIdentity | None) -> None:
        """Write, first of all what was lost before. Raises Busy, and Invalid for what cannot be kept."""
        if not events:
            return
        lost = self._lost.pop(hook.session, None)
        if lost:
            events = [dialect.loss_of(hook, events[0].session_id, lost), *events]
        try:
            if await self._submit(events, size):
                return
            # The session was deleted under us: what its agent still does is heard all the same.
            self._known.pop((by, hook.session), None)
            where = Whereabouts(hook.text("cwd"), by=by)
            known = await self._heard(hook, where, timezone.now(), WRITE_WITHIN)
            for event in events:
                event.session_id = known.session_id
            await self._submit(events, size)
        except BaseException:
            if lost:
                self._lost.setdefault(hook.session, Counter()).update(lost)
            raise

    async def perform(self, work: Callable[[], T], *, within: float = WRITE_WITHIN) -> T:
        """Have a small piece of work done with the next group of events; return what it returns. Raises Busy."""
        return await self._writer.perform(work, deadline=time.monotonic() + within)

    async def _submit(self, events: list[NewEvent], size: int) -> bool:
        """Write; return False where the session is gone. Raises Busy, and Invalid for what cannot be kept."""
        deadline = time.monotonic() + WRITE_WITHIN
        outcomes = await self._writer.submit(events, deadline=deadline, size=size)
        assert not isinstance(outcomes, bytes)
        problems = [outcome for outcome in outcomes if isinstance(outcome, SignalboxError)]
        if any(isinstance(problem, NotFound) for problem in problems):
            return False
        if problems:
            raise problems[0]
        return True

    async def _events(self, hook: Hook, session_id: str, ruling: Ruling) -> list[NewEvent]:
        piece = dialect.piece_of(hook)
        if piece is not None:
            text = await self.perform(functools.partial(sessions.put_together, session_id, piece))
            return [dialect.message_of(hook, session_id, piece.message_id, text)] if text else []
        events: list[NewEvent] = []
        if hook.name in ENDS_OF_TURN:
            left = await self.perform(functools.partial(sessions.leftovers, session_id))
            events += [
                dialect.message_of(hook, session_id, name, text) for name, text in left.items() if text
            ]
        events += dialect.events_of(hook, session_id)
        if ruling.by and events:
            events[0].reason = f"{ruling.decision} ({ruling.by}): {ruling.reason}"
        return events
