"""One page of the inbox: what waits, as a person has it arranged, in cards and groups of cards."""

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
from coordinator.models import PermissionRequest, RequestSnooze
from coordinator.policy import approvals, marks
from coordinator.policy.judged import by_card, judged_digest
from coordinator.sessions import titles
from dashboard.approvals.arrangement import Arrangement
from dashboard.approvals.cards import Card, cards_of
from dashboard.approvals.rights import Rights

CARDS_ON_A_PAGE = 30  # as many as a phone can hold
MOST_CHOICES = 25  # values of one filter that are offered
MOST_READ = 5_000  # requests whose calls are read for their marks
IN_HAND = 20  # … and at one time: an input may be a megabyte
AS_IT_COMES = Arrangement()
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
class Waiting:
    """One request that waits, as far as the arrangement looks at it."""

    pk: int
    name: str
    call: str
    asked_by: str
    session: str
    agent: str
    tool: str
    host: str
    type: str
    deadline: datetime
    taken_by: str


class Arranged(NamedTuple):
    """What waits for whoever looks, until when they left which out, and what of it fits, in its order.

    `unread` of it may bear a mark of danger that nobody has looked for, where only what bears one is asked for.
    """

    everything: list[Waiting]
    snoozed: Mapping[str, datetime]
    fitting: list[Waiting]
    unread: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A group of cards: `number` requests of it wait, on all pages together. Without a label it is the only one."""

    key: str
    label: str
    number: int
    cards: list[Card]
    session: str = ""

    @property
    def is_cut(self) -> bool:
        """Say whether requests of it stand on other pages."""
        return self.number > sum(len(card.waiting) for card in self.cards)

    @property
    def at_once(self) -> int:
        """Return how many of it one question may be about."""
        return min(self.number, MOST_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Inbox:
    """One page. `waiting` requests wait in all, `matching` of them fit, and `snoozed` are left out until later.

    `returns` is when the first of those comes back, `choices` what the filters offer; `unread` as in `Arranged`.
    """

    lanes: list[Lane]
    page: Page[list[Waiting]]
    waiting: int
    matching: int
    snoozed: int
    returns: datetime | None
    arrangement: Arrangement
    rights: Rights | None = None
    choices: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    unread: int = 0
    approved: int = 0  # requests that this person has approved and that wait for one more person

    @property
    def has_cards(self) -> bool:
        return bool(self.lanes)

    @property
    def before(self) -> str:
        """Return the query string of the page before this one; nothing where there is none."""
        return self._at(self.page.previous_page_number()) if self.page.has_previous() else ""

    @property
    def after(self) -> str:
        """Return the query string of the next page; nothing where there is none."""
        return self._at(self.page.next_page_number()) if self.page.has_next() else ""

    def _at(self, number: int) -> str:
        return f"?{self.arrangement.query}&page={number}"

    @property
    def people(self) -> list[str]:
        """Return who may decide requests at all, by name, to assign one to."""
        return [one.get_username() for one in self.rights.book.people.values()] if self.rights else []

    @property
    def filtered_out(self) -> int:
        """Return how many requests the filters hide; who snoozed some knows of those."""
        return self.waiting - self.matching - (0 if self.arrangement.snoozed else self.snoozed)


def inbox(
    now: datetime,
    number: int | str = 1,
    shown: Sequence[str] = (),
    *,
    arrangement: Arrangement = AS_IT_COMES,
    rights: Rights | None = None,
) -> Inbox:
    """Return one page of what waits; as long as nothing else is chosen askers take turns.

    With `rights` only what that person may decide, unless all of it is asked for. `shown` are the ids already on the
    page, in its order: they stay where they are, and say so in place where they were closed meanwhile; what has come
    to the page since stands below them.
    """
    everything, snoozed, fitting, unread = _arranged(now, arrangement, rights)
    page = Paginator(_alike(fitting, arrangement.group), CARDS_ON_A_PAGE).get_page(number)
    left_out = {one.name for one in everything} - {one.name for one in fitting}
    rows = _rows(page, [name for name in shown if name not in left_out])
    return Inbox(
        _lanes(rows, fitting, arrangement.group, partial(cards_of, now=now, rights=rights, snoozed=snoozed)),
        page,
        len(everything),
        len(fitting),
        sum(one.name in snoozed for one in everything),
        min(snoozed.values(), default=None),
        arrangement,
        rights,
        _choices(everything, arrangement),
        unread,
        0 if rights is None else len(rights.approved),
    )


def whole_group(key: str, now: datetime, arrangement: Arrangement, rights: Rights) -> dict[str, str]:
    """Return a group's waiting requests on all pages, in their order and no more than may be decided at once.

    Each by its id, with the digest of it as it stands: what is decided is what the question then shows.
    """
    fitting = _arranged(now, arrangement, rights).fitting
    ids = [one.name for one in fitting if _key_of(_lane_of(one, arrangement.group), arrangement.group) == key]
    rows = PermissionRequest.objects.with_context().filter(request_id__in=ids[:MOST_AT_ONCE])
    digests = {row.request_id: judged_digest(row) for row in rows.iterator(IN_HAND)}
    return {name: digests[name] for name in ids[:MOST_AT_ONCE] if name in digests}


def _arranged(now: datetime, arrangement: Arrangement, rights: Rights | None) -> Arranged:
    everything = _waiting(now, None if arrangement.all or rights is None else rights.decidable())
    person = rights.person.get_username() if rights is not None else ""
    snoozed = _snoozed(person, now)
    fitting, unread = _fitting(everything, arrangement, snoozed, person), 0
    if arrangement.marked:
        unread = max(0, len(fitting) - MOST_READ)
        fitting = _marked(fitting[:MOST_READ])
    return Arranged(everything, snoozed, _sorted(fitting, arrangement.sort), unread)


def _key_of(lane: str, group: str) -> str:
    """Return by what a page names a group: agents choose names, so no two may come to the same."""
    return "" if group == "same" else hashlib.sha256(lane.encode()).hexdigest()[:32]


def _waiting(now: datetime, only: Iterable[int] | None) -> list[Waiting]:
    """Return everything that waits, or of it `only` these, the oldest first."""
    rows = PermissionRequest.objects.waiting(now).order_by("id").values_list(*COLUMNS)
    wanted = None if only is None else set(only)
    return [_waiting_of(row) for row in rows if wanted is None or row[0] in wanted]


def _waiting_of(row: Sequence[Any]) -> Waiting:
    pk, name, call, by, session, agent, tool, host, type_, plugin, deadline, taken_by = row
    return Waiting(
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


def _snoozed(person: str, now: datetime) -> dict[str, datetime]:
    """Return until when this person has left requests out, by their ids."""
    rows = RequestSnooze.objects.filter(person=person).values_list("request_id", "until")
    return {str(name): until for name, until in rows if isinstance(until, datetime) and until > now}


def _fitting(
    waiting: Iterable[Waiting], wanted: Arrangement, snoozed: Mapping[str, datetime], person: str
) -> list[Waiting]:
    said = [(name, getattr(wanted, name)) for name in ("tool", "agent", "session", "type", "host")]
    chosen = [(name, value) for name, value in said if value]
    return [
        one
        for one in waiting
        if (not chosen or all(getattr(one, name) == value for name, value in chosen))
        and (one.name in snoozed) is bool(wanted.snoozed)
        and _is_taken(one, wanted.taken, person)
    ]


def _is_taken(one: Waiting, taken: str, person: str) -> bool:
    return not taken or one.taken_by == (person if taken == "me" else "")


def _marked(waiting: Sequence[Waiting]) -> list[Waiting]:
    """Keep those that bear a mark of danger."""
    kept = marks.saved()
    rows = PermissionRequest.objects.with_context().filter(pk__in=[one.pk for one in waiting])
    bearing = {row.pk for row in rows.iterator(IN_HAND) if marks.reasons_of(row, kept)}
    return [one for one in waiting if one.pk in bearing]


def _sorted(waiting: Sequence[Waiting], sort: str) -> list[Waiting]:
    if sort == "oldest":
        return list(waiting)
    if sort == "newest":
        return list(reversed(waiting))
    if sort == "deadline":
        return sorted(waiting, key=lambda one: (one.deadline, one.pk))
    by_session = _turns(waiting, lambda one: (one.asked_by, one.session))
    return _turns(by_session, lambda one: one.asked_by)


def _turns(waiting: Iterable[Waiting], whose: Callable[[Waiting], Hashable]) -> list[Waiting]:
    """Return the same with owners taking turns, each in the order in which its own stand."""
    before: Counter[Hashable] = Counter()
    turns = []
    for one in waiting:
        turns.append((before[whose(one)], one))
        before[whose(one)] += 1
    return [one for _, one in sorted(turns, key=lambda pair: (pair[0], pair[1].pk))]


def _alike(waiting: Iterable[Waiting], group: str) -> list[list[Waiting]]:
    """Return the requests for the same call together where the first of them stands, group by group."""
    lanes: dict[str, dict[str, list[Waiting]]] = {}
    for one in waiting:
        lanes.setdefault(_lane_of(one, group), {}).setdefault(one.call, []).append(one)
    return [alike for lane in lanes.values() for alike in lane.values()]


def _lane_of(one: Waiting, group: str) -> str:
    return "" if group == "same" else getattr(one, group) or ""


def _rows(page: Page[list[Waiting]], shown: Sequence[str]) -> list[PermissionRequest]:
    ids = [one.pk for alike in page.object_list for one in alike]
    found = PermissionRequest.objects.with_triage().filter(Q(pk__in=ids) | Q(request_id__in=shown))
    keys: list[str | int] = [*shown, *ids]
    place = {name: place for place, name in enumerate(keys)}
    return sorted(found, key=lambda row: place.get(row.request_id, place.get(row.pk, len(place))))


def _lanes(
    rows: Iterable[PermissionRequest],
    fitting: Iterable[Waiting],
    group: str,
    draw: Callable[[list[list[PermissionRequest]]], list[Card]],
) -> list[Lane]:
    by_lane: dict[str, list[PermissionRequest]] = {}
    for row in rows:
        by_lane.setdefault(_lane_of(_as_waiting(row), group), []).append(row)
    groups = [(name, alike) for name, some in by_lane.items() for alike in by_card(some)]
    cards = draw([alike for _, alike in groups])
    numbers = Counter(_lane_of(one, group) for one in fitting)
    called = titles.of(by_lane) if group == "session" else {}
    lanes: list[Lane] = []
    for (name, _), card in zip(groups, cards, strict=True):
        key = _key_of(name, group)
        if not lanes or lanes[-1].key != key:
            label = "" if group == "same" else called.get(name) or name or NOT_NAMED[group]
            lanes.append(Lane(key, label, numbers[name], [], name if group == "session" else ""))
        lanes[-1].cards.append(replace(card, lane=key))
    return lanes


def _as_waiting(row: PermissionRequest) -> Waiting:
    """Return a request as far as its group goes."""
    context = approvals.context_of(row)
    asker = (context.requested_by, context.session_id, context.agent_id, context.tool_name) if context else ()
    by, session, agent, tool = asker or (None, None, None, None)
    return _waiting_of(
        (row.pk, row.request_id, None, by, session, agent, tool, None, "", row.plugin_id, None, None)
    )


def _choices(waiting: Sequence[Waiting], chosen: Arrangement) -> dict[str, list[tuple[str, str]]]:
    """Return what each filter offers, with how many requests have it: the commonest, and what is chosen."""
    found = {}
    for name in ("tool", "agent", "session", "type", "host"):
        counter = Counter(getattr(one, name) for one in waiting)
        offered = dict(counter.most_common(MOST_CHOICES))
        if value := getattr(chosen, name):
            offered.setdefault(value, counter[value])
        found[name] = [(value, f"{value} ({number})") for value, number in offered.items() if value]
    return found
