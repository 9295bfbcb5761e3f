"""The use of budgets, and its consequences for a call or a run. Only reads.

Sums are read from `usage_days`, a few rows a session and day. Tokens and money count on the day of the request, as on
the page Usage, and a call on the day on which it was made. What is under way when a budget is used up is
not in it, and may exceed it. What nobody can count (a model without a price, an agent that reports no tokens) is said,
and never taken for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Substr

from coordinator.lib import instants
from coordinator.models import ApiKey, Budget, Session, SessionOwner, SessionWriter, UsageDay
from coordinator.models.budgets import AtLimit, BudgetMeasure, BudgetReach, BudgetSpan
from coordinator.policy.rules.tool_rules import ASK, DENY, NO_OPINION, Ruling, stricter_ruling
from coordinator.sessions.driven_agent_updates import program_name_of_runner_agent
from coordinator.usage import prices
from coordinator.usage.prices import KINDS, normalize_model_name

LEVELS = NEARLY, USED_UP = (80, 100)  # percent of the amount at which people are notified
UNITS = {"tokens": "tokens", "calls": "tool calls"}
SPAN_LABELS: dict[str, str] = {
    BudgetSpan.DAY: "a day",
    BudgetSpan.WEEK: "a week",
    BudgetSpan.MONTH: "a month",
    BudgetSpan.SESSION: "a session",
}
FOLDER_SEPARATORS = ("/", "\\")
FORECAST_FROM = 0.05  # of a period: before, a rate says nothing
ROUNDING = 1e-12  # of an amount: by so much a sum of floats may be too small


@dataclass(frozen=True, slots=True)
class BudgetSubject:
    """Whose use it is that budgets are asked about: what is known of a session, or of a run that has none yet."""

    agents: frozenset[str | None]  # all names by which its agent is known
    person: str | None = None
    host: str | None = None
    folder: str | None = None
    models: frozenset[str] = frozenset()  # that it has used, by their plain names


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
    def can_block(self) -> bool:
        """Say whether it ever holds anything up."""
        return self.at_limit != AtLimit.WARN

    @property
    def limit_label(self) -> str:
        """The limit, such as `200,000 tokens a day`."""
        return f"{format_budget_amount(self.amount, self.measure)} {SPAN_LABELS.get(self.span, self.span)}"

    @property
    def title(self) -> str:
        """The budget in a few words, such as `200,000 tokens a day for codex`."""
        return f"{self.limit_label} for {self.name or 'everything'}"

    @property
    def is_limit_per_session(self) -> bool:
        """Say whether each session has the whole amount."""
        return self.span == BudgetSpan.SESSION

    def is_lifted(self, now: datetime) -> bool:
        """Say whether a person allowed to go on for now."""
        return self.allowed_until is not None and self.allowed_until > now

    def applies_to(self, subject: BudgetSubject) -> bool:
        """Say whether it counts what such an agent does there. A reach that is not known is that of everything."""
        if self.reach == BudgetReach.AGENT:
            return self.name in subject.agents
        if self.reach == BudgetReach.PERSON:
            return self.name == subject.person
        if self.reach == BudgetReach.HOST:
            return self.name == subject.host
        if self.reach == BudgetReach.FOLDER:
            return is_within_folder(subject.folder, self.name)
        return self.reach != BudgetReach.MODEL or normalize_model_name(self.name) in subject.models

    def can_apply_to_agents(self, agents: Iterable[str | None]) -> bool:
        """Say whether it counts what such an agent does in some session at least."""
        return self.reach != BudgetReach.AGENT or self.name in agents


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """What was used, in the budget's measure; and the tokens that have no price, where it is money."""

    amount: float = 0.0
    unpriced: int = 0


