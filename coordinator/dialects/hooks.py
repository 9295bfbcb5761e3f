"""Hooks as agents post them, and the events that most agents' hooks share. Pure translation: no clock, no database.

Hooks carry no time, no sequence and no id of their own, and may come twice or in any order. The receiver stamps each
with a time, and each event here names its origin, so that a thing reported twice is written once. Fields that
have no column are kept under their own names; an unknown hook becomes a milestone of its name.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import msgspec

from coordinator.client import broken_hooks
from coordinator.client.tool_names import PREFIX
from coordinator.errors import UnprocessableRequest
from coordinator.lib import instants, json_bounds
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MADE_CALL, SUBAGENT_END, TURN_END, call_start_deduplication_origin

PERMISSION_REQUEST = "permission_request"
# Facts that transcripts, hooks and telemetry all report (build_text_dedup_origins).
TYPED, TURNS_WORDS, BEGUN, ENDED, SPENT = "typed", "a turn's words", "a call begins", "a call ends", "tokens"
MINUTE_US = 60_000_000
# The same text within this time is the same hook posted twice; later it may be a new message.
SAME_WITHIN = 5_000  # milliseconds
# How far an agent's clock may be from ours and be believed; hooks that could not be posted come in days later.
FAST, SLOW = timedelta(minutes=2), timedelta(days=8)


@dataclass(frozen=True, slots=True)
class ShellLines:
    """Commands that run as part of another call, and by which tool rules know them.

    `problem` says why there may be others than `lines`. Where the call itself `is_persons`, rules look at these alone.
    """

    tool: str
    lines: tuple[str, ...]
    problem: str = ""
    is_persons: bool = False

    @property
    def tool_inputs(self) -> list[dict[str, str]]:
        """The input of the tool that each line is."""
        return [{"command": line} for line in self.lines]


@dataclass(frozen=True, slots=True)
class AgentHook:
    """One hook as it came in: its name, the agent's session id, all fields, and when it was received (canonical).

    `sent_as` is the id under which its sender may send it again; None where each arrival is a hook of its own.
    `unread` is why its body could not be read; `fields` then has what is certain of it all the same, and the beginning
    of the body as `body`.
    The properties read the fields as most agents name them; an agent with other names has a subclass.
    """

    in_columns: ClassVar[frozenset[str]] = frozenset({"session_id", "hook_event_name", "prompt_id"})
    name: str
    session: str
    fields: dict[str, Any]
    at: str
    sent_as: str | None = None
    unread: str | None = None

    def text_field(self, name: str) -> str | None:
        """Return a field that is a text with something in it, else None."""
        value = self.fields.get(name)
        return value if isinstance(value, str) and value.strip() else None

    @property
    def duplicate_window_ms(self) -> int | None:
        """For how many milliseconds a hook with the same fields is the same; None where each has its own time."""
        return SAME_WITHIN

    @property
    def has_tool_name(self) -> bool:
        """Whether the hook says which tool it is about."""
        return self.text_field("tool_name") is not None

    @property
    def requires_tool_name(self) -> bool:
        """Whether a hook of this name about a call is incomplete where it names no tool."""
        return True

    @property
    def embedded_shell_lines(self) -> ShellLines | None:
        """The shell lines that run as part of the call; None where there are none, or each has a hook of its own."""
        return None

    @property
    def tool_name(self) -> str:
        """The tool's name."""
        return self.text_field("tool_name") or "tool"

    @property
    def tool_input(self) -> Any:
        """The call's input, as it came."""
        return self.fields.get("tool_input")

    @property
    def call_id(self) -> str | None:
        """The call's id."""
        return self.text_field("tool_use_id")

    @property
    def turn_id(self) -> str | None:
        """The id of the turn, the prompt with all that follows from it."""
        return self.text_field("prompt_id")

    @property
    def working_folder(self) -> str | None:
        """Where the agent works."""
        return self.text_field("cwd")

    @property
    def parent_session_id(self) -> str | None:
        """The agent's id of the session that started this one, where the hook says it."""
        return None

    @property
    def subagent_label(self) -> str | None:
        """Which sub-agent speaks; an agent type alone is that of the main conversation."""
        agent_id = self.text_field("agent_id")
        if agent_id is None:
            return None
        kind = self.text_field("agent_type")
        return f"{kind} {agent_id}" if kind else agent_id


