"""`signalbox hook AGENT`: what agents' settings call. It reports, waits, and answers in the agent's own form.

An agent goes on where its hook is silent, slow or broken. So this command answers before the agent's deadline in any
case. A call that a rule holds for certain is then denied, and until then it keeps asking, under one id, whatever
becomes of the server. Any other call is left to the agent within a second where Signalbox is away, and what could not
be told is told later (`spool`).

Two threads: one asks; the other, which needs nothing but the clock, answers where the first hangs.
"""

from __future__ import annotations

import _thread
import json
import os
import re
import select
import signal
import sys
import time

from coordinator.client import broken_hooks, held, settings, transcript_lines
from coordinator.client.calling_process import CallingProcess
from coordinator.client.connection import Address, Away, Broken, Connection
from coordinator.client.hook_agents import HOOK_AGENTS
from coordinator.client.settings import NotConnected, Settings
from coordinator.client.spool import Spool, UnsentHook

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

    from coordinator.client.connection import HttpAnswer
    from coordinator.client.hook_agents import Agent

USAGE = (
    "usage: signalbox hook AGENT [--timeout SECONDS | --stream]\n"
    f"  AGENT is one of {', '.join(HOOK_AGENTS)}\n"
    "  --stream: take a hook a line (its id, a blank, its body) until stdin ends; nobody waits for an answer\n"
)
STREAM = "--stream"
DRIVEN = "SIGNALBOX_SESSION"  # for which session a runner started the agent
BLOCK = 2  # the exit code that agents take as "block this call"
LARGEST = 20 << 20  # bytes of a hook that the server reads
QUICKLY = 0.8  # seconds in which a server that is there has taken a hook
QUICK_END = 0.9  # when an agent whose call is not held goes on
UNREACHED_FOR = 60.0  # seconds for which a server that never answered this command is tried
SILENT_FOR = 15.0  # seconds without a sign of life after which a held call is asked anew
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds before another try
MOST_BROKEN = 3  # answers that are none, after which nobody is asked again
RETRY_STATUSES = frozenset({408, 429, 502, 503, 504})
MENDED = RETRY_STATUSES | {401, 403}  # what the same hook may be taken after
LOOK_EVERY = 1.0  # seconds after which it is seen that the agent has gone
LATE_WITHIN = 60.0  # seconds in which what was kept is told
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
HELD_BY_RULE = "A rule in Signalbox holds such calls for certain, so it did not run."
HELD_UNTOLD = "Signalbox has not said yet which calls may run without it, so it did not run."
HELD_UNREAD = (
    "Signalbox could not read this call: it is not JSON. A rule may hold it for certain, so it did not run."
)
WHAT_TO_DO = (
    "Have Signalbox started or the connection fixed (`signalbox connect --check` shows what is wrong), then try"
    " again. Do not work around it."
)
NOBODY = (
    "Nobody answered in Signalbox before this agent's time limit, so the call did not run. Have it approved on the"
    " page Approvals, or try again when somebody is there. Do not work around it."
)
ASKS_ANYWAY = "A rule in Signalbox asks about this call, and Signalbox went away before anybody answered."


class HookStopped(BaseException):
    """The agent, or somebody, ends this command."""


class HookRefused(Exception):
    """The server says no, and would again."""


def run(arguments: Sequence[str]) -> int:
    """Take one hook from stdin and answer it on stdout. Returns 2, which blocks, where it was called wrongly."""
    words = list(arguments)
    if words and words[0] in {"-h", "--help"}:
        sys.stdout.write(USAGE)
        return 0
    agent = HOOK_AGENTS.get(words[0]) if words else None
    if agent is not None and words[1:] == [STREAM] and agent.session_ends:
        from coordinator.client.hook_stream import HookStream  # noqa: PLC0415 - most hooks do not need it

        return HookStream(agent, agent.timeout).run()
    timeout = _timeout(words[1:])
    if agent is None or timeout is None:
        sys.stderr.write(USAGE)
        return BLOCK
    hook = HookCommand(agent, timeout or agent.timeout)
    try:
        hook.start()
        hook.perform()
    except HookStopped:
        hook.give_up("The hook was stopped before anybody answered.")
    except BaseException as problem:
        hook.give_up(f"`signalbox hook` met an error ({type(problem).__name__}: {problem}).")


