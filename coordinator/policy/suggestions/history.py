"""Recorded tool calls, newest first, a batch of events at a time: what rules and grants are tried out on.

Nothing here reads more than a batch at once, so a history of any length is read in pieces: the caller stops when
its time is up and goes on later, in any process, before the id where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any

from django.db.models import Q

from coordinator.lib import instants
from coordinator.models import Event, PermissionRequest, UnreadableText
from coordinator.models.permissions import RequestStatus
from coordinator.policy.requests.approvals import DECIDED, approved_edited_input
from coordinator.policy.rules.call_text import CallText, copy_call_text_with_folder, replace_surrogates
from coordinator.sessions.agent_programs import AGENT_TITLES

STRETCH = 2_000  # events
STEP = 50  # calls between two looks at the clock
BIGGEST_ID = 2**63 - 1
DAY_US = 86_400_000_000
EPOCH = date(1970, 1, 1)
COLUMNS = (
    "id",
    "session_id",
    "tool_name",
    "tool_input",
    "session__agent_name",
    "context__source",
    "context__instant_us",
    "session__executor_profile",
    "session__project_dir",
)
MADE_UP = "(demo)"  # how the names of the demo's people end; no account can have such a name
BY_RULES = (
    "system:rules"  # closed what a rule denied, which no person answered (actions.approvals.requesting)
)
NOBODY = ""  # the agent of a call whose session names none

# What a call is about, in one text, from who reported it (the event's source), the tool and the input.
Subject = Callable[[str, str, Any], str]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call as it was recorded. `about` is the text that rules look at, `field` the input's field that it is.

    `program` is the agent program that made it, nothing where nobody reported it.
    """

    event_id: int
    session_id: str
    tool: str
    about: str
    field: str
    agent: str
    at_us: int
    program: str = ""

    @property
    def week_start(self) -> str:
        """The Monday on which its week (UTC) began, as `2026-11-16`."""
        return format_week_monday(self.at_us // DAY_US)

    @property
    def called_at(self) -> datetime:
        return instants.instant_from_microseconds(self.at_us)


@lru_cache(maxsize=4096)
def format_week_monday(day: int) -> str:
    """Return the Monday of the week of a day, counted from 1970-01-01, which was a Thursday."""
    return f"{EPOCH + timedelta(days=day - (day + 3) % 7):%Y-%m-%d}"


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """What people said of a call that they were asked about, by its request."""

    request_id: str
    tool: str
    about: str
    agent: str
    allowed: bool
    program: str


@dataclass(frozen=True, slots=True)
class CallHistoryReader:
    """Reads the calls that these sources reported.

    `refusals`: how results that report a person's refusal begin, and what they contain.
    """

    sources: Sequence[str]
    subject: Subject
    refusals: Sequence[tuple[str, str]] = ()
    stretch: int = STRETCH

    def event_id_range(self) -> tuple[int, int]:
        """Return the oldest and the newest event's id; 0 where there is none."""
        ids = Event.objects.values_list("id", flat=True)
        # Two queries: SQLite finds both ends in one statement by walking through all of the index.
        return ids.order_by("id").first() or 0, ids.order_by("-id").first() or 0

    def event_batch_lower_id(self, before: int) -> int:
        """Return the id down to which a stretch before `before` goes."""
        ids = Event.objects.filter(id__lt=before).order_by("-id").values_list("id", flat=True)
        return next(iter(ids[self.stretch - 1 : self.stretch]), 0)

    def load_calls_in_event_range(self, before: int, floor: int) -> list[RecordedCall]:
        """Return the calls among the events from `floor` up to `before`, newest first."""
        rows = Event.objects.filter(
            id__lt=before,
            id__gte=floor,
            event_type="pre_tool",
            tool_name__isnull=False,
            context__source__in=self.sources,
        )
        return [self.parse_recorded_call(row) for row in rows.order_by("-id").values_list(*COLUMNS)]

    def parse_recorded_call(self, row: Sequence[Any]) -> RecordedCall:
        event_id, session, tool, stored_input, agent, source, at, profile, folder = row
        name = column_value_as_pattern_text(tool)
        about = column_value_as_pattern_text(
            copy_call_text_with_folder(self.subject(source, name, stored_input), folder)
        )
        return RecordedCall(
            event_id,
            column_value_as_pattern_text(session),
            name,
            about,
            subject_field_name_or_empty(stored_input, about),
            column_value_as_pattern_text(agent or NOBODY),
            at if isinstance(at, int) else 0,
            # A transcript is of the program that its session names.
            next((name for name in (source, profile) if name in AGENT_TITLES), ""),
        )

    def find_refused_call_ids(self, before: int, floor: int) -> list[int]:
        """Return the ids of calls that a person refused, as reported by the events from `floor` up to `before`.

        Newest first, in two queries.
        """
        refusal = Q()
        for begins, holds_until in self.refusals:
            refusal |= Q(error__startswith=begins, error__contains=holds_until)
        if not refusal:
            return []
        ends = Event.objects.filter(refusal, id__lt=before, id__gte=floor, event_type="post_tool")
        refused_calls = {pair for pair in ends.values_list("session_id", "context__tool_use_id") if pair[1]}
        if not refused_calls:
            return []
        sessions, calls = zip(*refused_calls, strict=True)
        starts = Event.objects.filter(
            context__session_id__in=set(sessions), context__tool_use_id__in=set(calls), event_type="pre_tool"
        ).order_by("-id")
        rows = starts.values_list("id", "context__session_id", "context__tool_use_id")
        return [event_id for event_id, *pair in rows if tuple(pair) in refused_calls]

    def load_recorded_calls_of_ids(self, ids: Sequence[int]) -> list[RecordedCall]:
        """Return the calls of these ids, newest first."""
        rows = Event.objects.filter(id__in=ids, event_type="pre_tool", tool_name__isnull=False)
        return [self.parse_recorded_call(row) for row in rows.order_by("-id").values_list(*COLUMNS)]

    def read_answered_requests(self, before: int, floor: int) -> list[AnsweredRequest]:
        """Return what people said of tool calls in the requests from `floor` up to `before`, newest first.

        An approval that was taken back counts as a no, one of an edited call as nothing: another call was approved.
        What the demo's made-up people said counts as nothing.
        """
        rows = (
            PermissionRequest.objects.with_context()
            .filter(
                id__lt=before,
                id__gte=floor,
                status__in=DECIDED,
                context__tool_name__isnull=False,
            )
            .exclude(approved_by__endswith=MADE_UP)
            .exclude(context__closed_by=BY_RULES)
        )
        return [
            answer
            for row in rows.order_by("-id").iterator(20)
            if (answer := self.parse_answered_request(row)) is not None
        ]

    def parse_answered_request(self, row: PermissionRequest) -> AnsweredRequest | None:
        context = row.context
        allowed = row.status == RequestStatus.APPROVED and context.revoked_at is None
        if allowed and approved_edited_input(row) is not None:
            return None
        tool = column_value_as_pattern_text(context.tool_name)
        about = column_value_as_pattern_text(
            copy_call_text_with_folder(self.subject(row.plugin_id, tool, context.tool_input), context.folder)
        )
        agent = column_value_as_pattern_text(context.agent_id or NOBODY)
        return AnsweredRequest(row.request_id, tool, about, agent, allowed, row.plugin_id)

    def request_batch_lower_id(self, before: int) -> int:
        """Return the id of a request down to which a stretch before `before` goes."""
        ids = PermissionRequest.objects.filter(id__lt=before).order_by("-id").values_list("id", flat=True)
        return next(iter(ids[self.stretch - 1 : self.stretch]), 0)


def column_value_as_pattern_text(value: Any) -> str:
    """Return a column's value as a text that every engine of patterns takes, whatever a foreign program wrote."""
    if isinstance(value, CallText):
        return value.copy_without_surrogates()
    return replace_surrogates(value if isinstance(value, str) else str(value))


def subject_field_name_or_empty(tool_input: Any, about: str) -> str:
    """Return the field of a call's input that holds what the call is about; nothing where none does."""
    if not isinstance(tool_input, dict) or isinstance(tool_input, UnreadableText):
        return ""
    return next((name for name, value in tool_input.items() if value == about and isinstance(name, str)), "")


@dataclass(slots=True)
class WalkTimeLimit:
    """The time that one request may spend on walking: `seconds`, by `clock`."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def is_walk_time_used_up(self) -> bool:
        return self.clock() - self._began >= self.seconds


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """Some calls, newest first: all among the events from `floor` up to `before`. Where that is 0, it is the last."""

    before: int
    floor: int
    calls: list[RecordedCall]


def iterate_call_history_within_budget(
    reader: CallHistoryReader, before: int, budget: WalkTimeLimit
) -> Iterator[HistoryStep]:
    """Yield steps of at most STEP calls, from `before` back, until the budget is spent; the first always.

    A caller that goes on later begins before the `floor` of the last one.
    """
    while True:
        floor = reader.event_batch_lower_id(before)
        calls = reader.load_calls_in_event_range(before, floor)
        while True:
            some, calls = calls[:STEP], calls[STEP:]
            reached = some[-1].event_id if calls else floor
            yield HistoryStep(before, reached, some)
            if not reached or budget.is_walk_time_used_up:
                return
            before = reached
            if not calls:
                break
