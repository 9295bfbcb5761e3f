"""Tokens and what they cost: per session, model and agent. Only reads.

A model without a price has tokens and no cost: no price is made up for it, and sums say that they are not whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, QuerySet, Subquery, Sum

from coordinator.models import EventContext, Session
from coordinator.sessions import prices
from coordinator.sessions.prices import KINDS


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


def _counted(rows: QuerySet[EventContext], *by: str) -> Iterable[tuple[tuple[str | None, ...], Usage]]:
    """Yield the usage of each group of `rows` by `by` and model, priced."""
    own = prices.own_prices()
    sums = {f"sum_{kind}": Sum(f"{kind}_tokens") for kind in KINDS}
    for row in rows.filter(output_tokens__isnull=False).order_by().values(*by, "model").annotate(**sums):
        tokens = {kind: int(row[f"sum_{kind}"] or 0) for kind in KINDS}
        price = prices.price_of(row["model"] or "", own)
        cost = price.of(tokens) if price else 0.0
        usage = Usage(**tokens, cost=cost, priced=price is not None or not any(tokens.values()))
        yield (*(row[name] for name in by), row["model"]), usage


def of_sessions(session_ids: Iterable[str]) -> dict[str, Usage]:
    """Return the usage of each of these sessions that has any."""
    found: dict[str, Usage] = {}
    rows = EventContext.objects.filter(session_id__in=list(session_ids))
    for (session_id, _), usage in _counted(rows, "session_id"):
        found[str(session_id)] = found.get(str(session_id), Usage()) + usage
    return found


def models_of(session_id: str) -> dict[str, Usage]:
    """Return a session's usage by model, the dearest first."""
    rows = EventContext.objects.filter(session_id=session_id)
    return _sorted({model or "unknown": usage for (model,), usage in _counted(rows)})


def since(moment: datetime) -> tuple[dict[str, Usage], dict[str, Usage]]:
    """Return the usage received since `moment`, by model and by agent, the dearest first."""
    agent = Session.objects.filter(pk=OuterRef("session_id")).values("agent_name")[:1]
    rows = EventContext.objects.filter(received_at__gte=moment).annotate(agent=Subquery(agent))
    models: dict[str, Usage] = {}
    agents: dict[str, Usage] = {}
    for (name, model), usage in _counted(rows, "agent"):
        models[model or "unknown"] = models.get(model or "unknown", Usage()) + usage
        agents[name or "no agent"] = agents.get(name or "no agent", Usage()) + usage
    return _sorted(models), _sorted(agents)


def total(usages: Mapping[str, Usage]) -> Usage:
    return sum(usages.values(), Usage())


def _sorted(usages: dict[str, Usage]) -> dict[str, Usage]:
    return dict(sorted(usages.items(), key=lambda item: (-item[1].cost, -item[1].tokens, item[0])))