def _timeout(words: list[str]) -> float | None:
    """Return the seconds that the arguments name, 0 where they name none; None where they are wrong."""
    if not words:
        return 0.0
    try:
        seconds = float(words[1]) if len(words) == 2 and words[0] == "--timeout" else -1.0
    except ValueError:
        return None
    return seconds if 0 < seconds < 1e7 else None


class HookCommand:
    """One hook on its way. It ends the process (`finish`), once, from whichever thread is first."""

    def __init__(self, agent: Agent, timeout: float) -> None:
        began = time.monotonic()
        self._agent = agent
        self._began = began
        # An agent's clock started earlier than ours.
        self._until = began + timeout - min(10.0, max(timeout * 0.05, min(1.5, timeout / 2)))
        self._id = os.urandom(16).hex()
        self._caller = CallingProcess.find()
        self._event = agent.worst
        self._tool: str | None = None
        self._also: str | None = None  # another tool, which the call uses, too
        self._is_call = True  # where the hook is one of a call
        self._body = b""
        self._unread = False
        self._settings: Settings | None = None
        self._driven = os.environ.get(DRIVEN, "")
        self._folder = ""
        self._held: bool | None = None  # None: not found out yet
        self._is_known = False  # which calls are held
        self._asked = False  # a rule asks about this call, the server said
        self._reached = False  # the server said that it waits for somebody's answer
        self._why = ""  # there is no answer yet
        self._refusal = ""  # why the server would not hear of it
        self._may_be_mended = False  # … and whether it may later
        self._ending = False
        self._ends = _thread.allocate_lock()
        self._wake = _thread.allocate_lock()
        self._limit = self._until

    # --- the way ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the time limit, and handle the signals that end this command."""

        def stopped(_number: int, _frame: object) -> None:
            if not self._ending:
                raise HookStopped

        for number in STOPS:
            signal.signal(number, stopped)
        self._wake.acquire()
        _thread.start_new_thread(self._watch, ())

    def perform(self) -> NoReturn:
        """Read the hook, post it, and answer. Ends the process."""
        whole = self._read()
        self._connect()
        is_call = self._tells_call
        if not whole:
            self._refusal = f"The hook is larger than {LARGEST >> 20} MB"
            self.give_up(f"{self._refusal}, too large for anybody to judge.")
        if self._settings is None:
            self.give_up(self._refusal)
        if is_call:
            self._ask()
        self._tell()

    def _read(self) -> bool:
        """Read the hook, and what it is; returns False for one that is too large."""
        parts: list[bytes] = []
        size = 0
        # An agent may leave the pipe open behind its hook.
        while size <= LARGEST and select.select([0], [], [], 1.0 if parts else 5.0)[0]:
            part = os.read(0, 1 << 20)
            if not part:
                break
            parts.append(part)
            size += len(part)
        self._body = b"".join(parts)
        try:
            payload = json.loads(self._body) if size <= LARGEST else None
        except (ValueError, RecursionError):
            payload = None
        if isinstance(payload, dict):
            self._event, self._tool = self._event_in(payload), self._agent.tool(payload)
            words = self._agent.words
            if words is not None and self._event in words.hooks:
                self._body = transcript_lines.with_words(self._body, payload, words)
            if self._agent.name == "claude-code":
                self._add_shell_lines(payload)
        else:
            self._unread = True
            self._body = broken_hooks.without_byte_order_mark(self._body)
            self._event = self._worst_in(self._body)
            names = ("tool_name", "mcp_server_name")
            fields = broken_hooks.readable_fields(self._body, names) if size <= LARGEST else {}
            self._tool = self._agent.tool({"hook_event_name": self._event, **fields})
        return size <= LARGEST

    def _add_shell_lines(self, payload: dict[str, Any]) -> None:
        """Have the hook of a skill say which shell lines run while the skill is loaded."""
        if payload.get("tool_name") != "Skill" and self._event != "UserPromptExpansion":
            return
        from coordinator.client import skill_files  # noqa: PLC0415 - few hooks need it

        if not skill_files.is_about_skill(payload):
            return
        skill: dict[str, Any]
        try:
            is_registered = skill_files.is_hook_registered(self._settings_file())
            skill = skill_files.skill_of(payload, is_registered=is_registered)
        except Exception as problem:  # then nobody knows what runs
            words = f"The skill's file could not be read ({type(problem).__name__}: {problem})."
            skill = {"problem": words, "lines": [], "files": []}
        self._began = time.monotonic()  # what that took leaves the server as long as ever to answer
        payload[skill_files.FIELD] = skill
        self._body = json.dumps(payload).encode()
        may_run_lines = bool(skill.get("lines") or skill.get("problem"))
        self._also = "Bash" if may_run_lines else None
        if self._event == skill_files.EXPANSION:
            self._tool, self._is_call = "Bash", may_run_lines

    def _settings_file(self) -> object:
        """Return the agent's settings that `signalbox connect` wrote; None where it is not known."""
        try:
            return settings.load(prefer_file=True).agents.get(self._agent.name, {}).get("file")
        except NotConnected:
            return None

    def _event_in(self, payload: Mapping[str, Any]) -> str:
        for field in self._agent.named_in:
            found = payload.get(field)
            if isinstance(found, str) and found.strip():
                return str(found).strip()
        return self._agent.worst

    def _worst_in(self, body: bytes) -> str:
        """Return which hook a body may be that cannot be read, a call at worst."""
        fields = "|".join(self._agent.named_in).encode()
        pattern = rb'"(?:' + fields + rb')"\s*:\s*"([A-Za-z0-9_.]{1,80})"'
        names: set[str] = {name.decode() for name in re.findall(pattern, body)}
        calls = names & set(self._agent.calls)
        if names and not calls:
            return names.pop()
        return calls.pop() if len(names) == 1 else self._agent.worst

    def _connect(self) -> None:
        """Find the server; without one, `_refusal` says why."""
        try:
            found = settings.load(prefer_file=True)
            self._address = Address(found.url)
        except NotConnected as problem:
            self._refusal = str(problem)
        else:
            self._settings = found
            self._folder = found.folder

    @property
    def _tells_call(self) -> bool:
        """Whether the hook tells of a call before it runs."""
        return self._is_call and self._event in self._agent.calls

    # --- what reports -----------------------------------------------------------------------------------------

    def _tell(self) -> NoReturn:
        """Post a hook that nobody waits for; the answer may carry a note for the model.

        Behind others that were not told yet, it waits its turn.
        """
        self._held = False
        self._set_limit(self._began + QUICK_END)
        if Spool(self._spool):
            self._keep()
            self.finish(flush=True)
        said = b""
        try:
            said = self._taken(self._post(self._began + QUICKLY, QUICKLY))
        except (Away, Broken):
            self._keep()
        except HookRefused as problem:
            if self._may_be_mended:
                self._keep()
            self.finish(said=f"Signalbox did not take this: {problem}", code=1)
        self.finish(said)

    # --- calls ------------------------------------------------------------------------------------------------

    def _ask(self) -> NoReturn:
        """Ask what becomes of a call, until there is an answer or no time left."""
        self._held = self._is_held()
        if not self._held:
            self._set_limit(self._began + QUICK_END)
        pause, patience, broken = FIRST_PAUSE, SILENT_FOR, 0
        while True:
            try:
                until = self._until if self._held else self._began + QUICKLY
                answer = self._post(until, patience if self._held else QUICKLY)
                self.finish(self._taken(answer), flush=True)
            except Away as problem:
                self._why = f"Signalbox is away: {problem}."
                if not self._reached:
                    patience *= 4  # a proxy may hold the signs of life back
            except Broken as problem:
                self._why = f"What answers at Signalbox's address is not Signalbox: {problem}."
                broken += 1
            except HookRefused as problem:
                self._refusal = str(problem)
                self.give_up(f"Signalbox did not receive this call: {problem}")
            now = time.monotonic()
            tried = self._reached or now < self._began + UNREACHED_FOR
            if not self._held or broken >= MOST_BROKEN or not tried:
                self.give_up(self._why)
            if now + pause >= self._until:
                self.give_up(self._why)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _is_held(self) -> bool:
        """Say whether a call must not run without an answer, as far as is known here."""
        if self._settings is None:
            return True
        lines = held.load(self._folder, self._agent.name)
        self._is_known = lines is not None
        if lines is None:
            return self._settings.holds(self._agent.name)
        tools = [self._tool] if self._also is None else [self._tool, self._also]
        return any(held.is_held(lines, tool) for tool in tools)

    def _begun(self, answer: HttpAnswer) -> float:
        """Take note of what a waiting call's answer says; returns how long the server may be silent from now on."""
        self._require_ours(answer)
        if answer.status == 200 and self._tells_call:
            holds = answer.headers.get("x-signalbox-holds-this")
            if holds is not None:
                self._reached, self._held, self._asked = True, holds == "yes", holds != "no"
                self._is_known, self._why = True, ""
                self._set_limit(self._until)
                self._connection.until = self._until
            self._learn(answer)
        return SILENT_FOR

    # --- the server -------------------------------------------------------------------------------------------

    def _post(self, until: float, patience: float, kept: UnsentHook | None = None) -> HttpAnswer:
        """Post a hook: this one, or one that was kept. Raises Away, Broken and HookRefused."""
        hook = kept or UnsentHook(self._agent.name, self._id, 0.0, self._body)
        assert self._settings is not None
        headers = {"X-Signalbox-Hook-Id": hook.id, "X-Signalbox-Host": _quoted(os.uname().nodename)}
        if self._driven:
            headers["X-Signalbox-Session"] = _quoted(self._driven)
        if self._settings.key:
            headers["Authorization"] = f"Bearer {self._settings.key}"
        if kept is not None:
            headers["X-Signalbox-Age"] = f"{max(0.0, time.time() - kept.at):.3f}"
            if kept.denied:
                headers["X-Signalbox-Denied"] = _quoted(kept.denied)
        # What the server says when its wait is over must reach the agent, too.
        wait = max(0.0, self._until - time.monotonic() - 1.0)
        self._connection = Connection(self._address, until)
        path = f"/hooks/{_quoted(hook.agent)}?wait={wait:.2f}"
        answer = self._connection.post(path, headers, hook.body, patience=patience, begun=self._begun)
        if answer.status in RETRY_STATUSES:
            raise Away(f"{self._address.netloc} is not ready ({answer.status}{_detail(answer.body)})")
        if answer.status != 200:
            self._may_be_mended = answer.status in MENDED
            raise HookRefused(f"{answer.status}{_detail(answer.body)}")
        return answer

    def _require_ours(self, answer: HttpAnswer) -> None:
        """Raise Broken where a call's answer is not about this hook: something else may say 200 to anything."""
        if answer.status == 200 and answer.headers.get("x-signalbox-hook-id") is None:
            raise Broken("its answer is not about this hook")

    def _taken(self, answer: HttpAnswer) -> bytes:
        """Return what the agent is answered. Raises Away and HookRefused where its body says so, and Broken."""
        self._learn(answer)
        if not answer.body.strip():
            return b""
        try:
            said = json.loads(answer.body)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise Broken("its answer is not one for an agent")
        problem = said.get("signalbox")
        if problem is None:
            return answer.body.strip()
        status, detail = problem.get("status"), problem.get("detail")
        if status in RETRY_STATUSES:
            raise Away(f"{self._address.netloc} is not ready ({status}: {detail})")
        self._may_be_mended = status in MENDED
        raise HookRefused(f"{status}: {detail}")

    def _learn(self, answer: HttpAnswer) -> None:
        """Keep what the server says of which calls are held."""
        told = answer.headers.get("x-signalbox-held")
        if told is not None:
            try:
                held.keep(self._folder, self._agent.name, told)
            except OSError as problem:
                say(f"Signalbox's rules cannot be kept: {problem}")

    # --- what is kept -----------------------------------------------------------------------------------------

    @property
    def _spool(self) -> str:
        return os.path.join(self._folder, "spool")

    def _keep(self, denied: str = "") -> None:
        """Keep the hook, to be sent later."""
        if self._settings is not None:
            self._keep_hook(UnsentHook(self._agent.name, self._id, time.time(), self._body, denied))

    def _keep_hook(self, hook: UnsentHook) -> None:
        try:
            if not Spool(self._spool).keep(hook):
                say("This hook is too large to be kept and sent later.")
        except OSError as problem:
            say(f"This hook cannot be kept to be sent later: {problem}")

    def _flush(self) -> None:
        """Have kept hooks sent by a process of its own: nobody waits for it."""
        if self._settings is None or not Spool(self._spool) or os.fork():
            return
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nowhere, number)
            for stop in STOPS:
                signal.signal(stop, signal.SIG_DFL)
            self._until = time.monotonic() + LATE_WITHIN
            self._driven = ""  # what is kept may be of other sessions
            Spool(self._spool).send(self._tell_late)
        finally:
            os._exit(0)

    def _tell_late(self, kept: UnsentHook) -> bool:
        """Send a hook that was kept; returns False where it must wait longer."""
        self._may_be_mended = False
        self._event = ""
        try:
            self._taken(self._post(min(self._until, time.monotonic() + 10.0), 10.0, kept))
        except (Away, Broken):
            return False
        except HookRefused:
            return not self._may_be_mended
        return True

    # --- the end ----------------------------------------------------------------------------------------------

    def _set_limit(self, limit: float) -> None:
        self._limit = limit
        if self._wake.locked():
            self._wake.release()

    def _watch(self) -> None:
        while (left := self._limit - time.monotonic()) > 0:
            self._wake.acquire(timeout=min(left, LOOK_EVERY))
            if self._caller.is_gone():
                self._why = "The agent ended before anybody answered."
                break
        try:
            self.give_up(self._why or (NOBODY if self._asked else "Signalbox did not answer in time."))
        finally:
            os._exit(BLOCK)

    def give_up(self, why: str) -> NoReturn:
        """End without an answer of Signalbox: deny what is held, ask where a rule asks, else leave it to the agent."""
        is_call = self._tells_call
        is_held = is_call and (self._held if self._held is not None else self._is_held_after_all())
        if is_held:
            because = HELD_BY_RULE if self._is_known else HELD_UNTOLD
            because = HELD_UNREAD if self._unread and self._is_known else because
            words = why if why == NOBODY else f"{why} {because} {WHAT_TO_DO}"
            answer = self._agent.denial(self._event, words)
        elif is_call and self._asked:
            words, answer = "", self._agent.question(self._event, f"{why} {ASKS_ANYWAY}")
        else:
            words, answer = "", None
        self.finish(
            json.dumps(answer).encode() if answer is not None else b"",
            said=why,
            denied=words,
            keep=not self._refusal,
        )

    def _is_held_after_all(self) -> bool:
        try:
            return self._is_held()
        except Exception:
            return True

    def finish(
        self,
        answer: bytes = b"",
        *,
        said: str = "",
        denied: str = "",
        keep: bool = False,
        flush: bool = False,
        code: int = 0,
    ) -> NoReturn:
        """Answer the agent, once, and end. `keep`: send the hook later, `flush`: send kept hooks now."""
        self._ending = True
        if not self._ends.acquire(blocking=False):
            while True:  # the other thread ends the process
                time.sleep(60)
        try:
            write_all(1, answer)
        except OSError:
            code = BLOCK if denied else code
        if said:
            say(said)
        try:
            if keep:
                self._keep(denied)
            if flush:
                self._flush()
        except Exception as problem:
            say(f"signalbox hook: {problem}")
        finally:
            os._exit(code)


def write_all(descriptor: int, text: bytes) -> None:
    """Write all of it. Raises OSError."""
    while text:
        text = text[os.write(descriptor, text) :]


def say(words: str) -> None:
    """Print a line for whoever reads the agent's log."""
    try:
        write_all(2, f"{words}\n".encode("utf-8", "replace"))
    except OSError:
        return  # nobody listens


def _quoted(text: str) -> str:
    """Return a text as an address or a header can hold it."""
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
    return "".join(chr(one) if one in plain else f"%{one:02X}" for one in text.encode("utf-8", "replace"))


def _detail(body: bytes) -> str:
    """Return what an error answer says, as the end of a sentence."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f": {str(detail)[:500]}"