@dataclass(frozen=True, slots=True)
class HookWithoutCallId(AgentHook):
    """A hook of an agent that gives its calls no id: what begins a call gets one from us.

    It is derived from the call's content and the agent's timestamp, else from the id under which the hook was sent.
    """

    in_columns: ClassVar[frozenset[str]] = frozenset({"session_id", "hook_event_name", "timestamp"})
    begins_call: ClassVar[frozenset[str]]

    @property
    def duplicate_window_ms(self) -> int | None:
        """None where the hook has a time."""
        return None if self.text_field("timestamp") else SAME_WITHIN

    @property
    def call_id(self) -> str | None:
        """The id of the call that begins; a result does not say which call it belongs to."""
        return self.derived_call_id

    @property
    def derived_call_id(self) -> str | None:
        """The id from us, for a hook that begins a call and has a time."""
        sent_at = self.text_field("timestamp") or self.sent_as
        if self.name not in self.begins_call or sent_at is None:
            return None
        return derive_call_id(self.session, self.tool_name, self.tool_input, sent_at)


H = TypeVar("H", bound=AgentHook)
OPENED_PER_CHARACTER = 10  # bytes of memory
# Fields that are extracted from a hook also where its body is no valid JSON.
SURE_FIELDS = ("tool_name", "tool_use_id", "tool_call_id", "mcp_server_name", "turn_id", "generation_id")
# Fields of hooks in which an agent has the input of a call, or a part of it.
CALL_INPUT_FIELDS = frozenset({"tool_input", "command", "edits", "file_path"})
SPACE_BEFORE_COLON = re.compile(rb'"[ \t\r\n]+:')
MOST_OF_UNREAD = 2_000  # bytes of a body that cannot be read which its event shows
UNREAD = "unreadable_hook"


# --- reading ----------------------------------------------------------------------------------------------


def parse_agent_hook(
    body: bytes,
    at: str,
    kind: type[H],
    *,
    named_in: Sequence[str] = ("hook_event_name",),
    session_in: Sequence[str] = ("session_id",),
) -> H:
    """Read a posted hook; `named_in` and `session_in` are the fields of its name and its session, the first that
    is.

    A body that is no JSON is read as far as it is certain (`Hook.unread`). Raises UnprocessableRequest where
    it is no JSON object or names no session.
    """
    try:
        value = decode_hook_rejecting_duplicates(body)
    except UnreadableJson as problem:
        return build_hook_from_broken_body(
            body, at, kind, str(problem.detail), named_in=named_in, session_in=session_in
        )
    if not isinstance(value, dict):
        raise UnprocessableRequest("A hook must be a JSON object.")
    session = first_text_field(value, session_in)
    if session is None:
        raise UnprocessableRequest(f"A hook must name its {session_in[0]}.")
    return kind((first_text_field(value, named_in) or "hook").strip(), session, value, at)


def build_hook_from_broken_body(
    body: bytes, at: str, kind: type[H], reason: str, *, named_in: Sequence[str], session_in: Sequence[str]
) -> H:
    """Return what is certain of a hook that is no JSON.

    Raises UnprocessableRequest where it does not say whose it is.
    """
    body = broken_hooks.convert_to_utf8_without_bom(body)
    names = (*named_in, *session_in, *SURE_FIELDS)
    fields: dict[str, Any] = {**broken_hooks.extract_unambiguous_fields(body, names)}
    session = first_text_field(fields, session_in)
    if session is None:
        raise UnreadableJson(reason)
    fields["body"] = replace_unstorable_text(body[:MOST_OF_UNREAD].decode("utf-8", "replace"))
    return kind((first_text_field(fields, named_in) or UNREAD).strip(), session, fields, at, unread=reason)