@dataclass(frozen=True, slots=True)
class BudgetState:
    """The state of a budget, for a day or for one session; `lifted`: not applied until the end of the day."""

    budget: BudgetRow
    use: BudgetUsage
    lifted: bool = False
    session_id: str | None = None
    silent: int = field(default=0)  # sessions that call tools and report no tokens
    forecast: BudgetForecast | None = None

    @property
    def used_fraction(self) -> float:
        """The used share of the amount; ten times $0.10 are a dollar, however floats sum them up."""
        return (1 + ROUNDING) * self.use.amount / self.budget.amount if self.budget.amount else 1.0

    @property
    def used_percent(self) -> int:
        """The share in percent, never rounded up to what is not reached."""
        return int(self.used_fraction * 100)

    @property
    def shown_percent(self) -> int:
        """The percentage as a bar can show it."""
        return min(self.used_percent, 100)

    @property
    def is_near_limit(self) -> bool:
        return self.used_fraction >= NEARLY / 100

    @property
    def is_reached(self) -> bool:
        return self.used_fraction >= 1.0

    @property
    def used_amount_label(self) -> str:
        """What was used, and what is not counted."""
        budget_amount_text = format_budget_amount(self.use.amount, self.budget.measure)
        return f"at least {budget_amount_text}" if self.use.unpriced else budget_amount_text

    @property
    def uncounted_usage_label(self) -> str:
        """What could not be counted; nothing where all was."""
        if self.use.unpriced:
            label = f"{self.use.unpriced:,} tokens of models without a price are not counted."
            return (
                f"{label} Until they have one, a person is asked about each call."
                if self.budget.can_block
                else label
            )
        if self.silent:
            unpriced_text = (
                "sessions report no tokens and are" if self.silent > 1 else "session reports no tokens and is"
            )
            return f"{self.silent} {unpriced_text} not counted."
        return ""


@dataclass(frozen=True, slots=True)
class BudgetForecast:
    """How a period's use goes on at its rate so far: when the budget is used up, or how much of it at the end."""

    used_up_at: datetime | None
    end_percent: int

    @property
    def used_up_label(self) -> str:
        """The day and time at which it is used up, such as `Thursday, 26 November, 14:05`."""
        if self.used_up_at is None:
            return ""
        local = self.used_up_at.astimezone(settings.LOCAL_ZONE)
        return f"{local:%A}, {local.day} {local:%B, %H:%M}"


def forecast_budget_or_none(state: BudgetState, now: datetime) -> BudgetForecast | None:
    """Return a budget's state at the end of its period if use goes on like this; None where that says nothing."""
    if state.budget.is_limit_per_session or state.is_reached or not state.use.amount:
        return None
    begin, end = budget_period_bounds(state.budget, now)
    elapsed, period = now - begin, end - begin
    if elapsed < period * FORECAST_FROM:
        return None
    end_fraction = state.used_fraction * (period / elapsed)
    if end_fraction <= 1:  # of a budget that is hardly used, the end would be beyond all years
        return BudgetForecast(None, int(100 * end_fraction))
    used_up_at = now + elapsed * ((1 - state.used_fraction) / state.used_fraction)
    return BudgetForecast(used_up_at, int(100 * end_fraction))


def format_budget_amount(amount: float, measure: str) -> str:
    """Return an amount as people read it."""
    if measure == BudgetMeasure.MONEY:
        return f"${amount:,.2f}" if amount >= 0.1 or not amount else f"${amount:,.4f}"
    return f"{amount:,.0f} {UNITS.get(measure, measure)}"


IN_FORCE = "SELECT 1 FROM budgets WHERE ended_at IS NULL LIMIT 1"


def load_active_budgets() -> tuple[BudgetRow, ...]:
    """Return every budget in force, oldest first. In plain SQL where there is none: each order and call asks it."""
    with connection.cursor() as cursor:
        cursor.execute(IN_FORCE)
        if cursor.fetchone() is None:
            return ()
    rows = Budget.objects.filter(ended_at__isnull=True).order_by("id")
    return tuple(convert_budget_row(row) for row in rows)


def convert_budget_row(row: Budget) -> BudgetRow:
    """Return one saved budget as it counts."""
    until = row.allowed_until if isinstance(row.allowed_until, datetime) else None
    return BudgetRow(row.pk, row.reach, row.name, row.span, row.measure, row.amount, row.at_limit, until)


def is_within_folder(folder: str | None, outer: str) -> bool:
    """Say whether a folder is `outer` or below it."""
    outer = strip_trailing_folder_separators(outer)
    return folder is not None and (
        strip_trailing_folder_separators(folder) == outer
        or folder.startswith(tuple(outer + end for end in FOLDER_SEPARATORS))
    )


