"""A coding agent's tool calls that policy or a person decides: asked, answered, settled elsewhere.

Claude Code shows its own prompt while a hook waits here, and tells nobody when it was answered there. So whoever
waits looks for the traces of that: the call's result, the end of the turn, what the person typed next.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db.models import Q

from coordinator import approvals as rules
from coordinator.actions import approvals, audit
from coordinator.actions.approvals import Ask
from coordinator.actions.claude_code import TURN_END
from coordinator.actors import Actor
from coordinator.approvals import Subject, Validity
from coordinator.errors import BadRequest, Conflict, Invalid, NotFound
from coordinator.models import Event, PermissionRequest
from coordinator.secrets.masking import masks_in, originals_of, restored, without_secrets
from coordinator.tool_rules import Ruling

PLUGIN = "claude-code"
PERMISSION = "ToolCall"
ELSEWHERE = "Answered in the terminal."
GONE = "The agent is gone: its connection dropped."
# A result that came this shortly before the question answers it: the two hooks overtook one another.
OVERTAKEN = timedelta(seconds=2)
# For so long a verdict on a call also answers when Claude Code asks about the same call once more.
ANSWERS_AGAIN = timedelta(minutes=2)
LIKELY = 20  # calls of a session among which the one that is asked about is looked for


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call that is asked about. `asks` is the hook that does, `since_us` when it was received.

    `about` is the call in one text (its command, path or address), `target` that text where the input alone does
    not show it first; `call_id` and `event_id` name the call's beginning where it is known. `offered` are the
    rules that could be made to stand ("always allow"), `details` what else a reader may want to know.
    """

    asks: str
    session_id: str
    agent_id: str | None
    since_us: int
    tool: str
    tool_input: dict[str, Any] | None
    about: str
    subagent: str | None = None
    target: str | None = None
    call_id: str | None = None
    event_id: int | None = None
    offered: tuple[dict[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


Settled = dict[str, Any]


def find_call(asked: AskedCall, taken: Collection[str] = ()) -> AskedCall:
    """Return `asked` with the id of the call it is about: the newest alike that nobody else waits for (`taken`)."""
    given = asked.call_id
    starts = Event.objects.filter(session_id=asked.session_id, event_type="pre_tool", tool_name=asked.tool)
    rows = starts.order_by("-id").values_list("id", "context__tool_use_id", "context__subagent", "tool_input")
    free = []
    for event_id, call_id, subagent, tool_input in rows[:LIKELY]:
        if given is not None and call_id == given:
            return replace(asked, event_id=event_id)
        if given is None and call_id and call_id not in taken and subagent == asked.subagent:
            free.append((event_id, call_id, tool_input))
    place = _first_alike([tool_input for _, _, tool_input in free], asked)
    return asked if place is None else replace(asked, event_id=free[place][0], call_id=free[place][1])


def _first_alike(inputs: Sequence[Any], asked: AskedCall) -> int | None:
    """Return where the call's own input, as it is stored, first stands among stored ones."""
    if not inputs:
        return None
    wanted = rules.canonical(without_secrets(asked.tool_input))
    return next((place for place, one in enumerate(inputs) if rules.canonical(one) == wanted), None)


def answered_before(asked: AskedCall, now: datetime) -> Settled | None:
    """Return what answers the question before it is put to anybody: its result, or a verdict on the same call."""
    if asked.asks != "PermissionRequest" or asked.call_id is None:
        return None
    since = asked.since_us - OVERTAKEN // timedelta(microseconds=1)
    if _results(asked).filter(context__instant_us__gte=since).exists():
        return {"status": "elsewhere", "reason": ELSEWHERE}
    requests = PermissionRequest.objects.with_context().filter(
        plugin_id=PLUGIN,
        context__session_id=asked.session_id,
        status__in=["approved", "denied"],
        context__closed_at__gt=now - ANSWERS_AGAIN,
    )
    for row in requests.order_by("-id")[:LIKELY]:
        named = isinstance(row.metadata, dict) and row.metadata.get("tool_use_id") == asked.call_id
        if named and _judged(row, asked):
            return _answer(row, now)
    return None


def _judged(row: PermissionRequest, asked: AskedCall) -> bool:
    """Say whether a person judged this very call: its tool and its input, as asked for or as they edited it.

    Anybody with a key can ask by the hook's names, and so with a call's id above something else.
    """
    subject, context = rules.subject_of(row), rules.context_of(row)
    judged = [subject.tool_input]
    if context is not None and isinstance(context.answer, dict) and "updated_input" in context.answer:
        judged.append(context.answer["updated_input"])
    shown = rules.canonical(without_secrets(asked.tool_input, judged=True))
    return subject.tool_name == asked.tool and shown in map(rules.canonical, judged)


def ask(
    asked: AskedCall, ruling: Ruling, *, by: Actor, deadline: datetime, now: datetime
) -> PermissionRequest:
    """Put the call before people and return the request that stands for it, with its context."""
    found = approvals.request(
        Ask(
            subject=Subject(
                PLUGIN, PERMISSION, asked.target and asked.target[:2_000], asked.tool, asked.tool_input
            ),
            justification=_why(asked, ruling),
            metadata={
                **asked.details,
                "hook": asked.asks,
                "tool_use_id": asked.call_id,
                "subagent": asked.subagent,
                "rule": ruling.by or None,
                "permission_suggestions": list(asked.offered),
            },
            session_id=asked.session_id,
            agent_id=asked.agent_id,
            event_id=asked.event_id,
            deadline=deadline,
        ),
        by=by,
        now=now,
    )
    return found.request


def _why(asked: AskedCall, ruling: Ruling) -> str:
    described = asked.tool_input.get("description") if asked.tool_input else None
    words = [described] if isinstance(described, str) and described.strip() else []
    if ruling.by:
        words.append(f"{ruling.by.capitalize()}: {ruling.reason}")
    who = f"Sub-agent {asked.subagent}" if asked.subagent else "Claude Code"
    return " · ".join(words)[:4_000] or f"{who} asks before it uses {asked.tool}."


def settled(request_id: str, asked: AskedCall, now: datetime) -> Settled | None:
    """Return how the question was answered, here or at the terminal; None while nobody has."""
    row = rules.find(request_id)
    if not rules.standing(row, now).waiting:
        return _answer(row, now)
    return {"status": "elsewhere", "reason": ELSEWHERE} if _settled_elsewhere(asked) else None


def _answer(row: PermissionRequest, now: datetime) -> Settled:
    context = rules.context_of(row)
    return rules.answer(row, now) | {"answer": context.answer if context else None}


def _results(asked: AskedCall) -> Any:
    ends = Event.objects.filter(session_id=asked.session_id, event_type="post_tool")
    if asked.call_id is not None:
        return ends.filter(context__tool_use_id=asked.call_id)
    return ends.filter(tool_name=asked.tool, context__instant_us__gt=asked.since_us)


def _settled_elsewhere(asked: AskedCall) -> bool:
    ends = _results(asked)
    if asked.call_id is not None:
        if ends.exists():
            return True
    elif _first_alike(ends.values_list("tool_input", flat=True)[:LIKELY], asked) is not None:
        return True
    over = Q(event_type="session_stop")
    if asked.subagent is None:
        over |= Q(event_type=TURN_END) | Q(event_type="message", role="user", context__subagent=None)
    else:
        over |= Q(event_type="SubagentStop", context__subagent=asked.subagent)
    later = Event.objects.filter(session_id=asked.session_id, context__instant_us__gt=asked.since_us)
    return later.filter(over).exists()


def withdraw(request_id: str, *, by: Actor, reason: str, now: datetime) -> None:
    """Close the card of a question that nobody asks any more; harmless where it is closed already."""
    try:
        approvals.withdraw(request_id, by=by, reason=reason, now=now)
    except (Conflict, NotFound):
        return


def decide(
    request_id: str,
    *,
    by: Any,
    verdict: Literal["approved", "denied"],
    reason: str | None = None,
    validity: Validity = Validity.ONCE,
    grant: bool = False,
    edited: str | None = None,
    edited_field: str = "",
    picked: Sequence[int] = (),
    now: datetime | None = None,
) -> PermissionRequest:
    """Decide a call, and say with which input it shall run and which of the offered rules shall stand.

    `edited` is the whole input as JSON, or, with `edited_field`, the text of that one field. Raises Invalid
    for what is none, BadRequest for a rule that was not offered, and what approvals.decide raises.
    """
    row = rules.find(request_id)
    answer = _added(row, edited, edited_field, picked) if verdict == "approved" else None
    return approvals.decide(
        request_id,
        by=by,
        verdict=verdict,
        reason=reason,
        validity=validity,
        grant=grant,
        answer=answer,
        now=now,
    )


def _added(
    row: PermissionRequest, edited: str | None, edited_field: str, picked: Sequence[int]
) -> dict[str, Any] | None:
    added: dict[str, Any] = {}
    asked_for = rules.subject_of(row).tool_input
    wanted = _edited_input(asked_for, edited, edited_field)
    if wanted is not None and wanted != asked_for:
        if masks_in(wanted) - masks_in(asked_for):
            raise Invalid(
                "A masked secret was changed or is none of this call's: leave it whole, or take it out."
            )
        if rules.needed(row) > 1:
            raise BadRequest("This takes two people, who must approve the same input: it cannot be edited.")
        added["updated_input"] = wanted
    offered = row.metadata.get("permission_suggestions", []) if isinstance(row.metadata, dict) else []
    if any(not 0 <= one < len(offered) for one in picked):
        raise BadRequest("This rule was not offered.")
    if (added or picked) and row.plugin_id != PLUGIN:
        raise BadRequest("Only Claude Code's calls can be edited: nobody else would hear of it.")
    if picked:
        added["suggestions"] = [offered[one] for one in picked]
    return added or None


def _edited_input(asked_for: Any, edited: str | None, edited_field: str) -> dict[str, Any] | None:
    if edited is None:
        return None
    text = edited.replace("\r\n", "\n")
    if edited_field:
        before = asked_for.get(edited_field) if isinstance(asked_for, dict) else None
        if not isinstance(before, str):
            raise Invalid(f"The input has no text {edited_field!r} to edit.")
        if not text.strip():
            raise Invalid("There is nothing left of the input. Deny it instead.")
        # A browser sends every line break as two characters; unedited text must stay what it was.
        same = text == before.replace("\r\n", "\n")
        return dict(asked_for) if same else {**asked_for, edited_field: text}
    try:
        value = json.loads(edited)
    except ValueError as problem:
        raise Invalid(f"The edited input is no JSON: {problem}.") from None
    if not isinstance(value, dict):
        raise Invalid("The edited input must be a JSON object.")
    return value


def unmasked(answer: Settled, asked: AskedCall) -> Settled | None:
    """Return an answer with the call's own secrets where the card showed masks, as the agent needs it.

    Only the agent's waiting hook still knows them. None where one is left over: a mask must not be run.
    """
    added = answer.get("answer")
    if not added:
        return answer
    added = restored(added, originals_of(asked.tool_input, list(asked.offered)))
    return (
        None
        if masks_in(added) - masks_in([asked.tool_input, list(asked.offered)])
        else answer | {"answer": added}
    )


def note_ruling(asked: AskedCall, ruling: Ruling, *, by: Actor, now: datetime) -> None:
    """Write into the audit log what policy answered without asking anybody."""
    audit.record(
        "TOOL_CALL_ALLOWED" if ruling.decision == "allow" else "TOOL_CALL_DENIED",
        actor=by,
        target=asked.session_id,
        permission=asked.tool,
        result="allowed" if ruling.decision == "allow" else "denied",
        reason=ruling.reason,
        metadata={
            "by": ruling.by,
            "agent_id": asked.agent_id,
            "tool_use_id": asked.call_id,
            "about": without_secrets(asked.about[:2_000], judged=True),
        },
        now=now,
    )


def lapse(now: datetime) -> None:
    """Write down that deadlines have passed."""
    approvals.lapse_due(now)
