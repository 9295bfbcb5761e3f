"""One page of the inbox: the waiting requests as a person arranged them, in cards and groups of cards."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from django.core.paginator import Page, Paginator
from django.db.models import Q

from coordinator.actions.approvals.triage import MOST_AT_ONCE
from coordinator.models import PermissionRequest
from coordinator.policy.deciders.waiting import load_snooze_ends_by_request
from coordinator.policy.requests import approvals
from coordinator.policy.requests.judged_content import (
    card_grouping_digest,
    group_requests_by_card,
    judged_card_digest,
)
from coordinator.policy.requests.questions import is_question_tool
from coordinator.policy.rules import marks
from coordinator.sessions import titles
from dashboard.approvals.arrangement import InboxArrangement
from dashboard.approvals.cards import ApprovalCard, build_approval_cards
from dashboard.approvals.rights import DecisionRights

CARDS_ON_A_PAGE = 30  # few enough for a phone to draw
MOST_CHOICES = 25  # choices that one filter offers
MOST_READ = 5_000  # requests whose calls are searched for danger marks
IN_HAND = 20  # requests that are loaded at one time; an input may have a megabyte
AS_IT_COMES = InboxArrangement()
LAST = datetime.max.replace(tzinfo=UTC)
NOT_NAMED = {"session": "No session", "agent": "No agent", "tool": "No tool"}
COLUMNS = (
    "pk",
    "request_id",
    "context__subject_key",
    "context__requested_by",
    "context__session_id",
    "context__agent_id",
    "context__tool_name",
    "context__host",
    "permission_type",
    "plugin_id",
    "expires_at",
    "assignment__person",
)


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """The columns of a waiting request by which the inbox is arranged."""

    pk: int
    name: str
    call: str
    requested_by: str
    session: str
    agent: str
    tool: str
    host: str
    type: str
    deadline: datetime
    taken_by: str


class ArrangedRequests(NamedTuple):
    """The waiting requests of a person, and those of them that match the arrangement, sorted.

    `snoozed` is until when the person snoozed each. `unread` counts requests that were not searched for
    danger marks because there are too many; it is 0 unless only marked requests are shown.
    """

    everything: list[WaitingRequest]
    snoozed: Mapping[str, datetime]
    fitting: list[WaitingRequest]
    unread: int


@dataclass(frozen=True, slots=True)
class CardGroup:
    """A group of cards. `number` counts its waiting requests on all pages. A single group has no label."""

    key: str
    label: str
    number: int
    cards: list[ApprovalCard]
    session: str = ""

    @property
    def continues_on_other_pages(self) -> bool:
        """Return whether other pages have more requests of the group."""
        return self.number > sum(len(card.waiting_members) for card in self.cards)

    @property
    def max_decisions_at_once(self) -> int:
        """Return how many requests of the group can be decided with one question."""
        return min(self.number, MOST_AT_ONCE)


@dataclass(frozen=True, slots=True)
class InboxPage:
    """One page of the inbox.

    Args:
        lanes: The groups of cards.
        page: The page's requests, grouped by call.
        waiting: The number of all waiting requests.
        matching: How many of them match the arrangement.
        snoozed: How many of them the person snoozed.
        returns: When the first snoozed request comes back; None if there is none.
        arrangement: The arrangement of the page.
        rights: The rights of the person.
        choices: The choices of each filter, as values and labels.
        unread: How many requests were not searched for danger marks.
    """

    lanes: list[CardGroup]
    page: Page[list[WaitingRequest]]
    waiting: int
    matching: int
    snoozed: int
    returns: datetime | None
    arrangement: InboxArrangement
    rights: DecisionRights | None = None
    choices: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    unread: int = 0
    approved: int = 0  # requests that the person approved and that wait for a second approval

    @property
    def has_cards(self) -> bool:
        return bool(self.lanes)

    @property
    def previous_page_query(self) -> str:
        """Return the query string of the previous page; empty on the first page."""
        return (
            self.build_page_query_string(self.page.previous_page_number()) if self.page.has_previous() else ""
        )

    @property
    def next_page_query(self) -> str:
        """Return the query string of the next page; empty on the last page."""
        return self.build_page_query_string(self.page.next_page_number()) if self.page.has_next() else ""

    def build_page_query_string(self, number: int) -> str:
        return f"?{self.arrangement.query_string}&page={number}"

    @property
    def eligible_decider_names(self) -> list[str]:
        """Return the names of the people who may decide requests, to whom one can be assigned."""
        return (
            [approver.get_username() for approver in self.rights.book.approvers_by_id.values()]
            if self.rights
            else []
        )

    @property
    def filtered_out_count(self) -> int:
        """Return how many requests the filters hide, without those that the person snoozed."""
        return self.waiting - self.matching - (0 if self.arrangement.snoozed else self.snoozed)


def load_inbox_page(
    now: datetime,
    number: int | str = 1,
    shown_ids: Sequence[str] = (),
    *,
    arrangement: InboxArrangement = AS_IT_COMES,
    rights: DecisionRights | None = None,
) -> InboxPage:
    """Return one page of the waiting requests. By default the one that waits longest comes first.

    Args:
        now: The current time.
        number: The page's number.
        shown_ids: The ids of requests that the page already shows. They keep their order, also if they were
            closed meanwhile; new requests follow them.
        arrangement: Grouping, sorting and filters.
        rights: The person's rights. Only requests that they may decide are shown, unless the arrangement has
            `all`.
    """
    everything, snoozed, fitting, unread = load_arranged_waiting_requests(now, arrangement, rights)
    page = Paginator(group_requests_by_equal_call(fitting, arrangement.group), CARDS_ON_A_PAGE).get_page(
        number
    )
    left_out = {waiting_request.name for waiting_request in everything} - {one.name for one in fitting}
    rows = load_requests_of_inbox_page(page, [name for name in shown_ids if name not in left_out])
    return InboxPage(
        build_card_groups(
            rows,
            fitting,
            arrangement.group,
            partial(build_approval_cards, now=now, rights=rights, snoozed=snoozed),
        ),
        page,
        len(everything),
        len(fitting),
        sum(waiting_request.name in snoozed for waiting_request in everything),
        min(snoozed.values(), default=None),
        arrangement,
        rights,
        build_labelled_choices_by_filter(everything, arrangement),
        unread,
        0 if rights is None else len(rights.own_approved_request_ids_awaiting_second),
    )


class NextRequest(NamedTuple):
    """The card to decide next; None if nothing waits. `left_count` is the number of waiting cards."""

    card: ApprovalCard | None
    left_count: int


def load_next_card_and_count(
    now: datetime,
    arrangement: InboxArrangement,
    rights: DecisionRights,
    *,
    after: str = "",
    shown_id: str = "",
) -> NextRequest:
    """Return the first waiting card, or the one that follows the request `after`.

    With `shown_id` the card of that request is returned, also if it was decided meanwhile.
    """
    fitting = load_arranged_waiting_requests(now, arrangement, rights).fitting
    ids = load_request_ids_by_card(group_requests_by_equal_call(fitting, "same"))
    following = next((place + 1 for place, names in enumerate(ids) if after in names), 0)
    names = next((names for names in ids if shown_id in names), None)
    if names is None:
        names = [shown_id] if shown_id else ids[following % len(ids)] if ids else []
    rows = PermissionRequest.objects.with_context_and_assignment().filter(request_id__in=names).order_by("id")
    cards = build_approval_cards(group_requests_by_card(rows), now, rights=rights)
    if not cards and shown_id:
        return load_next_card_and_count(now, arrangement, rights, after=after)
    return NextRequest(cards[0] if cards else None, len(ids))


def load_request_ids_by_card(groups: Iterable[Sequence[WaitingRequest]]) -> list[list[str]]:
    """Return the ids of the requests of each card, in the order of the groups.

    `groups` are requests for equal calls. Those of different folders or hosts, or with different offered rules, have
    different cards.
    """
    groups = list(groups)
    several = [waiting_request.pk for group in groups if len(group) > 1 for waiting_request in group]
    rows = (
        PermissionRequest.objects.with_context().filter(pk__in=several).iterator(IN_HAND) if several else ()
    )
    digests = {row.pk: card_grouping_digest(row) for row in rows}
    ids_by_card: list[list[str]] = []
    for group in groups:
        parts: dict[str, list[str]] = {}
        for waiting_request in group:
            parts.setdefault(digests.get(waiting_request.pk, ""), []).append(waiting_request.name)
        ids_by_card.extend(parts.values())
    return ids_by_card


def load_request_digests_of_group(
    key: str, now: datetime, arrangement: InboxArrangement, rights: DecisionRights
) -> dict[str, str]:
    """Return the digest of each waiting request of a group on all pages, by id and in their order.

    At most MOST_AT_ONCE requests are returned. A decision applies to the content with that digest.
    """
    fitting = load_arranged_waiting_requests(now, arrangement, rights).fitting
    ids = [
        waiting_request.name
        for waiting_request in fitting
        if hash_group_name(group_name_of_request(waiting_request, arrangement.group), arrangement.group)
        == key
    ]
    rows = PermissionRequest.objects.with_context().filter(request_id__in=ids[:MOST_AT_ONCE])
    digests = {row.request_id: judged_card_digest(row) for row in rows.iterator(IN_HAND)}
    return {name: digests[name] for name in ids[:MOST_AT_ONCE] if name in digests}


def load_arranged_waiting_requests(
    now: datetime, arrangement: InboxArrangement, rights: DecisionRights | None
) -> ArrangedRequests:
    everything = load_waiting_requests(
        now, None if arrangement.all or rights is None else rights.inbox_request_ids_unless_all()
    )
    person = rights.person.get_username() if rights is not None else ""
    snoozed = load_snooze_ends_by_request(person, now)
    fitting, unread = filter_requests_by_arrangement(everything, arrangement, snoozed, person), 0
    if arrangement.marked:
        unread = max(0, len(fitting) - MOST_READ)
        fitting = filter_requests_with_danger_marks(fitting[:MOST_READ])
    # Questions come first in every order, because their agents cannot do anything else meanwhile.
    ordered = sorted(
        sort_waiting_requests(fitting, arrangement.sort), key=lambda one: not is_question_tool(one.tool)
    )
    return ArrangedRequests(everything, snoozed, ordered, unread)


def hash_group_name(group_key: str, group: str) -> str:
    """Return a hash of the group's name, for use in a page.

    Agents choose names, so the hash must not collide.
    """
    return "" if group == "same" else hashlib.sha256(group_key.encode()).hexdigest()[:32]


def load_waiting_requests(now: datetime, only: Iterable[int] | None) -> list[WaitingRequest]:
    """Return all waiting requests, or those with an id in `only`, oldest first."""
    rows = PermissionRequest.objects.awaiting_decision(now).order_by("id").values_list(*COLUMNS)
    wanted_ids = None if only is None else set(only)
    return [build_waiting_request(row) for row in rows if wanted_ids is None or row[0] in wanted_ids]


def build_waiting_request(row: Sequence[Any]) -> WaitingRequest:
    pk, name, call, by, session, agent, tool, host, type_, plugin, deadline, taken_by = row
    return WaitingRequest(
        pk,
        name,
        call or f"row {name}",
        by or "",
        session or "",
        agent or by or plugin,
        tool or "",
        host or "",
        type_,
        deadline if isinstance(deadline, datetime) else LAST,
        taken_by or "",
    )


def filter_requests_by_arrangement(
    waiting: Iterable[WaitingRequest],
    arrangement: InboxArrangement,
    snoozed: Mapping[str, datetime],
    person: str,
) -> list[WaitingRequest]:
    wanted_values = [
        (name, getattr(arrangement, name)) for name in ("tool", "agent", "session", "type", "host")
    ]
    chosen = [(name, value) for name, value in wanted_values if value]
    return [
        waiting_request
        for waiting_request in waiting
        if (not chosen or all(getattr(waiting_request, name) == value for name, value in chosen))
        and (waiting_request.name in snoozed) is bool(arrangement.snoozed)
        and matches_assignment(waiting_request, arrangement.taken, person)
    ]


def matches_assignment(request: WaitingRequest, assignment: str, person: str) -> bool:
    return not assignment or request.taken_by == (person if assignment == "me" else "")


def filter_requests_with_danger_marks(waiting: Sequence[WaitingRequest]) -> list[WaitingRequest]:
    """Return the requests that match a danger mark."""
    danger_marks = marks.load_danger_marks()
    rows = PermissionRequest.objects.with_context().filter(
        pk__in=[waiting_request.pk for waiting_request in waiting]
    )
    bearing = {
        row.pk for row in rows.iterator(IN_HAND) if marks.find_request_review_reasons(row, danger_marks)
    }
    return [waiting_request for waiting_request in waiting if waiting_request.pk in bearing]


def sort_waiting_requests(waiting: Sequence[WaitingRequest], sort: str) -> list[WaitingRequest]:
    if sort == "oldest":
        return list(waiting)
    if sort == "newest":
        return list(reversed(waiting))
    if sort == "deadline":
        return sorted(waiting, key=lambda one: (one.deadline, one.pk))
    by_session = interleave_requests_by_owner(waiting, lambda one: (one.requested_by, one.session))
    return interleave_requests_by_owner(by_session, lambda one: one.requested_by)


def interleave_requests_by_owner(
    waiting: Iterable[WaitingRequest], whose: Callable[[WaitingRequest], Hashable]
) -> list[WaitingRequest]:
    """Return the requests in turns: the first of each owner, then the second of each, and so on."""
    before: Counter[Hashable] = Counter()
    ordered = []
    for waiting_request in waiting:
        ordered.append((before[whose(waiting_request)], waiting_request))
        before[whose(waiting_request)] += 1
    return [one for _, one in sorted(ordered, key=lambda pair: (pair[0], pair[1].pk))]


def group_requests_by_equal_call(waiting: Iterable[WaitingRequest], group: str) -> list[list[WaitingRequest]]:
    """Return the requests by call and the calls by group, in the order of their first request."""
    lanes: dict[str, dict[str, list[WaitingRequest]]] = {}
    for waiting_request in waiting:
        lanes.setdefault(group_name_of_request(waiting_request, group), {}).setdefault(
            waiting_request.call, []
        ).append(waiting_request)
    return [alike for calls in lanes.values() for alike in calls.values()]


def group_name_of_request(request: WaitingRequest, group: str) -> str:
    return "" if group == "same" else getattr(request, group) or ""


def load_requests_of_inbox_page(
    page: Page[list[WaitingRequest]], shown_ids: Sequence[str]
) -> list[PermissionRequest]:
    ids = [waiting_request.pk for alike in page.object_list for waiting_request in alike]
    permission_requests = PermissionRequest.objects.with_context_and_assignment().filter(
        Q(pk__in=ids) | Q(request_id__in=shown_ids)
    )
    keys: list[str | int] = [*shown_ids, *ids]
    position = {name: position for position, name in enumerate(keys)}
    return sorted(
        permission_requests, key=lambda row: position.get(row.request_id, position.get(row.pk, len(position)))
    )


def build_card_groups(
    rows: Iterable[PermissionRequest],
    fitting: Iterable[WaitingRequest],
    group: str,
    draw: Callable[[list[list[PermissionRequest]]], list[ApprovalCard]],
) -> list[CardGroup]:
    rows_by_group: dict[str, list[PermissionRequest]] = {}
    for row in rows:
        rows_by_group.setdefault(group_name_of_request(waiting_request_for_grouping(row), group), []).append(
            row
        )
    groups = [(name, alike) for name, some in rows_by_group.items() for alike in group_requests_by_card(some)]
    cards = draw([alike for _, alike in groups])
    numbers = Counter(group_name_of_request(waiting_request, group) for waiting_request in fitting)
    called = titles.load_session_titles(rows_by_group) if group == "session" else {}
    lanes: list[CardGroup] = []
    for (name, _), card in zip(groups, cards, strict=True):
        key = hash_group_name(name, group)
        if not lanes or lanes[-1].key != key:
            label = "" if group == "same" else called.get(name) or name or NOT_NAMED[group]
            lanes.append(CardGroup(key, label, numbers[name], [], name if group == "session" else ""))
        lanes[-1].cards.append(replace(card, group_key=key))
    return lanes


def waiting_request_for_grouping(row: PermissionRequest) -> WaitingRequest:
    """Return a request with only the columns by which it is grouped."""
    context = approvals.request_context(row)
    asker = (context.requested_by, context.session_id, context.agent_id, context.tool_name) if context else ()
    by, session, agent, tool = asker or (None, None, None, None)
    return build_waiting_request(
        (row.pk, row.request_id, None, by, session, agent, tool, None, "", row.plugin_id, None, None)
    )


def build_labelled_choices_by_filter(
    waiting: Sequence[WaitingRequest], chosen: InboxArrangement
) -> dict[str, list[tuple[str, str]]]:
    """Return the choices of each filter, labelled with their numbers of requests.

    They are the most frequent values of all waiting requests, and the chosen value.
    """
    choices = {}
    for name in ("tool", "agent", "session", "type", "host"):
        counter = Counter(getattr(waiting_request, name) for waiting_request in waiting)
        offered = dict(counter.most_common(MOST_CHOICES))
        if value := getattr(chosen, name):
            offered.setdefault(value, counter[value])
        choices[name] = [(value, f"{value} ({number})") for value, number in offered.items() if value]
    return choices