def strip_trailing_folder_separators(folder: str) -> str:
    return folder.rstrip("".join(FOLDER_SEPARATORS))


def installation_local_iso_date(now: datetime) -> str:
    """Return the day of the installation's time zone."""
    return instants.local_iso_date_of_milliseconds(
        instants.instant_to_microseconds(now) // 1000, settings.LOCAL_ZONE
    )


def budget_period_dates(budget: BudgetRow, now: datetime) -> tuple[date, date]:
    """Return the first and the last day of a budget's current period. That of a session is the day."""
    today = date.fromisoformat(installation_local_iso_date(now))
    if budget.span == BudgetSpan.WEEK:
        first = today - timedelta(days=today.weekday())
        return first, first + timedelta(days=6)
    if budget.span == BudgetSpan.MONTH:
        next_month = (today.replace(day=28) + timedelta(days=4)).replace(day=1)
        return today.replace(day=1), next_month - timedelta(days=1)
    return today, today


def budget_period_bounds(budget: BudgetRow, now: datetime) -> tuple[datetime, datetime]:
    """Return when a budget's current period began, and when it ends."""
    first, last = budget_period_dates(budget, now)
    midnights = (
        datetime.combine(day, time.min, settings.LOCAL_ZONE) for day in (first, last + timedelta(days=1))
    )
    begin, end = (midnight.astimezone(UTC) for midnight in midnights)
    return begin, end


def current_period_iso_label(budget: BudgetRow, now: datetime) -> str:
    """Return the period that a message is about: `2026-11-27`, `2026-W48` or `2026-11`."""
    first, _ = budget_period_dates(budget, now)
    if budget.span == BudgetSpan.WEEK:
        return f"{first:%G-W%V}"
    return f"{first:%Y-%m}" if budget.span == BudgetSpan.MONTH else first.isoformat()


def end_of_today(now: datetime) -> datetime:
    """Return when that day ends."""
    return instants.end_of_day(now, settings.LOCAL_ZONE)


def budget_usage_rows(budget: BudgetRow, now: datetime, session_id: str | None = None) -> QuerySet[UsageDay]:
    """Return the rows that a budget counts: those of its period, or of one session."""
    rows = UsageDay.objects.all()
    if budget.is_limit_per_session and session_id is not None:
        return filter_usage_in_budget_reach(budget, rows.filter(session_id=session_id))
    first, last = budget_period_dates(budget, now)
    return filter_usage_in_budget_reach(
        budget, rows.filter(day__gte=first.isoformat(), day__lte=last.isoformat())
    )


def filter_usage_in_budget_reach(budget: BudgetRow, rows: QuerySet[UsageDay]) -> QuerySet[UsageDay]:
    """Keep the rows of the agent, person, host, folder or model that the budget is for."""
    if budget.reach == BudgetReach.AGENT:
        return rows.filter(Q(agent=budget.name) | Q(program=budget.name))
    if budget.reach == BudgetReach.PERSON:
        return rows.filter(person=budget.name)
    if budget.reach == BudgetReach.HOST:
        return rows.filter(hostname=budget.name)
    if budget.reach == BudgetReach.FOLDER:
        outer = strip_trailing_folder_separators(budget.name)
        beginning = Substr("project_dir", 1, len(outer) + 1)  # LIKE is deaf to case on SQLite
        inner = [outer + end for end in FOLDER_SEPARATORS]
        return rows.alias(beginning=beginning).filter(Q(project_dir=outer) | Q(beginning__in=inner))
    if budget.reach == BudgetReach.MODEL:
        return rows.filter(model__in=find_model_spellings_in_usage(budget.name, rows))
    return rows


def find_model_spellings_in_usage(name: str, rows: QuerySet[UsageDay]) -> list[str]:
    """Return the names under which these rows have a model."""
    plain_name = normalize_model_name(name)
    reported = rows.order_by().values_list("model", flat=True).distinct()
    return [model for model in reported if model and normalize_model_name(model) == plain_name]


def load_usage_of_budget(budget: BudgetRow, now: datetime, session_id: str | None = None) -> BudgetUsage:
    """Return what was used of a budget today, or in the session."""
    return sum_usage_rows(budget.measure, budget_usage_rows(budget, now, session_id))


