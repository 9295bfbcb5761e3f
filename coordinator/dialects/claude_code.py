"""What Claude Code's hooks say, as events of ours. Pure translation: no clock, no database.

Hooks carry no time, no sequence and no id of their own, and may come twice or in any order: whoever takes one in
stamps it, and each event here names its origin, so that the same thing told twice is written once. Fields that
have no column are kept under their own names; a hook that nobody knows yet becomes a milestone of its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from coordinator import instants
from coordinator.actions.claude_code import TURN_END, Piece
from coordinator.actions.events import ToldEvent
from coordinator.actions.tool_calls import AskedCall, Settled
from coordinator.errors import Invalid
from coordinator.tool_rules import Ruling

SOURCE = "claude-code"
ASKED = "permission_request"
LOST = "hooks_lost"
# The same words within this time are the same hook posted twice; later they may be said anew.
SAME_WITHIN = 5_000  # milliseconds
DEEPEST = 100
LONGEST_REASON = 9_000  # Claude Code cuts at 10,000 characters

# What tool calls are about, by tool: the text that a rule's pattern looks at and that a card names.
SUBJECTS = {
    "Bash": "command",
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "Glob": "pattern",
    "Grep": "pattern",
    "WebFetch": "url",
    "WebSearch": "query",
    "Agent": "prompt",
    "Task": "prompt",
}


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook as it came in: its name, Claude's session id, all fields, and when it was received (canonical)."""

    name: str
    session: str
    fields: dict[str, Any]
    at: str

    def text(self, name: str) -> str | None:
        """Return a field that is a text with something in it, else None."""
        value = self.fields.get(name)
        return value if isinstance(value, str) and value.strip() else None

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.text("tool_name") or "tool"

    @property
    def tool_input(self) -> Any:
        """The call's input, as it came."""
        return self.fields.get("tool_input")

    @property
    def subagent(self) -> str | None:
        """Which sub-agent speaks; an agent type alone is that of the main conversation."""
        agent_id, kind = self.text("agent_id"), self.text("agent_type")
        return None if agent_id is None else f"{kind} {agent_id}" if kind else agent_id


def hook_of(body: bytes, at: str) -> Hook:
    """Read a posted hook. Raises Invalid where it is no JSON object or names no session."""
    value = decoded(body)
    if not isinstance(value, dict):
        raise Invalid("A hook is a JSON object.")
    session = value.get("session_id")
    if not isinstance(session, str) or not session.strip():
        raise Invalid("A hook names its session_id.")
    name = value.get("hook_event_name")
    return Hook(name.strip() if isinstance(name, str) and name.strip() else "hook", session, value, at)


def decoded(body: bytes) -> Any:
    """Return what a JSON text says, without what no database can hold. Raises Invalid."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        try:
            value = json.loads(body.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            raise Invalid("This is no JSON.") from None
    return mended(value) if b"\\u0000" in body or b"\\ud" in body.lower() else value


def mended(value: Any, depth: int = 0) -> Any:
    """Return `value` without what no database can hold: NUL shown as ␀, halves of characters as �."""
    if isinstance(value, str):
        return value.replace("\x00", "␀").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if depth > DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {mended(name): mended(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        return [mended(item, depth + 1) for item in value]
    return value


def origin(*parts: object) -> str:
    """Return the name under which something told is known: the same parts, the same name."""
    packed = json.dumps(parts, sort_keys=True, default=str).encode()
    return f"cc:{hashlib.sha256(packed).hexdigest()[:40]}"


def subject_text(tool: str, tool_input: Any) -> str:
    """Return what a call is about in one text: its command, path or address, else its whole input as JSON."""
    if isinstance(tool_input, dict):
        text = tool_input.get(SUBJECTS.get(tool, ""))
        if isinstance(text, str):
            return text
    return json.dumps(tool_input, sort_keys=True, ensure_ascii=False)


# --- hooks as events --------------------------------------------------------------------------------------

COMMON = frozenset({"session_id", "hook_event_name", "prompt_id"})


@dataclass(slots=True)
class _Told:
    """A hook and the session of ours that it belongs to; makes events of it."""

    hook: Hook
    session_id: str
    used: set[str] = field(default_factory=set)

    def event(self, event_type: str, *, uses: Iterable[str] = (), **values: Any) -> ToldEvent:
        """Return an event; `uses` are the hook's fields that stand in its columns."""
        hook = self.hook
        left = COMMON | set(uses)
        extra = {"hook": hook.name} | {name: value for name, value in hook.fields.items() if name not in left}
        values.setdefault("origin_for", None if "origin" in values else SAME_WITHIN)
        values.setdefault("origin", origin(hook.session, event_type, hook.name, hook.fields))
        values.setdefault("subagent", hook.subagent)
        return ToldEvent(
            event_type=event_type,
            session_id=self.session_id,
            timestamp=hook.at,
            prompt_id=hook.text("prompt_id"),
            source=SOURCE,
            extra=extra,
            **values,
        )

    def message(self, role: str, text: str, uses: str, **values: Any) -> ToldEvent:
        """Return what somebody said."""
        return self.event("message", uses=[uses], role=role, content=[said(text)], **values)

    def milestone(self) -> ToldEvent:
        """Return the hook as a milestone of its own name, with all it says in the event's input."""
        hook = self.hook
        shown = {name: value for name, value in hook.fields.items() if name not in _EVERYWHERE}
        return self.event(hook.name, uses=shown, tool_input=shown or None)


