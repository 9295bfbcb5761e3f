"""How much of a budget is used, and what that means for a call or a run. Only reads.

Sums are read from `usage_days`, a few rows a session and day. A call counts once its event is written, tokens once
they are told: what is under way when a budget is used up is not in it, and may exceed it. What nobody can count (a
model without a price, an agent that tells no tokens) is said, and never taken for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet, Sum

from coordinator.lib import instants
from coordinator.models import ApiKey, Budget, Session, SessionOwner, SessionWriter, UsageDay
from coordinator.models.budgets import AtLimit, BudgetMeasure, BudgetReach, BudgetSpan
from coordinator.policy.tool_rules import ASK, DENY, NO_OPINION, Ruling, stricter
from coordinator.sessions import prices
from coordinator.sessions.driving import program_of
from coordinator.sessions.prices import KINDS, Price

LEVELS = NEARLY, USED_UP = (80, 100)  # percent of the amount at which people are told
UNITS = {"tokens": "tokens", "calls": "tool calls"}


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A budget in force."""

    id: int
    reach: str
    name: str
    span: str
    measure: str
    amount: float
    at_limit: str
    allowed_until: datetime | None = None

    @property
    def acts(self) -> bool:
        """Say whether it ever holds anything up."""
        return self.at_limit != AtLimit.WARN

    @property
    def limit_words(self) -> str:
        """The limit, such as `200,000 tokens a day`."""
        return f"{in_words(self.amount, self.measure)} {'a session' if self.is_by_session else 'a day'}"

    @property
    def title(self) -> str:
        """The budget in a few words, such as `200,000 tokens a day for codex`."""
        return f"{self.limit_words} for {self.name or 'everything'}"

    @property
    def is_by_session(self) -> bool:
        """Say whether each session has the whole amount."""
        return self.span == BudgetSpan.SESSION

    def is_lifted(self, now: datetime) -> bool:
        """Say whether a person allowed to go on for now."""
        return self.allowed_until is not None and self.allowed_until > now

    def concerns(self, agents: Iterable[str | None], person: str | None) -> bool:
        """Say whether it counts what an agent, known by any of these names, does in a session of this person."""
        if self.reach == BudgetReach.AGENT:
            return self.name in agents
        return self.reach != BudgetReach.PERSON or self.name == person

    def may_concern(self, agents: Iterable[str | None]) -> bool:
        """Say whether it counts what such an agent does in some person's session at least."""
        return self.reach == BudgetReach.PERSON or self.concerns(agents, None)


@dataclass(frozen=True, slots=True)
class Use:
    """What was used, in the budget's measure; and the tokens that have no price, where it is money."""

    amount: float = 0.0
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class BudgetState:
    """How a budget stands, for a day or for one session; `lifted`: not applied until the end of the day."""

    budget: BudgetRow
    use: Use
    lifted: bool = False
    session_id: str | None = None
    silent: int = field(default=0)  # sessions that call tools and tell no tokens

    @property
    def share(self) -> float:
        return self.use.amount / self.budget.amount if self.budget.amount else 1.0

    @property
    def percent(self) -> int:
        """The share in percent, never rounded up to what is not reached."""
        return int(self.share * 100)

    @property
    def shown_percent(self) -> int:
        """The percentage as a bar can show it."""
        return min(self.percent, 100)

    @property
    def is_warned(self) -> bool:
        return self.share >= NEARLY / 100

    @property
    def is_reached(self) -> bool:
        return self.share >= 1.0

    @property
    def used_words(self) -> str:
        """What was used, and what is not counted."""
        words = in_words(self.use.amount, self.budget.measure)
        return f"at least {words}" if self.use.unpriced else words

    @property
    def unknown_words(self) -> str:
        """What could not be counted; nothing where all was."""
        if self.use.unpriced:
            words = f"{self.use.unpriced:,} tokens of models without a price are not counted."
            return (
                f"{words} Until they have one, a person is asked about each call."
                if self.budget.acts
                else words
            )
        if self.silent:
            told = (
                "sessions report no tokens and are" if self.silent > 1 else "session reports no tokens and is"
            )
            return f"{self.silent} {told} not counted."
        return ""