def sum_usage_rows(measure: str, rows: QuerySet[UsageDay]) -> BudgetUsage:
    """Return what these rows say was used."""
    return sum_usage_by_columns(measure, rows).get((), BudgetUsage())


def sum_usage_by_columns(
    measure: str, rows: QuerySet[UsageDay], *names: str
) -> dict[tuple[Any, ...], BudgetUsage]:
    """Return the use that these rows record, grouped by the columns `names`."""
    if measure == BudgetMeasure.MONEY:
        return sum_costs_by_columns(rows.exclude(model=""), *names)
    columns = ("calls",) if measure == BudgetMeasure.CALLS else tuple(f"{kind}_tokens" for kind in KINDS)
    sums = {f"sum_{column}": Sum(column) for column in columns}
    amounts: dict[tuple[Any, ...], float] = {}
    for row in rows.order_by().values_list(*names, "model").annotate(**sums):
        key = row[: len(names)]
        amounts[key] = amounts.get(key, 0.0) + sum(row[len(names) + 1 :])
    return {key: BudgetUsage(amount) for key, amount in amounts.items()}


def sum_costs_by_columns(rows: QuerySet[UsageDay], *names: str) -> dict[tuple[Any, ...], BudgetUsage]:
    """Return the cost of these rows, grouped by the columns `names`.

    Costs are stored, each at the price of its day. Days that an older version has counted have tokens alone, which
    are priced here.
    """
    is_old = Q(cost__isnull=True)
    sums = {f"sum_{kind}": Sum(f"{kind}_tokens", filter=is_old, default=0) for kind in KINDS}
    sums |= {"sum_cost": Sum("cost", default=0.0), "sum_unpriced": Sum("unpriced_tokens", default=0)}
    usages: dict[tuple[Any, ...], BudgetUsage] = {}
    own = None
    for row in rows.order_by().values(*names, "model").annotate(**sums):
        cost, unpriced = float(row["sum_cost"]), int(row["sum_unpriced"])
        tokens = {kind: int(row[f"sum_{kind}"]) for kind in KINDS}
        if any(tokens.values()):
            own = prices.load_configured_model_prices() if own is None else own
            price = prices.find_model_price(row["model"], own)
            cost += price.cost_of_tokens(tokens) if price is not None else 0.0
            unpriced += sum(tokens.values()) if price is None else 0
        key = tuple(row[name] for name in names)
        before = usages.get(key, BudgetUsage())
        usages[key] = BudgetUsage(before.amount + cost, before.unpriced + unpriced)
    return usages


def current_budget_state(budget: BudgetRow, now: datetime, session_id: str | None = None) -> BudgetState:
    """Return a budget's state today, or in the session."""
    about = session_id if budget.is_limit_per_session else None
    return BudgetState(budget, load_usage_of_budget(budget, now, session_id), budget.is_lifted(now), about)


def list_budget_states_of_sessions(
    budget: BudgetRow, session_ids: Sequence[str], now: datetime
) -> list[BudgetState]:
    """Return the state of a budget by session in each of the sessions, by one query."""
    uses = sum_usage_by_columns(
        budget.measure,
        filter_usage_in_budget_reach(budget, UsageDay.objects.filter(session_id__in=session_ids)),
        "session_id",
    )
    is_lifted = budget.is_lifted(now)
    return [BudgetState(budget, uses.get((name,), BudgetUsage()), is_lifted, name) for name in session_ids]


def load_session_budget_states(
    budgets: Sequence[BudgetRow], agents: Iterable[str | None], session_id: str, now: datetime
) -> list[BudgetState]:
    """Return the states of the budgets that count what happens in a session."""
    subject = load_budget_subject_of_session({budget.reach for budget in budgets}, agents, session_id)
    return [current_budget_state(budget, now, session_id) for budget in budgets if budget.applies_to(subject)]