_EVERYWHERE = COMMON | {"transcript_path", "cwd", "permission_mode", "effort"}


def said(text: str) -> dict[str, Any]:
    """Return a message's block of text."""
    return {"type": "text", "text": text}


def events_of(hook: Hook, session_id: str) -> list[ToldEvent]:
    """Return the events that the hook makes in `session_id`, in order; at least one for every hook but a piece."""
    told = _Told(hook, session_id)
    made = _MEANINGS.get(hook.name, _milestone)(told)
    return made or [told.milestone()]


def _milestone(told: _Told) -> list[ToldEvent]:
    return [told.milestone()]


def _session_start(told: _Told) -> list[ToldEvent]:
    model = told.hook.text("model")
    return [
        told.event(
            "session_start",
            uses=["source", "model"],
            reason=told.hook.text("source"),
            model=model,
            subagent=None,
        )
    ]


def _session_end(told: _Told) -> list[ToldEvent]:
    return [told.event("session_stop", uses=["reason"], reason=told.hook.text("reason"), subagent=None)]


def _prompt(told: _Told) -> list[ToldEvent]:
    text, prompt_id = told.hook.text("prompt"), told.hook.text("prompt_id")
    claims = (origin(told.hook.session, "prompt", prompt_id),) if prompt_id else ()
    return [told.message("user", text, "prompt", claims=claims)] if text else []


def _notification(told: _Told) -> list[ToldEvent]:
    text = told.hook.text("message")
    if text is None:
        return []
    title = told.hook.text("title")
    return [told.message("system", f"**{title}** {text}" if title else text, "message")]


def _call_starts(told: _Told) -> list[ToldEvent]:
    hook = told.hook
    return [_call(told, "pre_tool", ["tool_input"])] if hook.text("tool_name") else []


def _call_ends(told: _Told) -> list[ToldEvent]:
    return [
        _call(
            told,
            "post_tool",
            ["tool_input", "tool_response"],
            tool_output=told.hook.fields.get("tool_response"),
        )
    ]


def _call_fails(told: _Told) -> list[ToldEvent]:
    error = told.hook.fields.get("error")
    if told.hook.fields.get("is_interrupt") is True and not error:
        error = "Interrupted by the user."
    return [_call(told, "post_tool", ["tool_input", "error"], error=in_words(error) or "The call failed.")]


def _call_denied(told: _Told) -> list[ToldEvent]:
    why = in_words(told.hook.fields.get("reason"))
    error = f"Denied by Claude Code: {why}" if why else "Denied by Claude Code."
    return [_call(told, "post_tool", ["tool_input", "reason"], error=error)]


