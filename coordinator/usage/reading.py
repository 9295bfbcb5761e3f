"""Sums of tokens and costs, by model, agent, program, person, host and folder (`DIMENSIONS`). It only reads.

All sums are of `usage_requests`. A model without a price has tokens and no cost: no price is made up for it, and sums
say that they are not whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    F,
    FloatField,
    IntegerField,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from coordinator.lib import instants
from coordinator.models import ModelRequestUsage, UsageDay, UsageFill
from coordinator.models.agent_names import load_linked_agents_by_name


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens by kind, and their cost in US dollars as far as prices are known (`unpriced_tokens` have none)."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    unpriced_tokens: int = 0
    requests: int = 0
    cache_write_1h: int = 0  # part of `cache_write`
    reasoning: int = 0  # part of `output`
    web_searches: int = 0

    @property
    def is_all_usage_priced(self) -> bool:
        """Say whether all of it has a price."""
        return not self.unpriced_tokens

    @property
    def total_tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    @property
    def cached_tokens(self) -> int:
        return self.cache_read + self.cache_write

    @property
    def cache_hit_percent(self) -> int:
        """The share of what went into the model that came from a cache."""
        return 100 * self.cache_read // max(self.input + self.cached_tokens, 1)

    @property
    def cost_label(self) -> str:
        """The cost as people read it; `from $1.20` where some of it has no price."""
        if not self.is_all_usage_priced and not self.cost:
            return "no price"
        return f"{'' if self.is_all_usage_priced else 'from '}{format_dollars(self.cost)}"

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(*(getattr(self, name) + getattr(other, name) for name in FIELDS))


FIELDS = tuple(TokenUsage.__dataclass_fields__)
# Whose a session `s` is: who ordered it on a page, else who made the key that began it.
SESSION_OWNER = (
    "coalesce((SELECT o.person FROM session_owners o WHERE o.session_id = s.session_id),"
    " (SELECT substr(k.created_by, 6) FROM session_writers w JOIN api_keys k ON k.name = w.writer"
    " WHERE w.session_id = s.session_id AND substr(k.created_by, 1, 5) = 'user:'"
    " ORDER BY w.is_runner, w.id LIMIT 1))"
)


def format_dollars(dollars: float) -> str:
    return f"${dollars:,.{2 if dollars >= 0.1 or not dollars else 4}f}"


def build_column_sum_expression(*columns: str, when: Q | None = None) -> Sum:
    """Return the sum of columns over a group's rows, 0 where it has none."""
    total: Any = F(columns[0])
    for column in columns[1:]:
        total += F(column)
    value = Case(When(when, then=total), default=Value(0)) if when is not None else total
    return Sum(value, default=0, output_field=BigIntegerField())


_WRITTEN = ("cache_write_5m_tokens", "cache_write_1h_tokens")
_ALL = ("input_tokens", "output_tokens", "cache_read_tokens", *_WRITTEN)
SUMS: dict[str, Any] = {
    "sum_input": build_column_sum_expression("input_tokens"),
    "sum_output": build_column_sum_expression("output_tokens"),
    "sum_cache_read": build_column_sum_expression("cache_read_tokens"),
    "sum_cache_write": build_column_sum_expression(*_WRITTEN),
    "sum_cost": Sum(Coalesce("cost", Value(0.0)), default=0.0, output_field=FloatField()),
    "sum_unpriced_tokens": build_column_sum_expression(*_ALL, when=Q(cost__isnull=True)),
    "sum_requests": Count("*"),
    "sum_cache_write_1h": build_column_sum_expression("cache_write_1h_tokens"),
    "sum_reasoning": build_column_sum_expression("reasoning_tokens"),
    "sum_web_searches": build_column_sum_expression("web_searches"),
}


def token_usage_from_sums(row: Mapping[str, Any]) -> TokenUsage:
    """Return the usage that a row of SUMS holds."""
    # PostgreSQL sums integers as decimals.
    values: dict[str, Any] = {name: int(row[f"sum_{name}"] or 0) for name in FIELDS if name != "cost"}
    return TokenUsage(cost=float(row["sum_cost"] or 0), **values)


def load_usage_by_column_values(
    rows: QuerySet[ModelRequestUsage], *names: str
) -> dict[tuple[Any, ...], TokenUsage]:
    """Return the usage of each group of `rows` by the columns `names`."""
    grouped = rows.order_by().values(*names).annotate(**SUMS)
    return {tuple(row[name] for name in names): token_usage_from_sums(row) for row in grouped}