def first_text_field(fields: dict[str, Any], names: Iterable[str]) -> str | None:
    """Return the first of these fields that is a text with something in it."""
    field_values = (fields.get(name) for name in names)
    return next((text for text in field_values if isinstance(text, str) and text.strip()), None)


def choose_plausible_hook_time_text(reported: Any, received: str) -> str:
    """Return when a hook happened (canonical): as its agent says, where that is possible, else when it came in."""
    moment, is_own_clock = (
        instants.parse_instant_or_none(reported) if isinstance(reported, str) else None,
        instants.parse_instant_or_none(received),
    )
    if moment is None or is_own_clock is None or not is_own_clock - SLOW <= moment <= is_own_clock + FAST:
        return received
    return instants.format_canonical_instant(moment)


def infer_unreadable_hook_name(
    body: bytes | None, calls: Collection[str], worst: str, *, named_in: Sequence[str] = ("hook_event_name",)
) -> str | None:
    """Return which of `calls` a body that cannot be read as a whole may be, or None where it names another hook.

    A body that names none, or several, or that did not arrive, counts as `worst`.
    """
    field = "|".join(map(re.escape, named_in)).encode()
    pattern = rb'"(?:' + field + rb')"\s*:\s*"([A-Za-z._]+)"'
    body = broken_hooks.convert_to_utf8_without_bom(body or b"")
    names = {name.decode() for name in re.findall(pattern, body)}
    if names and not names & set(calls):
        return None
    return names.pop() if len(names) == 1 else worst


class UnreadableJson(UnprocessableRequest):
    """A text that is no JSON, or that says something nobody could show as it is."""


def decode_hook_rejecting_duplicates(body: bytes) -> Any:
    """Return what a hook's body says (`decode_json_for_storage`).

    Raises UnreadableJson where the hook of a call names a field twice.
    """
    value = decode_json_for_storage(body)
    if isinstance(value, dict) and not CALL_INPUT_FIELDS.isdisjoint(value):
        require_unique_json_keys(body, value)
    return value


def count_json_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(count_json_keys, value.values()))
    return sum(map(count_json_keys, value)) if isinstance(value, list) else 0


def require_unique_json_keys(body: bytes, value: Any) -> None:
    """Raise UnreadableJson for an object with a duplicate key: readers differ in which one they take.

    `value` is what `decode_json_for_storage` read: a body with as many keys as that is not read once more.
    """
    body = broken_hooks.convert_to_utf8_without_bom(body)
    if body.count(b'":') <= count_json_keys(value) and not SPACE_BEFORE_COLON.search(body):
        return

    def reject_duplicate_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = {name for name, _ in pairs}
        if len(names) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise UnreadableJson(
                f"The field {replace_unstorable_text(twice)[:100]!r} stands twice in one object."
            )
        return dict(pairs)

    json.loads(body.decode("utf-8", "replace"), object_pairs_hook=reject_duplicate_members)


def decode_json_for_storage(body: bytes) -> Any:
    """Return what a JSON text says, without what no database can hold. Raises UnreadableJson."""
    if not body.strip():
        raise UnreadableJson("It is empty.")
    if json_bounds.is_json_too_deep(body):
        raise UnreadableJson(f"Nested deeper than {json_bounds.DEEPEST} levels.")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = parse_lenient_json(broken_hooks.convert_to_utf8_without_bom(body))
    if b"\\u" not in body:
        return value
    return replace_unstorable_text(value) if b"\\u0000" in body or b"\\ud" in body.lower() else value


def parse_lenient_json(body: bytes) -> Any:
    """Return what a JSON text says that the quick reader refuses: half characters, numbers of any size."""

    def parse_finite_number(text: str) -> float:
        value = float(text)
        if math.isinf(value):
            raise UnreadableJson(f"No program could tell the number {text[:100]} from infinity.")
        return value

    def reject_json_constant(text: str) -> Any:
        raise UnreadableJson(f"{text} is no number in JSON.")

    try:
        return json.loads(
            body.decode("utf-8", "replace"),
            parse_float=parse_finite_number,
            parse_constant=reject_json_constant,
        )
    except (ValueError, RecursionError):
        raise UnreadableJson("This is not JSON.") from None