def in_words(value: Any) -> str:
    """Return what went wrong as text, whatever it came as."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _call(told: _Told, event_type: str, uses: list[str], **values: Any) -> ToldEvent:
    hook = told.hook
    call_id = hook.text("tool_use_id")
    if call_id:
        values["origin"] = origin(hook.session, hook.name, call_id)
        values["claims"] = (result_origin(hook.session, call_id),) if event_type == "post_tool" else ()
    duration = hook.fields.get("duration_ms")
    if isinstance(duration, int | float) and not isinstance(duration, bool) and 0 <= duration < 2**53:
        values["duration_ms"] = int(duration)
        uses = [*uses, "duration_ms"]
    return told.event(
        event_type,
        uses=[*uses, "tool_name", "tool_use_id"],
        tool_name=hook.tool,
        tool_input=as_object(hook.tool_input),
        tool_use_id=call_id,
        **values,
    )


def result_origin(session: str, call_id: str) -> str:
    """Return the origin that every result of a call takes, so that a late summary of it is left out."""
    return origin(session, "result", call_id)


def as_object(value: Any) -> dict[str, Any] | None:
    """Return a call's input as an object, as the events table wants it."""
    return value if isinstance(value, dict) or value is None else {"value": value}


def _batch(told: _Told) -> list[ToldEvent]:
    """Give each call of a finished batch its result, where no hook of its own has told it."""
    calls = told.hook.fields.get("tool_calls")
    found = []
    for call in calls if isinstance(calls, list) else []:
        if not isinstance(call, dict) or not isinstance(call.get("tool_use_id"), str):
            continue
        found.append(
            told.event(
                "post_tool",
                uses=["tool_calls"],
                tool_name=str(call.get("tool_name") or "tool"),
                tool_input=as_object(call.get("tool_input")),
                tool_output=call.get("tool_response"),
                tool_use_id=call["tool_use_id"],
                origin=result_origin(told.hook.session, call["tool_use_id"]),
            )
        )
    return found


def _asked(told: _Told) -> list[ToldEvent]:
    hook = told.hook
    uses = ["tool_name", "tool_input"]
    return [told.event(ASKED, uses=uses, tool_name=hook.tool, tool_input=as_object(hook.tool_input))]


def _turn_ends(told: _Told) -> list[ToldEvent]:
    """The last words, where they were not displayed piece by piece before, and the end of the turn."""
    words = _last_words(told)
    if told.hook.name == "SubagentStop":
        return [*words, told.milestone()]
    problem = in_words(told.hook.fields.get("error")) if told.hook.name == "StopFailure" else None
    uses = ["last_assistant_message", *(["error"] if problem else [])]
    return [*words, told.event(TURN_END, uses=uses, error=problem or None)]


def _last_words(told: _Told) -> list[ToldEvent]:
    text = told.hook.text("last_assistant_message")
    if text is None:
        return []
    return [told.message("assistant", text, "last_assistant_message", origin=words_origin(told.hook, text))]


def words_origin(hook: Hook, text: str) -> str:
    """Return the origin of what the assistant said in a turn, however its blanks were broken."""
    return words_origin_of(hook.session, hook.subagent, hook.text("prompt_id"), text)


def words_origin_of(session: str, subagent: str | None, prompt_id: str | None, text: str) -> str:
    """Return `words_origin` of what another way of telling names."""
    return origin(session, "words", subagent, prompt_id, " ".join(text.split()))


def loss_of(hook: Hook, session_id: str, lost: Mapping[str, int]) -> ToldEvent:
    """Return the milestone that says which hooks came in before this one and could not be written."""
    return _Told(hook, session_id).event(
        LOST, uses=hook.fields, tool_input={"hooks": dict(lost)}, origin=origin(hook.session, LOST, hook.at)
    )


# --- questions and answers --------------------------------------------------------------------------------

Answer = dict[str, Any]


def about(hook: Hook) -> str:
    """Return what the hook's call is about, in one text: what rules look at."""
    return subject_text(hook.tool, hook.tool_input)


def call_of(hook: Hook, session_id: str, agent_id: str | None) -> AskedCall:
    """Return the call that a PreToolUse or a PermissionRequest is about."""
    text = about(hook)
    received = instants.parse(hook.at)
    offered = hook.fields.get("permission_suggestions")
    return AskedCall(
        asks=hook.name,
        session_id=session_id,
        agent_id=agent_id,
        since_us=instants.to_us(received) if received else 0,
        tool=hook.tool,
        tool_input=as_object(hook.tool_input),
        about=text,
        subagent=hook.subagent,
        # A card shows a command in full by itself.
        target=text if SUBJECTS.get(hook.tool, "command") != "command" else None,
        call_id=hook.text("tool_use_id"),
        offered=tuple(one for one in offered if isinstance(one, dict)) if isinstance(offered, list) else (),
        details={"cwd": hook.text("cwd"), "permission_mode": hook.text("permission_mode")},
    )