def sum_usage_rows(rows: QuerySet[ModelRequestUsage]) -> TokenUsage:
    """Return the usage of `rows` together."""
    return token_usage_from_sums(rows.aggregate(**SUMS))


@dataclass(frozen=True, slots=True)
class PeriodUsage:
    """What a period's requests used together."""

    total: TokenUsage = TokenUsage()
    subagents: TokenUsage = TokenUsage()  # part of `total`
    sessions: int = 0

    @property
    def subagent_percent(self) -> int:
        """The share of sub-agents in the cost; in the tokens where nothing has a price."""
        if self.total.cost:
            return int(100 * self.subagents.cost / self.total.cost)
        return 100 * self.subagents.total_tokens // max(self.total.total_tokens, 1)

    @property
    def average_session_cost(self) -> float:
        """The average cost of a session in US dollars, as far as prices are known."""
        return self.total.cost / max(self.sessions, 1)

    @property
    def average_session_cost_label(self) -> str:
        return TokenUsage(
            cost=self.average_session_cost, unpriced_tokens=self.total.unpriced_tokens
        ).cost_label

    @property
    def average_session_tokens(self) -> int:
        """The average number of tokens of a session."""
        return self.total.total_tokens // max(self.sessions, 1)


def load_period_usage(rows: QuerySet[ModelRequestUsage]) -> PeriodUsage:
    """Return what `rows` used together, and how many sessions they are of."""
    is_subagent = Case(
        When(subagent__isnull=True, then=Value(0)), default=Value(1), output_field=IntegerField()
    )
    parts = load_usage_by_column_values(rows.annotate(is_subagent=is_subagent), "is_subagent")
    subagents = parts.get((1,), TokenUsage())
    sessions = rows.aggregate(number=Count("session_id", distinct=True))["number"]
    return PeriodUsage(parts.get((0,), TokenUsage()) + subagents, subagents, sessions)


def load_usage_by_costliest_session(rows: QuerySet[ModelRequestUsage], most: int) -> dict[str, TokenUsage]:
    """Return the usage of the sessions that cost most, the dearest first; by tokens where costs are equal."""
    grouped: QuerySet[Any, Any] = rows.order_by().values("session_id").annotate(**SUMS)
    tokens = F("sum_input") + F("sum_output") + F("sum_cache_read") + F("sum_cache_write")
    dearest = grouped.annotate(sum_tokens=tokens).order_by("-sum_cost", "-sum_tokens", "session_id")[:most]
    return {row["session_id"]: token_usage_from_sums(row) for row in dearest}


def load_usage_by_session(session_ids: Iterable[str]) -> dict[str, TokenUsage]:
    """Return the usage of each of these sessions that has any."""
    rows = ModelRequestUsage.objects.filter(session_id__in=list(session_ids))
    return {key: usage for (key,), usage in load_usage_by_column_values(rows, "session_id").items()}


def load_session_usage_by_model(session_id: str) -> dict[str, TokenUsage]:
    """Return a session's usage by model, the dearest first. What its sub-agents used is in it."""
    rows = ModelRequestUsage.objects.filter(session_id=session_id)
    return sort_usage_dict_by_cost(
        {key: usage for (key,), usage in load_usage_by_column_values(rows, "model").items()}
    )


def load_usage_by_subagent(session_id: str) -> dict[str, TokenUsage]:
    """Return what each of a session's sub-agents used, the dearest first; none where it has none."""
    rows = ModelRequestUsage.objects.filter(session_id=session_id, subagent__isnull=False)
    return sort_usage_dict_by_cost(
        {key: usage for (key,), usage in load_usage_by_column_values(rows, "subagent").items()}
    )


def load_model_and_agent_usage_since(moment: datetime) -> tuple[dict[str, TokenUsage], dict[str, TokenUsage]]:
    """Return the usage since `moment`, by model and by agent, the dearest first."""
    rows = ModelRequestUsage.objects.filter(at_us__gte=instants.instant_to_microseconds(moment))
    models: dict[str, TokenUsage] = {}
    agents: dict[str, TokenUsage] = {}
    for (agent, model), usage in load_usage_by_dimension_values(rows, "agent", "model").items():
        models[model] = models.get(model, TokenUsage()) + usage
        agents[agent] = agents.get(agent, TokenUsage()) + usage
    return sort_usage_dict_by_cost(models), sort_usage_dict_by_cost(agents)


# By what usage can be told apart: SQL over a group `g` of rows and its session `s`.
DIMENSIONS = {
    "model": "g.model",
    "agent": "coalesce(s.agent_name, 'no agent')",
    "program": "coalesce(s.executor_profile, 'unknown')",
    "person": f"coalesce({SESSION_OWNER}, 'nobody')",
    "host": "coalesce(s.hostname, 'unknown')",
    "folder": "coalesce(s.project_dir, 'unknown')",
}


