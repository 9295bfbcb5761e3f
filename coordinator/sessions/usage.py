"""Tokens and what they cost: per session, model and agent. Only reads.

A model without a price has tokens and no cost: no price is made up for it, and sums say that they are not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import BigIntegerField, Case, F, QuerySet, Sum, TextField, Value, When
from django.db.models.functions import Coalesce

from coordinator.models import EventContext
from coordinator.sessions import prices, spans
from coordinator.sessions.prices import KINDS, MOST_TOKENS


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens by kind, and their cost in US dollars as far as prices are known (`priced`: all of them are)."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    priced: bool = True

    @property
    def total_tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    @property
    def cached_tokens(self) -> int:
        return self.cache_read + self.cache_write

    @property
    def cost_label(self) -> str:
        """The cost as people read it; `from $1.20` where some of it has no price."""
        if not self.priced and not self.cost:
            return "no price"
        digits = 2 if self.cost >= 0.1 else 4
        return f"{'' if self.priced else 'from '}${self.cost:,.{digits}f}"

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cost + other.cost,
            self.priced and other.priced,
        )


def iterate_usage_groups(
    rows: QuerySet[EventContext], *by: str
) -> Iterator[tuple[tuple[str | None, ...], TokenUsage]]:
    """Yield the usage of each group of `rows` by `by` and model, priced."""
    price = build_usage_pricer()
    for row in sum_tokens_by_columns(rows, *by):
        tokens = [row[f"sum_{kind}"] for kind in KINDS]
        yield (*(row[name] for name in by), row["model"]), price(row["model"], tokens)


def sum_tokens_by_columns(rows: QuerySet[EventContext], *by: str) -> QuerySet[Any, Any]:
    sums = {f"sum_{kind}": Sum(bounded_token_column(f"{kind}_tokens")) for kind in KINDS}
    told = rows.filter(output_tokens__isnull=False).order_by()
    summed: QuerySet[Any, Any] = told.values(*by, "model").annotate(**sums)
    return summed


def iterate_usage_by_agent(
    rows: QuerySet[EventContext],
) -> Iterator[tuple[str | None, str | None, TokenUsage]]:
    """Yield the usage of each agent and model. Agents are joined to sums: asked for each event, they take the time."""
    # Of an expression: to group by the column SQLite would walk through all of its index, not through what is recent.
    by_session = rows.annotate(session_name=Coalesce("session_id", Value(""), output_field=TextField()))
    sql, parameters = sum_tokens_by_columns(by_session, "session_name").query.sql_with_params()
    sums = ", ".join(f"sum(g.sum_{kind})" for kind in KINDS)
    price = build_usage_pricer()
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT s.agent_name, g.model, {sums} FROM ({sql}) g"  # constants  # noqa: S608
            " LEFT JOIN sessions s ON s.session_id = g.session_name GROUP BY s.agent_name, g.model",
            parameters,
        )
        for agent, model, *tokens in cursor.fetchall():
            yield agent, model, price(model, tokens)


def build_usage_pricer() -> Callable[[str | None, Sequence[Any]], TokenUsage]:
    """Return what makes a usage of a model's tokens by kind (KINDS), priced."""
    own = prices.load_own_prices()

    def price_model_tokens(model: str | None, sums: Sequence[Any]) -> TokenUsage:
        tokens = {kind: int(number or 0) for kind, number in zip(KINDS, sums, strict=True)}
        price = prices.find_model_price(model or "", own)
        cost = price.cost_of_tokens(tokens) if price else 0.0
        return TokenUsage(**tokens, cost=cost, priced=price is not None or not any(tokens.values()))

    return price_model_tokens


def bounded_token_column(column: str) -> Case:
    """Return the tokens that one event says, within bounds: agents tell them, and a sum must not run over."""
    return Case(
        When(**{f"{column}__gt": MOST_TOKENS}, then=Value(MOST_TOKENS)),
        When(**{f"{column}__gt": 0}, then=F(column)),
        default=Value(0),
        output_field=BigIntegerField(),
    )


def load_usage_by_session(session_ids: Iterable[str]) -> dict[str, TokenUsage]:
    """Return the usage of each of these sessions that has any."""
    found: dict[str, TokenUsage] = {}
    ids = list(session_ids)
    rows = spans.bound_rows_to_sessions(EventContext.objects.filter(session_id__in=ids), ids, "event_id")
    for (session_id, _), usage in iterate_usage_groups(rows, "session_id"):
        found[str(session_id)] = found.get(str(session_id), TokenUsage()) + usage
    return found


def load_usage_by_model(session_id: str) -> dict[str, TokenUsage]:
    """Return a session's usage by model, the dearest first."""
    rows = spans.bound_rows_to_sessions(
        EventContext.objects.filter(session_id=session_id), [session_id], "event_id"
    )
    return sort_usages_by_cost({model or "unknown": usage for (model,), usage in iterate_usage_groups(rows)})


def load_usage_since(moment: datetime) -> tuple[dict[str, TokenUsage], dict[str, TokenUsage]]:
    """Return the usage received since `moment`, by model and by agent, the dearest first."""
    rows = spans.bound_rows_since(EventContext.objects.filter(received_at__gte=moment), moment, "event_id")
    models: dict[str, TokenUsage] = {}
    agents: dict[str, TokenUsage] = {}
    for name, model, usage in iterate_usage_by_agent(rows):
        models[model or "unknown"] = models.get(model or "unknown", TokenUsage()) + usage
        agents[name or "no agent"] = agents.get(name or "no agent", TokenUsage()) + usage
    return sort_usages_by_cost(models), sort_usages_by_cost(agents)


def sum_usages(usages: Mapping[str, TokenUsage]) -> TokenUsage:
    return sum(usages.values(), TokenUsage())


def sort_usages_by_cost(usages: dict[str, TokenUsage]) -> dict[str, TokenUsage]:
    return dict(sorted(usages.items(), key=lambda item: (-item[1].cost, -item[1].total_tokens, item[0])))
