"""Unguarded calls of a session: those that ran without a hook of theirs, and without a permission request.

A call is guarded where a hook about it came before it ran, where its permission was asked for, or where the MCP gateway
took it. The timeline also knows of calls from transcripts, telemetry and hooks that come after a call. One that has a
result and no guard is unguarded, unless it did not run, or is of a tool that never calls the hook. A driven agent asks
its runner instead: in a mode in which it approves every call by itself, those that it did not ask about are unguarded.

Calls are distinguished by their ids. Hooks of RESULTS_WITHOUT_ID name none: there a result belongs to the earliest hook
before it with the same tool and the same input that has no other result. One that has none is unguarded, unless a hook
of the same tool with another input is left over: the input may have changed on the way, so nothing is said of it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Q

from coordinator.models import DrivenSession, Event, EventContext, PermissionContext, Session
from coordinator.models.gateway import BY_GATEWAY
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.timeline.positions import EventPosition

TRANSCRIPT = "transcript"  # importing.lines.SOURCE
GATEWAY_CALLS = (
    "mcp__signalbox__"  # how calls of tools behind the MCP gateway begin: it asks about them itself
)
CALL_EVENTS = ("pre_tool", "post_tool", "permission_request")
MOST_EVENTS = 20_000  # of a session, the newest: what is looked at takes about 0.1 s then
MOST_LISTED = 100
CHUNK = 500  # ids in one query
MODES_READ = 20  # hooks, the newest; only some carry the mode

# Tools that never call the hook which guards the others, by agent. Codex: `write_stdin` tried with 0.169.0 and 0.171.0,
# the others read in its documentation of hooks: neither version offers `update_plan` by itself, and the model's own
# server searches (`WebSearch` in its transcripts). Copilot CLI: hooks recorded with 1.0.102 report no `read_bash`.
TOOLS_WITHOUT_HOOK = {
    "codex": frozenset({"write_stdin", "update_plan", "web_search", "WebSearch"}),
    "copilot": frozenset({"read_bash"}),
}
# Agents whose hooks name no call: their hook before a call gets an id of ours, their hook after it none.
RESULTS_WITHOUT_ID = frozenset({"gemini", "copilot"})
OVERTAKEN_US = 2_000_000  # a result may be recorded this long before the hook that came ahead of it
# Results of calls that did not run: the agent refused them before any hook, or a person did.
_NOT_RUN = re.compile(
    r"InputValidationError|No such tool available|File has not been read yet|Refused by Claude Code"
    r"|Denied by |Rejected in the terminal|Interrupted by"
)
# Modes in which an agent asks nobody by itself, as its hooks or the Agent Client Protocol name them.
APPROVES_ALL, APPROVES_EDITS, DECIDES = (
    "the agent approves every call by itself",
    "the agent approves edits by itself",
    "the agent decides by itself which calls it asks about",
)
SELF_APPROVING_MODES = {
    "bypasspermissions": APPROVES_ALL,
    "yolo": APPROVES_ALL,
    "fullauto": APPROVES_ALL,
    "fullaccess": APPROVES_ALL,
    "never": APPROVES_ALL,
    "dangerfullaccess": APPROVES_ALL,
    "auto": DECIDES,
    "acceptedits": APPROVES_EDITS,
    "autoedit": APPROVES_EDITS,
}


@dataclass(frozen=True, slots=True)
class UnguardedCall:
    """A call that ran and that nobody could have stopped here."""

    call_id: str | None  # None where its hook named no call
    tool: str
    event_id: int  # of its result
    source: str
    instant_us: int

    @property
    def at(self) -> datetime | None:
        """When its result came; None where that is no instant."""
        return EventPosition(self.instant_us, self.event_id).position_datetime


@dataclass(frozen=True, slots=True)
class GuardReport:
    """What guarded the calls of a session of an agent that has a guarding hook."""

    program: str
    is_driven: bool = False  # a runner drives it: the agent asks the runner, as its mode says
    is_imported: bool = False  # all that is known was imported: nobody could have been asked
    has_hooks: bool = False  # whether any hook of it came
    earlier_count: int = 0  # imported calls from before its first hook
    without_hook_count: int = 0  # of tools that never call the hook
    unguarded: Sequence[UnguardedCall] = field(default_factory=tuple)
    mode: str | None = None  # in which its agent says it is
    is_cut: bool = False  # older calls were not looked at

    @property
    def unguarded_count(self) -> int:
        """How many calls ran without a guard."""
        return len(self.unguarded)

    @property
    def listed_calls(self) -> Sequence[UnguardedCall]:
        """The newest of them, for a page."""
        return self.unguarded[-MOST_LISTED:]

    @property
    def title(self) -> str:
        """The agent's name for people."""
        return AGENT_TITLES[self.program]

    @property
    def mode_note(self) -> str:
        """What the mode means for questions; empty where the agent asks by itself, or says nothing."""
        return describe_permission_mode(self.mode)