def replace_unstorable_text(value: Any, depth: int = 0) -> Any:
    """Return `value` without what no database can hold: NUL shown as ␀, halves of characters as �."""
    if isinstance(value, str):
        return value.replace("\x00", "␀").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if depth > json_bounds.DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {
            replace_unstorable_text(name): replace_unstorable_text(item, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [replace_unstorable_text(item, depth + 1) for item in value]
    return value


# --- origins ----------------------------------------------------------------------------------------------


_PACKED: dict[type, Callable[[Any], str]] = {
    str: json.encoder.encode_basestring_ascii,
    int: int.__repr__,
    type(None): lambda _: "null",
}


def make_event_origin(*parts: object) -> str:
    """Return the origin of an event: the same parts give the same origin."""
    try:  # nearly always texts and numbers: the same JSON, put together four times as fast
        packed = f"[{', '.join([_PACKED[type(part)](part) for part in parts])}]"
    except KeyError:
        packed = json.dumps(parts, sort_keys=True, default=str)
    return f"cc:{hashlib.sha256(packed.encode()).hexdigest()[:40]}"


def call_result_origin(session: str, call_id: str) -> str:
    """Return the origin that every result of a call takes, so that a late summary of it is left out."""
    return make_event_origin(session, "result", call_id)


def result_summary_dedup_origin(session: str, call_id: str) -> str:
    """Return the origin of a result that telemetry reports as fully as the call's hook: the first of them is kept."""
    return make_event_origin(session, "summary", call_id)


def hook_reported_result_origins(session: str, call_id: str) -> tuple[str, ...]:
    """Return the origins under which hooks report a call's result, for another source that has it in full."""
    hooks = ("PostToolUse", "PostToolUseFailure")
    return (
        call_result_origin(session, call_id),
        *(make_event_origin(session, name, call_id) for name in hooks),
    )


def hook_coverage_origin(session: str, kind: str) -> str:
    """Return the origin that marks a session whose hooks report its `prompts` or `calls`.

    Telemetry that has no ids in common with the agent's hooks reports these only where no hook does.
    """
    return make_event_origin(session, "hooks tell", kind)


def derive_call_id(*parts: object) -> str:
    """Return an id for a call whose agent gives it none: the same parts give the same."""
    return MADE_CALL + make_event_origin(*parts).removeprefix("cc:")[:24]


def assistant_text_origin_of_hook(hook: AgentHook, text: str) -> str:
    """Return the origin of what the assistant said in a turn, however its blanks were broken."""
    return assistant_text_origin(hook.session, hook.subagent_label, hook.turn_id, text)


def assistant_text_origin(session: str, subagent: str | None, prompt_id: str | None, text: str) -> str:
    """Return the `assistant_text_origin_of_hook` of another source's ids."""
    return make_event_origin(session, "words", subagent, prompt_id, " ".join(text.split()))


def build_text_dedup_origins(
    kind: str, session: str, text: str, at: str, *, about: bool = False
) -> tuple[str, ...]:
    """Return the origins of a text that was reported in this minute (`at`, canonical), or about then, a minute
    off.

    For texts without an id, which the next turn may say again.
    """
    moment = instants.parse_instant_or_none(at)
    if moment is None:
        return ()
    minute = instants.instant_to_microseconds(moment) // MINUTE_US
    squeezed_text = "".join(text.split())  # each source breaks its blanks its own way
    return tuple(
        make_event_origin(session, kind, squeezed_text, minute + off)
        for off in ((-1, 0, 1) if about else (0,))
    )


def build_token_counts_key(tokens: Mapping[str, Any]) -> str:
    """Return the tokens of a request to a model as one text: its sources have no id in common."""
    names = ("input_tokens", "output_tokens", "cache_read_tokens")
    return "/".join(str(tokens.get(name) or 0) for name in names)


def format_call_text(tool: str, value: Any) -> str:
    """Return a call in one text, for an agent that gives it no id."""
    return f"{tool} {json.dumps(value, sort_keys=True, default=str)}"


# --- hooks as events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class HookEventBuilder:
    """A hook, the session of ours that it belongs to, and the agent that posts it; makes events of it."""

    hook: AgentHook
    session_id: str
    source: str

    def build_hook_event(self, event_type: str, *, uses: Iterable[str] = (), **values: Any) -> DedupedEvent:
        """Return an event; `uses` are the hook's fields that its columns hold."""
        hook = self.hook
        excluded_fields = hook.in_columns | set(uses)
        extra = {"hook": hook.name} | {
            name: value for name, value in hook.fields.items() if name not in excluded_fields
        }
        if "origin" not in values:
            fields = hook.fields if hook.sent_as is None else hook.sent_as
            values["origin"] = make_event_origin(hook.session, event_type, hook.name, fields)
            if hook.sent_as is None:
                values.setdefault("origin_for", hook.duplicate_window_ms)
        values.setdefault("subagent", hook.subagent_label)
        return DedupedEvent(
            event_type=event_type,
            session_id=self.session_id,
            timestamp=hook.at,
            prompt_id=hook.turn_id,
            source=self.source,
            extra=extra,
            **values,
        )

    def build_hook_message(self, role: str, text: str, uses: str, **values: Any) -> DedupedEvent:
        """Return what somebody said."""
        return self.build_hook_event(
            "message", uses=[uses], role=role, content=[make_text_block(text)], **values
        )

    def build_hook_milestone(self) -> DedupedEvent:
        """Return the hook as a milestone of its own name, with all it says in the event's input."""
        hook = self.hook
        excluded_fields = hook.in_columns | _EVERYWHERE
        extra_fields = {name: value for name, value in hook.fields.items() if name not in excluded_fields}
        return self.build_hook_event(hook.name, uses=extra_fields, tool_input=extra_fields or None)

    def build_hook_call_event(self, event_type: str, uses: list[str], **values: Any) -> DedupedEvent:
        """Return a call's beginning (`pre_tool`) or its result (`post_tool`)."""
        hook, tool, call_id = self.hook, self.hook.tool_name, self.hook.call_id
        if call_id:
            values["origin"] = make_event_origin(hook.session, hook.name, call_id)
            ends = event_type == "post_tool"
            values["claims"] = (call_result_origin(hook.session, call_id),) if ends else ()
            if not ends and tool.startswith(PREFIX):
                values["claims"] = values["unless"] = (
                    call_start_deduplication_origin(call_id, wrap_non_object_value(hook.tool_input)),
                )
        if not call_id or call_id.startswith(MADE_CALL):
            values["claims"] = (*values.get("claims", ()), hook_coverage_origin(hook.session, "calls"))
            end_kind, text = (
                ENDED if event_type == "post_tool" else BEGUN,
                format_call_text(tool, hook.tool_input),
            )
            values["unless"] = build_text_dedup_origins(end_kind, hook.session, text, hook.at, about=True)
        duration = hook.fields.get("duration_ms")
        if isinstance(duration, int | float) and not isinstance(duration, bool) and 0 <= duration < 2**53:
            values["duration_ms"] = int(duration)
            uses = [*uses, "duration_ms"]
        return self.build_hook_event(
            event_type,
            uses=[*uses, "tool_name", "tool_use_id"],
            tool_name=tool,
            tool_input=wrap_non_object_value(hook.tool_input),
            tool_use_id=call_id,
            **values,
        )


_EVERYWHERE = frozenset({"transcript_path", "cwd", "permission_mode", "effort"})
Meaning = Callable[[HookEventBuilder], list[DedupedEvent]]


def build_ask_unsupported_message(agent: str, where: str = "the terminal") -> str:
    """Return the message to the model about a call that its agent should have asked a person about, and cannot."""
    return f"{agent} cannot be told to ask for it in {where}. Have it approved in Signalbox, then try again."


def make_text_block(text: str) -> dict[str, Any]:
    """Return a message's block of text."""
    return {"type": "text", "text": text}


def wrap_non_object_value(value: Any) -> dict[str, Any] | None:
    """Return a call's input as an object, as the events table wants it."""
    return value if isinstance(value, dict) or value is None else {"value": value}


def parse_embedded_json(value: Any) -> Any:
    """Return a value that may have been sent as JSON in a text; one that would take far more memory stays a text."""
    if isinstance(value, str) and value[:1] in {"{", "["}:
        try:
            return json_bounds.load_bounded_json(value, most=OPENED_PER_CHARACTER * len(value) + 16_384)
        except (ValueError, RecursionError):
            return value
    return value


def format_value_as_text(value: Any) -> str:
    """Return an error as text, whatever its form."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def build_session_start_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """A session begins, or is taken up again: `source` says which."""
    hook = build.hook
    reason, model = hook.text_field("source"), hook.text_field("model")
    return [
        build.build_hook_event(
            "session_start", uses=["source", "model"], reason=reason, model=model, subagent=None
        )
    ]


def build_session_end_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """A session ends; it may be taken up again."""
    return [
        build.build_hook_event(
            "session_stop", uses=["reason"], reason=build.hook.text_field("reason"), subagent=None
        )
    ]


def build_prompt_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """A person typed; left out where a transcript has reported it already."""
    text, claims = build.hook.text_field("prompt"), prompt_dedup_origins(build.hook)
    if text is None:
        return []
    origins = build_text_dedup_origins(TYPED, build.hook.session, text, build.hook.at, about=True)
    return [build.build_hook_message("user", text, "prompt", claims=claims, unless=origins)]


def prompt_dedup_origins(hook: AgentHook) -> tuple[str, ...]:
    """Return the origins under which transcripts and telemetry would report a prompt."""
    prompt_origins = (make_event_origin(hook.session, "prompt", hook.turn_id),) if hook.turn_id else ()
    return (*prompt_origins, hook_coverage_origin(hook.session, "prompts"))


def build_notification_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """The agent notifies its user."""
    text = build.hook.text_field("message")
    if text is None:
        return []
    title = build.hook.text_field("title")
    return [build.build_hook_message("system", f"**{title}** {text}" if title else text, "message")]


def build_call_start_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """A call is about to run."""
    return [build.build_hook_call_event("pre_tool", ["tool_input"])] if build.hook.has_tool_name else []


def build_call_result_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """A call has its result."""
    uses = ["tool_input", "tool_response"]
    return [
        build.build_hook_call_event("post_tool", uses, tool_output=build.hook.fields.get("tool_response"))
    ]


def build_call_failure_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """A call ran and failed, or was interrupted."""
    error = build.hook.fields.get("error")
    if build.hook.fields.get("is_interrupt") is True and not error:
        error = "Interrupted by the user."
    return [
        build.build_hook_call_event(
            "post_tool", ["tool_input", "error"], error=format_value_as_text(error) or "The call failed."
        )
    ]


def build_permission_request_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """The agent asks its user whether a call may run."""
    hook = build.hook
    uses = ["tool_name", "tool_input"]
    return [
        build.build_hook_event(
            PERMISSION_REQUEST,
            uses=uses,
            tool_name=hook.tool_name,
            tool_input=wrap_non_object_value(hook.tool_input),
        )
    ]


def build_turn_end_events(build: HookEventBuilder) -> list[DedupedEvent]:
    """The last words, where they were not displayed piece by piece before, and the end of the turn."""
    last_message = build_last_message_events(build)
    if build.hook.name == SUBAGENT_END:
        return [*last_message, build.build_hook_milestone()]
    problem = (
        format_value_as_text(build.hook.fields.get("error")) if build.hook.name == "StopFailure" else None
    )
    uses = ["last_assistant_message", *(["error"] if problem else [])]
    return [*last_message, build.build_hook_event(TURN_END, uses=uses, error=problem or None)]


def build_last_message_events(build: HookEventBuilder) -> list[DedupedEvent]:
    text = build.hook.text_field("last_assistant_message")
    if text is None:
        return []
    return [
        build.build_hook_message(
            "assistant",
            text,
            "last_assistant_message",
            origin=assistant_text_origin_of_hook(build.hook, text),
        )
    ]