def load_usage_by_dimension_values(
    rows: QuerySet[ModelRequestUsage], *dimensions: str, slot_us: int | None = None
) -> dict[tuple[Any, ...], TokenUsage]:
    """Return the usage of `rows` by DIMENSIONS, and before them by slots of time of `slot_us` microseconds.

    Rows are summed by session first: what a session says of itself is looked up once, not for each request. An agent
    is one, under its id, whichever of its names its sessions have.
    """
    inner: QuerySet[Any, Any] = rows.order_by()
    columns = ["session_id", "model"]
    if slot_us is not None:
        inner = inner.annotate(slot=F("at_us") / Value(slot_us, output_field=BigIntegerField()))
        columns.insert(0, "slot")
    sql, parameters = inner.values(*columns).annotate(**SUMS).query.sql_with_params()
    keys = [*(["g.slot"] if slot_us is not None else []), *(DIMENSIONS[name] for name in dimensions)]
    sums = ", ".join(f"sum(g.sum_{name})" for name in FIELDS)
    names = ", ".join(f"{key} AS key_{number}" for number, key in enumerate(keys))
    groups = ", ".join(str(number) for number in range(1, len(keys) + 1))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {names}, {sums} FROM ({sql}) g"  # noqa: S608 - names of ours
            f" LEFT JOIN sessions s ON s.session_id = g.session_id GROUP BY {groups}",
            parameters,
        )
        usage_rows = cursor.fetchall()
    size = len(keys)
    names_of_sums = [f"sum_{name}" for name in FIELDS]
    agent_index = size - len(dimensions) + dimensions.index("agent") if "agent" in dimensions else None
    agents = (
        load_linked_agents_by_name({row[agent_index] for row in usage_rows})
        if agent_index is not None
        else {}
    )
    usages: dict[tuple[Any, ...], TokenUsage] = {}
    for row in usage_rows:
        key = list(row[:size])
        if agent_index is not None and key[agent_index] in agents:
            key[agent_index] = agents[key[agent_index]].agent_id
        used = token_usage_from_sums(dict(zip(names_of_sums, row[size:], strict=True)))
        usages[tuple(key)] = usages.get(tuple(key), TokenUsage()) + used
    return usages


def load_usage_by_day_and_model(days: QuerySet[UsageDay]) -> dict[tuple[str, str], TokenUsage]:
    """Return what was used by day, in the installation's zone, and model, of the sums that are kept for each session.

    They have no numbers of requests. What an older version has counted without costs is without a price.
    """
    tokens = F("input_tokens") + F("output_tokens") + F("cache_read_tokens") + F("cache_write_tokens")
    grouped: QuerySet[Any, Any] = days.exclude(model="").order_by().values("day", "model")
    sums = grouped.annotate(
        sum_input=build_column_sum_expression("input_tokens"),
        sum_output=build_column_sum_expression("output_tokens"),
        sum_cache_read=build_column_sum_expression("cache_read_tokens"),
        sum_cache_write=build_column_sum_expression("cache_write_tokens"),
        sum_cost=Sum(Coalesce("cost", Value(0.0)), default=0.0, output_field=FloatField()),
        sum_unpriced_tokens=Sum(
            Case(
                When(cost__isnull=True, then=tokens),
                default=F("unpriced_tokens"),
                output_field=BigIntegerField(),
            ),
            default=0,
        ),
    )
    return {
        (row["day"], row["model"]): TokenUsage(
            input=int(row["sum_input"]),
            output=int(row["sum_output"]),
            cache_read=int(row["sum_cache_read"]),
            cache_write=int(row["sum_cache_write"]),
            cost=float(row["sum_cost"]),
            unpriced_tokens=int(row["sum_unpriced_tokens"]),
        )
        for row in sums
    }


def usage_backfill_share_or_none() -> float | None:
    """Return which share of the events of before is counted; None where all are."""
    fill = UsageFill.objects.order_by("id").first()
    return None if fill is None else 1 - fill.next_id / max(fill.first_id, 1)


def sum_token_usages(usages: Mapping[str, TokenUsage]) -> TokenUsage:
    return sum(usages.values(), TokenUsage())


def sort_usage_dict_by_cost(usages: dict[str, TokenUsage]) -> dict[str, TokenUsage]:
    return dict(sorted(usages.items(), key=lambda item: (-item[1].cost, -item[1].total_tokens, item[0])))