def answer_of_ruling(hook: Hook, ruling: Ruling) -> Answer:
    """Return what policy says, in the hook's own JSON."""
    return _answer(hook, ruling.decision == "allow", f"Signalbox ({ruling.by}): {ruling.reason}")


def answer_of_person(hook: Hook, settled: Settled) -> Answer:
    """Return what a person said, in the hook's own JSON, with what they edited and picked."""
    who, why = settled.get("approved_by") or "somebody", settled.get("reason")
    word = "Approved" if settled["allowed"] else "Denied"
    added = settled.get("answer") or {}
    return _answer(
        hook, settled["allowed"], f"{word} by {who} in Signalbox{f': {why}' if why else '.'}", added
    )


def answer_of_silence(hook: Hook, seconds: float, *, deny: bool) -> Answer | None:
    """Return what to say when nobody answered in time; None leaves the call to the prompt that stands already.

    A PreToolUse that policy wanted asked has no prompt yet: it is told to show one, or a call that Claude Code's
    own rules let through would run without anybody's word.
    """
    words = f"Nobody answered in Signalbox within {seconds:.0f} s."
    if deny:
        return _answer(hook, False, words)
    if hook.name == "PreToolUse":
        return _pre_tool("ask", words)
    return None


def _answer(hook: Hook, allowed: bool, words: str, added: Mapping[str, Any] | None = None) -> Answer:
    added = added or {}
    edited = {"updatedInput": added["updated_input"]} if "updated_input" in added else {}
    if hook.name == "PreToolUse":
        return _pre_tool("allow" if allowed else "deny", words, **edited)
    decision: Answer = {"behavior": "allow", **edited} if allowed else {"behavior": "deny", "message": words}
    if allowed and added.get("suggestions"):
        decision["updatedPermissions"] = added["suggestions"]
    return {"hookSpecificOutput": {"hookEventName": hook.name, "decision": decision}}


def _pre_tool(decision: str, words: str, **more: Any) -> Answer:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": words[:LONGEST_REASON],
            **more,
        }
    }


def refused(hook: Hook, session_id: str, call_id: str | None, answer: Answer) -> list[ToldEvent]:
    """Return the result of a call that our answer denies: no hook will tell of one."""
    found = answer["hookSpecificOutput"]
    why = found.get("permissionDecisionReason") or found.get("decision", {}).get("message")
    denies = found.get("permissionDecision") == "deny" or found.get("decision", {}).get("behavior") == "deny"
    if not denies or call_id is None:
        return []
    told = _Told(hook, session_id).event(
        "post_tool",
        uses=hook.fields,
        tool_name=hook.tool,
        tool_input=as_object(hook.tool_input),
        tool_use_id=call_id,
        error=why,
        origin=result_origin(hook.session, call_id),
    )
    return [told]


# --- messages in pieces -----------------------------------------------------------------------------------


def piece_of(hook: Hook) -> Piece | None:
    """Return the piece that a MessageDisplay tells, or None for any other hook."""
    if hook.name != "MessageDisplay":
        return None
    place, delta = hook.fields.get("index"), hook.fields.get("delta")
    return Piece(
        hook.text("message_id") or "message",
        place if isinstance(place, int) and 0 <= place < 2**53 else 0,
        delta if isinstance(delta, str) else "",
        hook.fields.get("final") is True,
    )


def message_of(hook: Hook, session_id: str, message_id: str, text: str) -> ToldEvent:
    """Return the whole message as an event; the same words at the turn's end will be left out."""
    return _Told(hook, session_id).message(
        "assistant",
        text,
        "delta",
        origin=origin(hook.session, "message", message_id),
        claims=(words_origin(hook, text),),
    )


Meaning = Callable[[_Told], list[ToldEvent]]
_MEANINGS: dict[str, Meaning] = {
    "SessionStart": _session_start,
    "SessionEnd": _session_end,
    "UserPromptSubmit": _prompt,
    "Notification": _notification,
    "PreToolUse": _call_starts,
    "PostToolUse": _call_ends,
    "PostToolUseFailure": _call_fails,
    "PermissionDenied": _call_denied,
    "PostToolBatch": _batch,
    "PermissionRequest": _asked,
    "Stop": _turn_ends,
    "StopFailure": _turn_ends,
    "SubagentStop": _turn_ends,
}