def describe_permission_mode(mode: str | None) -> str:
    """Return what a mode means where an agent asks nobody by itself; empty for any other."""
    return SELF_APPROVING_MODES.get(re.sub(r"[^a-z]", "", (mode or "").lower()), "")


def load_guard_report(session: Session, *, until: datetime | None = None) -> GuardReport | None:
    """Return what guarded a session's calls; None where its agent has no hook that could.

    `until` leaves out what was received later: a hook may come a moment after the result of its call.
    """
    program = session.executor_profile or ""
    if program not in AGENT_TITLES:
        return None
    driven = DrivenSession.objects.filter(pk=session.pk).values_list("mode").first()
    if driven is not None:
        return GuardReport(
            program,
            is_driven=True,
            mode=driven[0],
            unguarded=tuple(find_driven_calls_without_question(session, until))
            if describe_permission_mode(driven[0]) == APPROVES_ALL
            else (),
        )
    contexts = EventContext.objects.filter(session_id=session.pk)
    hooks = contexts.filter(source=program)
    first_hook_us = hooks.order_by("instant_us", "event_id").values_list("instant_us", flat=True).first()
    calls = contexts.exclude(tool_use_id=None)
    is_imported = first_hook_us is None and not calls.exclude(source=TRANSCRIPT).exists()
    newest = contexts.order_by("-instant_us", "-event_id").values_list("instant_us", flat=True)
    after_us = next(iter(newest[MOST_EVENTS : MOST_EVENTS + 1]), None)
    suspects = find_calls_without_guard(session, program, after_us, until)
    if program in RESULTS_WITHOUT_ID and after_us is None:  # a hook that was not read would be missed
        suspects += find_unguarded_results_without_call(session, program, until)
        suspects.sort(key=lambda call: call.event_id)
    earlier = [
        call
        for call in suspects
        if is_imported
        or (call.source == TRANSCRIPT and first_hook_us is not None and call.instant_us < first_hook_us)
    ]
    earlier_ids = {call.event_id for call in earlier}
    exempt_tools = TOOLS_WITHOUT_HOOK.get(program, frozenset())
    without_hook = [
        call for call in suspects if call.tool in exempt_tools and call.event_id not in earlier_ids
    ]
    explained_ids = earlier_ids | {call.event_id for call in without_hook}
    rest = [call for call in suspects if call.event_id not in explained_ids]
    not_run = find_unrun_call_event_ids([call.event_id for call in rest])
    return GuardReport(
        program,
        is_imported=is_imported,
        has_hooks=first_hook_us is not None,
        earlier_count=len(earlier),
        without_hook_count=len(without_hook),
        unguarded=tuple(call for call in rest if call.event_id not in not_run),
        mode=newest_permission_mode_of_hooks(hooks) if first_hook_us is not None else None,
        is_cut=after_us is not None,
    )


def find_calls_without_guard(
    session: Session, program: str, after_us: int | None, until: datetime | None
) -> list[UnguardedCall]:
    """Return the calls with a result that no hook of their agent, no question and no gateway took before."""
    rows = Event.objects.filter(session_id=session.pk, event_type__in=CALL_EVENTS)
    rows = rows.exclude(context__tool_use_id=None)
    if after_us is not None:
        rows = rows.filter(context__instant_us__gt=after_us)
    if until is not None:
        rows = rows.filter(context__received_at__lte=until)
    is_hook = Q(context__source__in=(program, BY_GATEWAY)) | Q(tool_name__startswith=GATEWAY_CALLS)
    is_guard = Q(event_type="permission_request") | (Q(event_type="pre_tool") & is_hook)
    by_call = rows.values("context__tool_use_id").annotate(
        guards=Count("id", filter=is_guard), ended=Max("id", filter=Q(event_type="post_tool"))
    )
    ids = list(by_call.filter(guards=0, ended__isnull=False).values_list("ended", flat=True))
    columns = ("context__tool_use_id", "tool_name", "id", "context__source", "context__instant_us")
    calls = []
    ids.sort()
    for start in range(0, len(ids), CHUNK):
        calls += [
            UnguardedCall(call_id, tool or "tool", event_id, source, instant_us)
            for call_id, tool, event_id, source, instant_us in Event.objects.filter(
                pk__in=ids[start : start + CHUNK]
            )
            .order_by("id")
            .values_list(*columns)
        ]
    return calls