def decide_by_budgets(
    budgets: Sequence[BudgetRow],
    agents: Iterable[str | None],
    session_id: str,
    now: datetime,
    *,
    are_writes_counted: Callable[[], bool] = lambda: True,
) -> Ruling:
    """Return what the budgets say of the next call in a session: denied, asked about, or nothing.

    `are_writes_counted` says whether what the caller does is still written today, and so in the budgets' sums.
    """
    acting = [budget for budget in budgets if budget.can_block and not budget.is_lifted(now)]
    ruling = NO_OPINION
    for budget in (
        load_session_budget_states(
            acting, [*agents, *load_session_agent_and_programs(session_id)], session_id, now
        )
        if acting
        else ()
    ):
        if budget.is_reached:
            ruling = stricter_ruling(ruling, ruling_for_spent_budget(budget))
        elif budget.use.unpriced:
            ruling = stricter_ruling(ruling, ruling_for_unpriced_tokens(budget))
        elif not are_writes_counted():
            ruling = stricter_ruling(ruling, build_ask_ruling_over_quota(budget))
    return ruling


def load_session_agent_and_programs(session_id: str) -> list[str | None]:
    """Return the agent of a session and its programs: that of a runner, and of the agent that it drives."""
    rows = Session.objects.filter(pk=session_id)
    name_row = rows.values_list("agent_name", "executor_profile", "driven__agent").first()
    if name_row is None:
        return []
    *names, driven = name_row
    return [*names, program_name_of_runner_agent(driven)] if driven else names


def ruling_for_spent_budget(reached: BudgetState) -> Ruling:
    """Return what a budget that is used up says of a call."""
    budget = reached.budget
    reason = f"The budget of {budget.title} is used up ({reached.used_amount_label})."
    by = f"budget {budget.id}"
    if budget.at_limit == AtLimit.ASK:
        return Ruling(ASK, reason, by, deny_at_deadline=True, ground=budget)
    end = "" if budget.is_limit_per_session else f" or the {budget.span} ends"
    return Ruling(
        DENY,
        f"{reason} No call runs until a person raises it{end}. Stop here and tell your user.",
        by,
        ground=budget,
    )


def ruling_for_unpriced_tokens(state: BudgetState) -> Ruling:
    """Return what a budget in money says of a call while some of what was used has no price: nobody knows the sum."""
    reason = (
        f"The budget of {state.budget.title} cannot be counted: {state.use.unpriced:,} tokens are of "
        "models without a price. Set a price on the page Usage (0 if the model is free)."
    )
    return Ruling(ASK, reason, f"budget {state.budget.id}", deny_at_deadline=True, ground=state.budget)


def build_ask_ruling_over_quota(state: BudgetState) -> Ruling:
    """Return what a budget says of a call whose key has reached its quota: what it uses is in no sum any more."""
    reason = (
        f"The budget of {state.budget.title} cannot be counted: the key has stored as much today as it may "
        "(SIGNALBOX_KEY_MIB_PER_DAY)."
    )
    return Ruling(ASK, reason, f"budget {state.budget.id}", deny_at_deadline=True, ground=state.budget)


@dataclass(frozen=True, slots=True)
class SpentBudget:
    """A budget that is used up and lets no run begin, as the queue of runs asks about it.

    `subjects` keeps what is known of the sessions that were asked about: a queue asks for each run, runner and budget.
    """

    budget: BudgetRow
    subjects: dict[tuple[str, str], BudgetSubject]  # by reach and session

    @property
    def title(self) -> str:
        return self.budget.title

    def covers_session(self, agents: Iterable[str | None], session_id: str) -> bool:
        """Say whether it counts what one of these agents does in a session."""
        if self.budget.reach == BudgetReach.AGENT:
            return self.budget.name in agents
        key = (self.budget.reach, session_id)
        if key not in self.subjects:
            self.subjects[key] = load_budget_subject_of_session({self.budget.reach}, (), session_id)
        return self.budget.applies_to(self.subjects[key])

    @property
    def span(self) -> str:
        return self.budget.span


def load_spent_run_budgets(now: datetime) -> list[SpentBudget]:
    """Return the budgets of a period that are used up and let no run begin."""
    periodic = (budget for budget in load_hold_at_limit_budgets(now) if not budget.is_limit_per_session)
    subjects: dict[tuple[str, str], BudgetSubject] = {}
    return [
        SpentBudget(budget, subjects) for budget in periodic if current_budget_state(budget, now).is_reached
    ]