def in_words(amount: float, measure: str) -> str:
    """Return an amount as people read it."""
    if measure == BudgetMeasure.MONEY:
        return f"${amount:,.2f}" if amount >= 0.1 or not amount else f"${amount:,.4f}"
    return f"{amount:,.0f} {UNITS.get(measure, measure)}"


IN_FORCE = "SELECT 1 FROM budgets WHERE ended_at IS NULL LIMIT 1"


def in_force() -> tuple[BudgetRow, ...]:
    """Return every budget in force, oldest first. In plain SQL where there is none: each order and call asks it."""
    with connection.cursor() as cursor:
        cursor.execute(IN_FORCE)
        if cursor.fetchone() is None:
            return ()
    rows = Budget.objects.filter(ended_at__isnull=True).order_by("id")
    return tuple(row_of(row) for row in rows)


def row_of(row: Budget) -> BudgetRow:
    """Return one saved budget as it counts."""
    until = row.allowed_until if isinstance(row.allowed_until, datetime) else None
    return BudgetRow(row.pk, row.reach, row.name, row.span, row.measure, row.amount, row.at_limit, until)


def today(now: datetime) -> str:
    """Return the day of the installation's time zone."""
    return instants.day_of(instants.to_us(now) // 1000, settings.LOCAL_ZONE)


def end_of_today(now: datetime) -> datetime:
    """Return when that day ends."""
    return instants.end_of_day(now, settings.LOCAL_ZONE)


def counted(budget: BudgetRow, now: datetime, session_id: str | None = None) -> QuerySet[UsageDay]:
    """Return the rows that a budget counts: today's, or those of one session."""
    rows = UsageDay.objects.all()
    if budget.is_by_session:
        rows = rows.filter(session_id=session_id) if session_id is not None else rows.filter(day=today(now))
    else:
        rows = rows.filter(day=today(now))
    return _within_reach(budget, rows)


def _within_reach(budget: BudgetRow, rows: QuerySet[UsageDay]) -> QuerySet[UsageDay]:
    """Keep the rows of the agent or person that the budget is for."""
    if budget.reach == BudgetReach.AGENT:
        return rows.filter(Q(agent=budget.name) | Q(program=budget.name))
    return rows.filter(person=budget.name) if budget.reach == BudgetReach.PERSON else rows


def used(budget: BudgetRow, now: datetime, session_id: str | None = None) -> Use:
    """Return what was used of a budget today, or in the session."""
    return use_of(budget.measure, counted(budget, now, session_id))


def use_of(measure: str, rows: QuerySet[UsageDay]) -> Use:
    """Return what these rows say was used."""
    return _uses(measure, rows).get((), Use())


def _uses(measure: str, rows: QuerySet[UsageDay], *names: str) -> dict[tuple[Any, ...], Use]:
    """Return what these rows say was used, told apart by the columns `names`."""
    if measure == BudgetMeasure.MONEY:
        rows = rows.exclude(model="")
    columns = ("calls",) if measure == BudgetMeasure.CALLS else tuple(f"{kind}_tokens" for kind in KINDS)
    sums = {f"sum_{column}": Sum(column) for column in columns}
    told: dict[tuple[Any, ...], list[Sequence[Any]]] = {}
    for row in rows.order_by().values_list(*names, "model").annotate(**sums):
        told.setdefault(row[: len(names)], []).append(row[len(names) :])
    if measure == BudgetMeasure.MONEY:
        own = prices.own_prices() if told else {}
        return {key: _money(some, own) for key, some in told.items()}
    return {key: Use(float(sum(sum(row[1:]) for row in some))) for key, some in told.items()}


def _money(told: Iterable[Sequence[Any]], own: Mapping[str, Price]) -> Use:
    """Return what models' tokens of each kind cost together."""
    money, unpriced = 0.0, 0
    for model, *sums in told:
        tokens = {kind: int(one or 0) for kind, one in zip(KINDS, sums, strict=True)}
        price = prices.price_of(model, own)
        money += price.of(tokens) if price is not None else 0.0
        unpriced += sum(tokens.values()) if price is None else 0
    return Use(money, unpriced)


def standing(budget: BudgetRow, now: datetime, session_id: str | None = None) -> BudgetState:
    """Return how a budget stands today, or in the session."""
    about = session_id if budget.is_by_session else None
    return BudgetState(budget, used(budget, now, session_id), budget.is_lifted(now), about)


def states_of_sessions(budget: BudgetRow, session_ids: Sequence[str], now: datetime) -> list[BudgetState]:
    """Return how a budget by session stands in each of the sessions, by one query."""
    uses = _uses(
        budget.measure,
        _within_reach(budget, UsageDay.objects.filter(session_id__in=session_ids)),
        "session_id",
    )
    is_lifted = budget.is_lifted(now)
    return [BudgetState(budget, uses.get((name,), Use()), is_lifted, name) for name in session_ids]


def of_session(
    budgets: Sequence[BudgetRow], agents: Iterable[str | None], session_id: str, now: datetime
) -> list[BudgetState]:
    """Return how the budgets stand that count what happens in a session."""
    names, person = list(agents), _person_if_needed(budgets, session_id)
    return [standing(one, now, session_id) for one in budgets if one.concerns(names, person)]


def ruling(
    budgets: Sequence[BudgetRow],
    agents: Iterable[str | None],
    session_id: str,
    now: datetime,
    *,
    is_counted: Callable[[], bool] = lambda: True,
) -> Ruling:
    """Return what the budgets say of the next call in a session: denied, asked about, or nothing.

    `is_counted` says whether what the caller does is still written today, and so in the budgets' sums.
    """
    acting = [one for one in budgets if one.acts and not one.is_lifted(now)]
    found = NO_OPINION
    for one in of_session(acting, [*agents, *names_of(session_id)], session_id, now) if acting else ():
        if one.is_reached:
            found = stricter(found, by_budget(one))
        elif one.use.unpriced:
            found = stricter(found, by_unpriced(one))
        elif not is_counted():
            found = stricter(found, by_uncounted(one))
    return found


def names_of(session_id: str) -> list[str | None]:
    """Return the agent of a session and its programs: that of a runner, and of the agent that it drives."""
    rows = Session.objects.filter(pk=session_id)
    found = rows.values_list("agent_name", "executor_profile", "driven__agent").first()
    if found is None:
        return []
    *names, driven = found
    return [*names, program_of(driven)] if driven else names


def by_budget(reached: BudgetState) -> Ruling:
    """Return what a budget that is used up says of a call."""
    budget = reached.budget
    words = f"The budget of {budget.title} is used up ({reached.used_words})."
    by = f"budget {budget.id}"
    if budget.at_limit == AtLimit.ASK:
        return Ruling(ASK, words, by, deny_at_deadline=True, ground=budget)
    end = "" if budget.is_by_session else " or the day ends"
    return Ruling(
        DENY,
        f"{words} No call runs until a person raises it{end}. Stop here and tell your user.",
        by,
        ground=budget,
    )


def by_unpriced(found: BudgetState) -> Ruling:
    """Return what a budget in money says of a call while some of what was used has no price: nobody knows the sum."""
    words = (
        f"The budget of {found.budget.title} cannot be counted: {found.use.unpriced:,} tokens are of "
        "models without a price. Set a price on the page Costs (0 if the model is free)."
    )
    return Ruling(ASK, words, f"budget {found.budget.id}", deny_at_deadline=True, ground=found.budget)


def by_uncounted(state: BudgetState) -> Ruling:
    """Return what a budget says of a call whose key has reached its quota: what it uses is in no sum any more."""
    words = (
        f"The budget of {state.budget.title} cannot be counted: the key has stored as much today as it may "
        "(SIGNALBOX_KEY_MIB_PER_DAY)."
    )
    return Ruling(ASK, words, f"budget {state.budget.id}", deny_at_deadline=True, ground=state.budget)


@dataclass(frozen=True, slots=True)
class SpentBudget:
    """A budget that is used up and lets no run begin, as the queue of runs asks about it.

    `owners` keeps whose the sessions are that were asked about: a queue asks for each run, runner and budget.
    """

    budget: BudgetRow
    owners: dict[str, str | None]

    @property
    def title(self) -> str:
        return self.budget.title

    def concerns(self, agents: Iterable[str | None], session_id: str) -> bool:
        """Say whether it counts what one of these agents does in a session."""
        if self.budget.reach != BudgetReach.PERSON:
            return self.budget.concerns(agents, None)
        if session_id not in self.owners:
            self.owners[session_id] = owner_of(session_id)
        return self.budget.concerns(agents, self.owners[session_id])


def spent_for_runs(now: datetime) -> list[SpentBudget]:
    """Return the budgets of the day that are used up and let no run begin."""
    of_the_day = (one for one in _holding(now) if not one.is_by_session)
    owners: dict[str, str | None] = {}
    return [SpentBudget(one, owners) for one in of_the_day if standing(one, now).is_reached]


def used_up(budget: BudgetRow, now: datetime) -> bool:
    """Say whether a budget is used up or cannot be counted: today, or in a session that was at work today."""
    if not budget.is_by_session:
        return _stops(standing(budget, now))
    at_work = counted(budget, now).order_by().values("session_id").distinct()
    rows = UsageDay.objects.filter(session_id__in=at_work)
    return any(_stops(BudgetState(budget, use)) for use in _uses(budget.measure, rows, "session_id").values())


def _stops(found: BudgetState) -> bool:
    return found.is_reached or found.use.unpriced > 0


def hold_runs(now: datetime) -> bool:
    """Say whether there is a budget that lets no run begin once it is used up."""
    return bool(_holding(now))


def holding_runs(
    agents: Iterable[str | None], person: str | None, session_id: str | None, now: datetime
) -> BudgetState | None:
    """Return the budget that is used up and lets no run of this agent and person begin; or None."""
    return _first_used_up(_holding(now), list(agents), person, session_id, now)


def holding_run_of(session_id: str, agents: Iterable[str | None], now: datetime) -> BudgetState | None:
    """Return the budget that is used up and lets no run of a session begin; one query where none holds runs."""
    held = _holding(now)
    if not held:
        return None
    return _first_used_up(held, list(agents), _person_if_needed(held, session_id), session_id, now)


def _holding(now: datetime) -> list[BudgetRow]:
    return [one for one in in_force() if one.at_limit == AtLimit.HOLD and not one.is_lifted(now)]


def _first_used_up(
    held: Iterable[BudgetRow],
    names: list[str | None],
    person: str | None,
    session_id: str | None,
    now: datetime,
) -> BudgetState | None:
    for budget in held:
        if not budget.concerns(names, person) or (budget.is_by_session and session_id is None):
            continue  # a new session has used nothing
        found = standing(budget, now, session_id)
        if found.is_reached:
            return found
    return None


def _person_if_needed(budgets: Sequence[BudgetRow], session_id: str) -> str | None:
    return owner_of(session_id) if any(one.reach == BudgetReach.PERSON for one in budgets) else None


def owner_of(session_id: str) -> str | None:
    """Return whose a session is: who ordered it on a page, else who made the key that began it; or None."""
    ordered = SessionOwner.objects.filter(pk=session_id).values_list("person", flat=True).first()
    if ordered is not None:
        return ordered
    writers = SessionWriter.objects.filter(session_id=session_id).order_by("is_runner", "id")
    makers = [maker_of(name) for name in writers.values_list("writer", flat=True)[:5]]
    return next((one for one in makers if one), None)


def maker_of(key: str) -> str | None:
    """Return the person who made a key, by the key's name."""
    by = ApiKey.objects.filter(name=key).values_list("created_by", flat=True).first() or ""
    return by.removeprefix("user:") if by.startswith("user:") else None


def silent_sessions(rows: QuerySet[UsageDay]) -> int:
    """Return how many sessions of these rows call tools and tell no tokens."""
    telling = rows.exclude(model="").values("session_id")
    return rows.filter(calls__gt=0).exclude(session_id__in=telling).values("session_id").distinct().count()
