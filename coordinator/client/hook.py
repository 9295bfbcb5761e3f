"""`signalbox hook AGENT`: the command that agents' settings call. It reports, waits, and answers in the agent's form.

An agent goes on where its hook is silent, slow or broken. So this command answers before the agent's deadline in any
case. A call that a rule holds for certain is then denied, and until then it keeps asking, under one id, whatever
becomes of the server. Any other call is left to the agent within a second where Signalbox is away, and what could not
be reported is reported later (`spool`).

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

from coordinator.client import (
    broken_hooks,
    offline_block_list,
    plan_files,
    real_paths,
    settings,
    transcript_lines,
)
from coordinator.client.calling_process import CallingProcess
from coordinator.client.connection import (
    InvalidServerAnswer,
    ServerAddress,
    ServerNotAnswering,
    SingleRequestConnection,
)
from coordinator.client.hook_agents import HOOK_AGENTS
from coordinator.client.settings import ClientSettings, NotConnected
from coordinator.client.spool import HookSpool, UnsentHook

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

    from coordinator.client.connection import HttpAnswer
    from coordinator.client.hook_agents import HookAgent

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
SILENT_FOR = 15.0  # seconds without a sign of life after which a held call is asked about again
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds before another try
MOST_BROKEN = 3  # answers that are none, after which nobody is asked again
RETRY_STATUSES = frozenset({408, 429, 502, 503, 504})
MENDED = RETRY_STATUSES | {401, 403}  # what the same hook may be taken after
LOOK_EVERY = 1.0  # seconds after which it is seen that the agent has gone
LATE_WITHIN = 60.0  # seconds in which what was kept is sent
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
BLOCKED_BY_RULE = "A rule in Signalbox holds such calls for certain, so it did not run."
BLOCKED_WITHOUT_RULES = "Signalbox has not said yet which calls may run without it, so it did not run."
BLOCKED_UNREADABLE = (
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
SERVER_LOST_WHILE_ASKING = (
    "A rule in Signalbox asks about this call, and Signalbox went away before anybody answered."
)


class HookStopped(BaseException):
    """The agent, or somebody, ends this command."""


class HookRefused(Exception):
    """The server says no, and would again."""


def run(arguments: Sequence[str]) -> int:
    """Take one hook from stdin and answer it on stdout. Returns 2, which blocks, where it was called wrongly."""
    argument_list = list(arguments)
    if argument_list and argument_list[0] in {"-h", "--help"}:
        sys.stdout.write(USAGE)
        return 0
    agent = HOOK_AGENTS.get(argument_list[0]) if argument_list else None
    if agent is not None and argument_list[1:] == [STREAM] and agent.session_ends:
        from coordinator.client.hook_stream import HookStream  # noqa: PLC0415 - most hooks do not need it

        return HookStream(agent, agent.timeout).run()
    timeout = parse_hook_timeout_or_none(argument_list[1:])
    if agent is None or timeout is None:
        sys.stderr.write(USAGE)
        return BLOCK
    hook = HookCommand(agent, timeout or agent.timeout)
    try:
        hook.start_time_limit_and_signal_handlers()
        hook.relay_hook_answer_and_exit()
    except HookStopped:
        hook.deny_or_pass_hook_and_exit("The hook was stopped before anybody answered.")
    except BaseException as problem:
        hook.deny_or_pass_hook_and_exit(
            f"`signalbox hook` met an error ({type(problem).__name__}: {problem})."
        )


def parse_hook_timeout_or_none(words: list[str]) -> float | None:
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

    def __init__(self, agent: HookAgent, timeout: float) -> None:
        started_at = time.monotonic()
        self._agent = agent
        self._began = started_at
        # An agent's clock started earlier than ours.
        self._until = started_at + timeout - min(10.0, max(timeout * 0.05, min(1.5, timeout / 2)))
        self._id = os.urandom(16).hex()
        self._caller = CallingProcess.find_agent_process()
        self._event = agent.strictest_hook_event
        self._tool: str | None = None
        self._also: str | None = None  # another tool, which the call uses, too
        self._is_call = True  # where the hook is one of a call
        self._body = b""
        self._unread = False
        self._settings: ClientSettings | None = None
        self._driven = os.environ.get(DRIVEN, "")
        self._folder = ""
        self._is_pending: bool | None = None  # None: not found out yet
        self._is_known = False  # which calls are held
        self._needs_approval = False  # a rule asks about this call, the server said
        self._reached = False  # the server said that it waits for somebody's answer
        self._why = ""  # there is no answer yet
        self._refusal = ""  # why the server refused it
        self._may_be_mended = False  # … and whether it may later
        self._ending = False
        self._ends = _thread.allocate_lock()
        self._wake = _thread.allocate_lock()
        self._limit = self._until

    # --- the way ----------------------------------------------------------------------------------------------

    def start_time_limit_and_signal_handlers(self) -> None:
        """Start the time limit, and handle the signals that end this command."""

        def raise_hook_stopped(_number: int, _frame: object) -> None:
            if not self._ending:
                raise HookStopped

        for number in STOPS:
            signal.signal(number, raise_hook_stopped)
        self._wake.acquire()
        _thread.start_new_thread(self._exit_at_deadline_or_agent_end, ())

    def relay_hook_answer_and_exit(self) -> NoReturn:
        """Read the hook, post it, and answer. Ends the process."""
        hook_input = self._read_hook_and_check_size()
        self.load_server_address_and_settings()
        is_call = self.is_before_tool_call
        if not hook_input:
            self._refusal = f"The hook is larger than {LARGEST >> 20} MB"
            self.deny_or_pass_hook_and_exit(f"{self._refusal}, too large for anybody to judge.")
        if self._settings is None:
            self.deny_or_pass_hook_and_exit(self._refusal)
        if is_call:
            self._answer_call_decision_and_exit()
        self._report_hook_and_exit()

    def _read_hook_and_check_size(self) -> bool:
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
            self._event, self._tool = self.hook_event_name_or_strictest(payload), self._agent.tool(payload)
            agent_words = self._agent.words
            if agent_words is not None and self._event in agent_words.hooks:
                self._body = transcript_lines.build_hook_body_with_transcript(
                    self._body, payload, agent_words
                )
                self._began = time.monotonic()  # the server has as long as ever to answer
            if self._agent.name == "claude-code":
                self._add_skill_shell_lines(payload)
            if self.is_before_tool_call:
                self._body = real_paths.build_hook_body_with_symlinks(self._body, payload)
                self._body = plan_files.add_plan_text_to_hook(self._body, payload)
        else:
            self._unread = True
            self._body = broken_hooks.convert_to_utf8_without_bom(self._body)
            self._event = self.guess_unreadable_hook_event_name(self._body)
            names = ("tool_name", "mcp_server_name")
            fields = broken_hooks.extract_unambiguous_fields(self._body, names) if size <= LARGEST else {}
            self._tool = self._agent.tool_of_unreadable_hook({"hook_event_name": self._event, **fields})
            if self._agent.name == "claude-code" and self._tool == "Skill":
                self._also = "Bash"  # nobody knows which shell lines it runs
        return size <= LARGEST

    def _add_skill_shell_lines(self, payload: dict[str, Any]) -> None:
        """Have the hook of a skill say which shell lines run while the skill is loaded."""
        if payload.get("tool_name") != "Skill" and self._event != "UserPromptExpansion":
            return
        from coordinator.client import skill_files  # noqa: PLC0415 - few hooks need it

        if not skill_files.is_skill_hook(payload):
            return
        skill: dict[str, Any]
        try:
            is_registered = skill_files.is_skill_hook_registered(self.connected_agent_settings_path())
            skill = skill_files.collect_skill_shell_report(payload, is_registered=is_registered)
        except Exception as problem:  # then nobody knows what runs
            explanation = f"The skill's file could not be read ({type(problem).__name__}: {problem})."
            skill = {"problem": explanation, "lines": [], "files": []}
        self._began = time.monotonic()  # what that took leaves the server as long as ever to answer
        payload[skill_files.FIELD] = skill
        self._body = json.dumps(payload).encode()
        may_run_lines = bool(skill.get("lines") or skill.get("problem"))
        self._also = "Bash" if may_run_lines else None
        if self._event == skill_files.EXPANSION:
            self._tool, self._is_call = "Bash", may_run_lines

    def connected_agent_settings_path(self) -> object:
        """Return the agent's settings that `signalbox connect` wrote; None where it is not known."""
        try:
            return (
                settings.resolve_client_settings(prefer_file=True)
                .agents.get(self._agent.name, {})
                .get("file")
            )
        except NotConnected:
            return None

    def hook_event_name_or_strictest(self, payload: Mapping[str, Any]) -> str:
        for field in self._agent.named_in:
            event_name = payload.get(field)
            if isinstance(event_name, str) and event_name.strip():
                return str(event_name).strip()
        return self._agent.strictest_hook_event

    def guess_unreadable_hook_event_name(self, body: bytes) -> str:
        """Return which hook a body may be that cannot be read, a call at worst."""
        fields = "|".join(self._agent.named_in).encode()
        pattern = rb'"(?:' + fields + rb')"\s*:\s*"([A-Za-z0-9_.]{1,80})"'
        names: set[str] = {name.decode() for name in re.findall(pattern, body)}
        calls = names & set(self._agent.calls)
        if names and not calls:
            return names.pop()
        return calls.pop() if len(names) == 1 else self._agent.strictest_hook_event

    def load_server_address_and_settings(self) -> None:
        """Find the server; without one, `_refusal` says why."""
        try:
            client_settings = settings.resolve_client_settings(prefer_file=True)
            self._address = ServerAddress(client_settings.url)
        except NotConnected as problem:
            self._refusal = str(problem)
        else:
            self._settings = client_settings
            self._folder = client_settings.server_state_folder

    @property
    def is_before_tool_call(self) -> bool:
        """Whether the hook reports a call before it runs."""
        return self._is_call and self._event in self._agent.calls

    # --- what reports -----------------------------------------------------------------------------------------

    def _report_hook_and_exit(self) -> NoReturn:
        """Post a hook that nobody waits for; the answer may carry a note for the model.

        Behind others that were not sent yet, it waits its turn.
        """
        self._is_pending = False
        self._set_time_limit(self._began + QUICK_END)
        if HookSpool(self.spool_folder):
            self._spool_this_hook()
            self.answer_agent_and_exit(flush=True)
        agent_answer = b""
        try:
            agent_answer = self.save_block_list_and_extract_answer(
                self._post_hook(self._began + QUICKLY, QUICKLY)
            )
        except (ServerNotAnswering, InvalidServerAnswer):
            self._spool_this_hook()
        except HookRefused as problem:
            if self._may_be_mended:
                self._spool_this_hook()
            self.answer_agent_and_exit(output_text=f"Signalbox did not take this: {problem}", code=1)
        self.answer_agent_and_exit(agent_answer)

    # --- calls ------------------------------------------------------------------------------------------------

    def _answer_call_decision_and_exit(self) -> NoReturn:
        """Ask what becomes of a call, until there is an answer or no time left."""
        self._is_pending = self._load_rules_and_check_block()
        if not self._is_pending:
            self._set_time_limit(self._began + QUICK_END)
        pause, patience, broken = FIRST_PAUSE, SILENT_FOR, 0
        while True:
            try:
                until = self._until if self._is_pending else self._began + QUICKLY
                answer = self._post_hook(until, patience if self._is_pending else QUICKLY)
                self.answer_agent_and_exit(self.save_block_list_and_extract_answer(answer), flush=True)
            except ServerNotAnswering as problem:
                self._why = f"Signalbox is away: {problem}."
                if not self._reached:
                    patience *= 4  # a proxy may hold the signs of life back
            except InvalidServerAnswer as problem:
                self._why = f"What answers at Signalbox's address is not Signalbox: {problem}."
                broken += 1
            except HookRefused as problem:
                self._refusal = str(problem)
                self.deny_or_pass_hook_and_exit(f"Signalbox did not receive this call: {problem}")
            now = time.monotonic()
            tried = self._reached or now < self._began + UNREACHED_FOR
            if not self._is_pending or broken >= MOST_BROKEN or not tried:
                self.deny_or_pass_hook_and_exit(self._why)
            if now + pause >= self._until:
                self.deny_or_pass_hook_and_exit(self._why)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _load_rules_and_check_block(self) -> bool:
        """Say whether a call must not run without an answer, as far as is known here."""
        if self._settings is None:
            return True
        lines = offline_block_list.load_offline_block_list(self._folder, self._agent.name)
        self._is_known = lines is not None
        if lines is None:
            return self._settings.should_block_offline_by_default(self._agent.name)
        tools = [self._tool] if self._also is None else [self._tool, self._also]
        return any(offline_block_list.is_tool_blocked_offline(lines, tool) for tool in tools)

    def _apply_headers_and_return_patience(self, answer: HttpAnswer) -> float:
        """Take note of what a waiting call's answer says; returns how long the server may be silent from now on."""
        self.require_answer_to_this_hook(answer)
        if answer.status == 200 and self.is_before_tool_call:
            pending_header = answer.headers.get("x-signalbox-holds-this")
            if pending_header is not None:
                self._reached, self._is_pending, self._needs_approval = (
                    True,
                    pending_header == "yes",
                    pending_header != "no",
                )
                self._is_known, self._why = True, ""
                self._set_time_limit(self._until)
                self._connection.until = self._until
            self.save_received_offline_block_list(answer)
        return SILENT_FOR

    # --- the server -------------------------------------------------------------------------------------------

    def _post_hook(self, until: float, patience: float, unsent_hook: UnsentHook | None = None) -> HttpAnswer:
        """Post a hook: this one, or one that was kept.

        Raises ServerNotAnswering, InvalidServerAnswer and HookRefused.
        """
        hook = unsent_hook or UnsentHook(self._agent.name, self._id, 0.0, self._body)
        assert self._settings is not None
        headers = {"X-Signalbox-Hook-Id": hook.id, "X-Signalbox-Host": quote_header_text(os.uname().nodename)}
        if self._driven:
            headers["X-Signalbox-Session"] = quote_header_text(self._driven)
        if self._settings.key:
            headers["Authorization"] = f"Bearer {self._settings.key}"
        if unsent_hook is not None:
            headers["X-Signalbox-Age"] = f"{max(0.0, time.time() - unsent_hook.at):.3f}"
            if unsent_hook.denied:
                headers["X-Signalbox-Denied"] = quote_header_text(unsent_hook.denied)
        # What the server says when its wait is over must reach the agent, too.
        wait = max(0.0, self._until - time.monotonic() - 1.0)
        self._connection = SingleRequestConnection(self._address, until)
        path = f"/hooks/{quote_header_text(hook.agent)}?wait={wait:.2f}"
        answer = self._connection.post(
            path, headers, hook.body, patience=patience, begun=self._apply_headers_and_return_patience
        )
        if answer.status in RETRY_STATUSES:
            raise ServerNotAnswering(
                f"{self._address.netloc} is not ready ({answer.status}{format_error_response_detail(answer.body)})"
            )
        if answer.status != 200:
            self._may_be_mended = answer.status in MENDED
            raise HookRefused(f"{answer.status}{format_error_response_detail(answer.body)}")
        return answer

    def require_answer_to_this_hook(self, answer: HttpAnswer) -> None:
        """Raise InvalidServerAnswer where a call's answer is not about this hook: something else may say 200 to
        anything.
        """
        if answer.status == 200 and answer.headers.get("x-signalbox-hook-id") is None:
            raise InvalidServerAnswer("its answer is not about this hook")

    def save_block_list_and_extract_answer(self, answer: HttpAnswer, agent: str | None = None) -> bytes:
        """Return what the agent is answered; `agent` is whose hook it was, where that was kept.

        Raises ServerNotAnswering and HookRefused where its body says so, and InvalidServerAnswer.
        """
        self.save_received_offline_block_list(answer, agent)
        if not answer.body.strip():
            return b""
        try:
            decoded = json.loads(answer.body)
        except (ValueError, RecursionError):
            decoded = None
        if not isinstance(decoded, dict):
            raise InvalidServerAnswer("its answer is not one for an agent")
        problem = decoded.get("signalbox")
        if problem is None:
            return answer.body.strip()
        status, detail = problem.get("status"), problem.get("detail")
        if status in RETRY_STATUSES:
            raise ServerNotAnswering(f"{self._address.netloc} is not ready ({status}: {detail})")
        self._may_be_mended = status in MENDED
        raise HookRefused(f"{status}: {detail}")

    def save_received_offline_block_list(self, answer: HttpAnswer, agent: str | None = None) -> None:
        """Keep what the server says of which calls of the agent are held: rules may be for one program only."""
        hold_list_header, agent = answer.headers.get("x-signalbox-held"), agent or self._agent.name
        if hold_list_header is not None and agent in HOOK_AGENTS:
            try:
                offline_block_list.save_offline_block_list(self._folder, agent, hold_list_header)
            except OSError as problem:
                print_log_line(f"Signalbox's rules cannot be kept: {problem}")

    # --- what is kept -----------------------------------------------------------------------------------------

    @property
    def spool_folder(self) -> str:
        return os.path.join(self._folder, "spool")

    def _spool_this_hook(self, denied: str = "") -> None:
        """Keep the hook, to be sent later."""
        if self._settings is not None:
            self.spool_unsent_hook(UnsentHook(self._agent.name, self._id, time.time(), self._body, denied))

    def spool_unsent_hook(self, hook: UnsentHook) -> None:
        try:
            if not HookSpool(self.spool_folder).add_hook_unless_too_large(hook):
                print_log_line("This hook is too large to be kept and sent later.")
        except OSError as problem:
            print_log_line(f"This hook cannot be kept to be sent later: {problem}")

    def _fork_process_to_send_spool(self) -> None:
        """Have kept hooks sent by a process of its own: nobody waits for it."""
        if self._settings is None or not HookSpool(self.spool_folder) or os.fork():
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
            HookSpool(self.spool_folder).send_spooled_hooks(self.send_or_drop_unsent_hook)
        finally:
            os._exit(0)

    def send_or_drop_unsent_hook(self, unsent_hook: UnsentHook) -> bool:
        """Send a hook that was kept; returns False where it must wait longer."""
        self._may_be_mended = False
        self._event = ""
        try:
            self.save_block_list_and_extract_answer(
                self._post_hook(min(self._until, time.monotonic() + 10.0), 10.0, unsent_hook),
                unsent_hook.agent,
            )
        except (ServerNotAnswering, InvalidServerAnswer):
            return False
        except HookRefused:
            return not self._may_be_mended
        return True

    # --- the end ----------------------------------------------------------------------------------------------

    def _set_time_limit(self, limit: float) -> None:
        self._limit = limit
        if self._wake.locked():
            self._wake.release()

    def _exit_at_deadline_or_agent_end(self) -> None:
        while (remaining_seconds := self._limit - time.monotonic()) > 0:
            self._wake.acquire(timeout=min(remaining_seconds, LOOK_EVERY))
            if self._caller.has_agent_exited():
                self._why = "The agent ended before anybody answered."
                break
        try:
            self.deny_or_pass_hook_and_exit(
                self._why or (NOBODY if self._needs_approval else "Signalbox did not answer in time.")
            )
        finally:
            os._exit(BLOCK)

    def deny_or_pass_hook_and_exit(self, reason: str) -> NoReturn:
        """End without an answer of Signalbox: deny what is held, ask where a rule asks, else leave it to the agent."""
        is_call = self.is_before_tool_call
        is_blocked = is_call and (
            self._is_pending if self._is_pending is not None else self._check_block_or_assume_it()
        )
        if is_blocked:
            because = BLOCKED_BY_RULE if self._is_known else BLOCKED_WITHOUT_RULES
            because = BLOCKED_UNREADABLE if self._unread and self._is_known else because
            explanation = reason if reason == NOBODY else f"{reason} {because} {WHAT_TO_DO}"
            answer = self._agent.build_call_denial_answer(self._event, explanation)
        elif is_call and self._needs_approval:
            explanation, answer = (
                "",
                self._agent.build_ask_in_terminal_answer(self._event, f"{reason} {SERVER_LOST_WHILE_ASKING}"),
            )
        else:
            explanation, answer = "", None
        self.answer_agent_and_exit(
            json.dumps(answer).encode() if answer is not None else b"",
            output_text=reason,
            denied=explanation,
            keep=not self._refusal,
        )

    def _check_block_or_assume_it(self) -> bool:
        try:
            return self._load_rules_and_check_block()
        except Exception:
            return True

    def answer_agent_and_exit(
        self,
        answer: bytes = b"",
        *,
        output_text: str = "",
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
            write_all_bytes(1, answer)
        except OSError:
            code = BLOCK if denied else code
        if output_text:
            print_log_line(output_text)
        try:
            if keep:
                self._spool_this_hook(denied)
            if flush:
                self._fork_process_to_send_spool()
        except Exception as problem:
            print_log_line(f"signalbox hook: {problem}")
        finally:
            os._exit(code)


def write_all_bytes(descriptor: int, text: bytes) -> None:
    """Write all of it. Raises OSError."""
    while text:
        text = text[os.write(descriptor, text) :]


def print_log_line(text: str) -> None:
    """Print a line to the agent's log."""
    try:
        write_all_bytes(2, f"{text}\n".encode("utf-8", "replace"))
    except OSError:
        return  # nobody listens


def quote_header_text(text: str) -> str:
    """Return a text as an address or a header can hold it."""
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in text.encode("utf-8", "replace"))


def format_error_response_detail(body: bytes) -> str:
    """Return what an error answer says, as the end of a sentence."""
    try:
        detail = json.loads(body)["detail"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return f": {str(detail)[:500]}"
