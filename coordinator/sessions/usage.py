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
class Usage:
    """Tokens by kind, and their cost in US dollars as far as prices are known (`priced`: all of them are)."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    priced: bool = True

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    @property
    def cached(self) -> int:
        return self.cache_read + self.cache_write

    @property
    def cost_words(self) -> str:
        """The cost as people read it; `from $1.20` where some of it has no price."""
        if not self.priced and not self.cost:
            return "no price"
        digits = 2 if self.cost >= 0.1 else 4
        return f"{'' if self.priced else 'from '}${self.cost:,.{digits}f}"

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cost + other.cost,
            self.priced and other.priced,
        )


def _counted(rows: QuerySet[EventContext], *by: str) -> Iterator[tuple[tuple[str | None, ...], Usage]]:
    """Yield the usage of each group of `rows` by `by` and model, priced."""
    price = _pricing()
    for row in _summed(rows, *by):
        tokens = [row[f"sum_{kind}"] for kind in KINDS]
        yield (*(row[name] for name in by), row["model"]), price(row["model"], tokens)


def _summed(rows: QuerySet[EventContext], *by: str) -> QuerySet[Any, Any]:
    sums = {f"sum_{kind}": Sum(_told(f"{kind}_tokens")) for kind in KINDS}
    told = rows.filter(output_tokens__isnull=False).order_by()
    summed: QuerySet[Any, Any] = told.values(*by, "model").annotate(**sums)
    return summed


def _by_agent(rows: QuerySet[EventContext]) -> Iterator[tuple[str | None, str | None, Usage]]:
    """Yield the usage of each agent and model. Agents are joined to sums: asked for each event, they take the time."""
    # Of an expression: to group by the column SQLite would walk through all of its index, not through what is recent.
    by_session = rows.annotate(session_name=Coalesce("session_id", Value(""), output_field=TextField()))
    sql, parameters = _summed(by_session, "session_name").query.sql_with_params()
    sums = ", ".join(f"sum(g.sum_{kind})" for kind in KINDS)
    price = _pricing()
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT s.agent_name, g.model, {sums} FROM ({sql}) g"  # noqa: S608 # constants
            " LEFT JOIN sessions s ON s.session_id = g.session_name GROUP BY s.agent_name, g.model",
            parameters,
        )
        for agent, model, *tokens in cursor.fetchall():
            yield agent, model, price(model, tokens)


def _pricing() -> Callable[[str | None, Sequence[Any]], Usage]:
    """Return what makes a usage of a model's tokens by kind (KINDS), priced."""
    own = prices.own_prices()

    def priced(model: str | None, sums: Sequence[Any]) -> Usage:
        tokens = {kind: int(number or 0) for kind, number in zip(KINDS, sums, strict=True)}
        price = prices.price_of(model or "", own)
        cost = price.of(tokens) if price else 0.0
        return Usage(**tokens, cost=cost, priced=price is not None or not any(tokens.values()))

    return priced


def _told(column: str) -> Case:
    """Return the tokens that one event says, within bounds: agents tell them, and a sum must not run over."""
    return Case(
        When(**{f"{column}__gt": MOST_TOKENS}, then=Value(MOST_TOKENS)),
        When(**{f"{column}__gt": 0}, then=F(column)),
        default=Value(0),
        output_field=BigIntegerField(),
    )


def of_sessions(session_ids: Iterable[str]) -> dict[str, Usage]:
    """Return the usage of each of these sessions that has any."""
    found: dict[str, Usage] = {}
    ids = list(session_ids)
    rows = spans.within(EventContext.objects.filter(session_id__in=ids), ids, "event_id")
    for (session_id, _), usage in _counted(rows, "session_id"):
        found[str(session_id)] = found.get(str(session_id), Usage()) + usage
    return found


def models_of(session_id: str) -> dict[str, Usage]:
    """Return a session's usage by model, the dearest first."""
    rows = spans.within(EventContext.objects.filter(session_id=session_id), [session_id], "event_id")
    return _sorted({model or "unknown": usage for (model,), usage in _counted(rows)})


def since(moment: datetime) -> tuple[dict[str, Usage], dict[str, Usage]]:
    """Return the usage received since `moment`, by model and by agent, the dearest first."""
    rows = spans.since(EventContext.objects.filter(received_at__gte=moment), moment, "event_id")
    models: dict[str, Usage] = {}
    agents: dict[str, Usage] = {}
    for name, model, usage in _by_agent(rows):
        models[model or "unknown"] = models.get(model or "unknown", Usage()) + usage
        agents[name or "no agent"] = agents.get(name or "no agent", Usage()) + usage
    return _sorted(models), _sorted(agents)


def total(usages: Mapping[str, Usage]) -> Usage:
    return sum(usages.values(), Usage())


def _sorted(usages: dict[str, Usage]) -> dict[str, Usage]:
    return dict(sorted(usages.items(), key=lambda item: (-item[1].cost, -item[1].tokens, item[0])))