def find_unguarded_results_without_call(
    session: Session, program: str, until: datetime | None
) -> list[UnguardedCall]:
    """Return the results that name no call and belong to no hook of their agent that came before a call."""
    rows = Event.objects.filter(session_id=session.pk, context__source=program)
    if until is not None:
        rows = rows.filter(context__received_at__lte=until)
    in_order = rows.order_by("context__instant_us", "id")
    columns = ("tool_name", "tool_input", "context__instant_us", "id")
    ends = in_order.filter(event_type="post_tool", context__tool_use_id=None)
    results = list(ends.values_list(*columns))
    if not results:
        return []
    named_ends = Event.objects.filter(session_id=session.pk, event_type="post_tool")
    starts = in_order.filter(event_type="pre_tool").exclude(
        context__tool_use_id__in=named_ends.exclude(context__tool_use_id=None).values("context__tool_use_id")
    )
    hooks: dict[tuple[str, str], deque[int]] = defaultdict(deque)  # their instants
    for tool, tool_input, instant_us, _ in starts.values_list(*columns):
        hooks[tool or "tool", json.dumps(tool_input, sort_keys=True)].append(instant_us)
    unmatched = [
        UnguardedCall(None, tool or "tool", event_id, program, instant_us)
        for tool, tool_input, instant_us, event_id in results
        if not try_take_earlier_hook(
            hooks[tool or "tool", json.dumps(tool_input, sort_keys=True)], instant_us
        )
    ]
    left_over: dict[str, deque[int]] = defaultdict(deque)
    for instant_us, tool in sorted((at, tool) for (tool, _), instants in hooks.items() for at in instants):
        left_over[tool].append(instant_us)
    return [call for call in unmatched if not try_take_earlier_hook(left_over[call.tool], call.instant_us)]


def try_take_earlier_hook(hooks_us: deque[int], result_us: int) -> bool:
    """Take the earliest of these hooks where it came before the result; False where none did."""
    if not hooks_us or hooks_us[0] > result_us + OVERTAKEN_US:
        return False
    hooks_us.popleft()
    return True


def find_driven_calls_without_question(session: Session, until: datetime | None) -> list[UnguardedCall]:
    """Return the calls of a driven session that ran though its agent asked its runner nothing about them."""
    requested_event_ids = PermissionContext.objects.filter(session_id=session.pk).values("event_id")
    requested_call_ids = set(
        EventContext.objects.filter(event_id__in=requested_event_ids).values_list("tool_use_id", flat=True)
    )
    newest = EventContext.objects.filter(session_id=session.pk).order_by("-instant_us", "-event_id")
    after_us = next(iter(newest.values_list("instant_us", flat=True)[MOST_EVENTS : MOST_EVENTS + 1]), None)
    calls = [
        call
        for call in find_calls_without_guard(session, "", after_us, until)
        if call.call_id not in requested_call_ids
    ]
    not_run = find_unrun_call_event_ids([call.event_id for call in calls])
    return [call for call in calls if call.event_id not in not_run]


def find_unrun_call_event_ids(event_ids: Sequence[int]) -> set[int]:
    """Return which of these results say that their call did not run."""
    not_run: set[int] = set()
    for start in range(0, len(event_ids), CHUNK):
        failed = Event.objects.filter(pk__in=event_ids[start : start + CHUNK], error__isnull=False)
        not_run |= {
            event_id
            for event_id, error in failed.values_list("id", "error")
            if _NOT_RUN.search((error or "")[:500])
        }
    return not_run


def newest_permission_mode_of_hooks(hooks: Any) -> str | None:
    """Return the permission mode that the newest hook names."""
    for extra in hooks.order_by("-instant_us", "-event_id").values_list("extra", flat=True)[:MODES_READ]:
        mode = extra.get("permission_mode") if isinstance(extra, dict) else None
        if isinstance(mode, str) and mode:
            return mode[:100]
    return None