def is_budget_spent_or_uncountable(budget: BudgetRow, now: datetime) -> bool:
    """Say whether a budget is used up or cannot be counted: today, or in a session that was at work today."""
    if not budget.is_limit_per_session:
        return is_spent_or_unpriced(current_budget_state(budget, now))
    at_work = budget_usage_rows(budget, now).order_by().values("session_id").distinct()
    rows = filter_usage_in_budget_reach(budget, UsageDay.objects.filter(session_id__in=at_work))
    return any(
        is_spent_or_unpriced(BudgetState(budget, use))
        for use in sum_usage_by_columns(budget.measure, rows, "session_id").values()
    )


def is_spent_or_unpriced(state: BudgetState) -> bool:
    return state.is_reached or state.use.unpriced > 0


def has_hold_at_limit_budget(now: datetime) -> bool:
    """Say whether there is a budget that lets no run begin once it is used up."""
    return bool(load_hold_at_limit_budgets(now))


def find_budget_blocking_run(
    subject: BudgetSubject, session_id: str | None, now: datetime
) -> BudgetState | None:
    """Return the budget that is used up and lets no run of this subject begin; or None."""
    return find_first_spent_budget(load_hold_at_limit_budgets(now), subject, session_id, now)


def find_budget_blocking_session(
    session_id: str, agents: Iterable[str | None], now: datetime
) -> BudgetState | None:
    """Return the budget that is used up and lets no run of a session begin; one query where none holds runs."""
    run_holding_budgets = load_hold_at_limit_budgets(now)
    if not run_holding_budgets:
        return None
    return find_first_spent_budget(
        run_holding_budgets,
        load_budget_subject_of_session({budget.reach for budget in run_holding_budgets}, agents, session_id),
        session_id,
        now,
    )


def load_hold_at_limit_budgets(now: datetime) -> list[BudgetRow]:
    return [
        budget
        for budget in load_active_budgets()
        if budget.at_limit == AtLimit.HOLD and not budget.is_lifted(now)
    ]


def find_first_spent_budget(
    budgets: Iterable[BudgetRow],
    subject: BudgetSubject,
    session_id: str | None,
    now: datetime,
) -> BudgetState | None:
    for budget in budgets:
        if not budget.applies_to(subject) or (budget.is_limit_per_session and session_id is None):
            continue  # a new session has used nothing
        spent_state = current_budget_state(budget, now, session_id)
        if spent_state.is_reached:
            return spent_state
    return None


def load_budget_subject_of_session(
    reaches: Collection[str], agents: Iterable[str | None], session_id: str
) -> BudgetSubject:
    """Return what budgets of these reaches ask of a session; what none of them asks about is not looked up."""
    host = folder = None
    if BudgetReach.HOST in reaches or BudgetReach.FOLDER in reaches:
        sessions = Session.objects.filter(pk=session_id).values_list("hostname", "project_dir")
        host, folder = sessions.first() or (None, None)
    models: frozenset[str] = frozenset()
    if BudgetReach.MODEL in reaches:
        used = UsageDay.objects.filter(session_id=session_id).exclude(model="").order_by()
        models = frozenset(map(normalize_model_name, used.values_list("model", flat=True).distinct()))
    person = find_session_owner_username(session_id) if BudgetReach.PERSON in reaches else None
    return BudgetSubject(frozenset(agents), person, host, folder, models)


def find_session_owner_username(session_id: str) -> str | None:
    """Return whose a session is: who ordered it on a page, else who made the key that began it; or None."""
    ordered = SessionOwner.objects.filter(pk=session_id).values_list("person", flat=True).first()
    if ordered is not None:
        return ordered
    writers = SessionWriter.objects.filter(session_id=session_id).order_by("is_runner", "id")
    makers = [find_api_key_creator_username(name) for name in writers.values_list("writer", flat=True)[:5]]
    return next((maker for maker in makers if maker), None)


def find_api_key_creator_username(key: str) -> str | None:
    """Return the person who made a key, by the key's name."""
    by = ApiKey.objects.filter(name=key).values_list("created_by", flat=True).first() or ""
    return by.removeprefix("user:") if by.startswith("user:") else None


def count_sessions_without_tokens(rows: QuerySet[UsageDay]) -> int:
    """Return how many sessions of these rows call tools and report no tokens."""
    telling = rows.exclude(model="").values("session_id")
    return rows.filter(calls__gt=0).exclude(session_id__in=telling).values("session_id").distinct().count()
