"""The charts of usage: of a period by a dimension, of the last days, and of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.conf import settings
from django.db.models import QuerySet

from coordinator.models import UsageDay
from coordinator.usage.reading import (
    TokenUsage,
    load_usage_by_day_and_model,
    sort_usage_dict_by_cost,
    sum_token_usages,
)
from coordinator.usage.turns import ContextFill, SessionUsage, TurnTotals, find_model_context_window_tokens
from dashboard.looks.charts import MOST_SERIES, StackedChart, build_amount_chart
from dashboard.usage.query import UsageQuery

T = TypeVar("T")
OTHERS = "Others"
SMALL_CHART_DAYS = 14
MAX_SESSION_COLUMNS = 80  # of a session's charts; with more turns or requests, several share a column
# From TIMES_FROM on, a change is written as a multiple, not a percentage; above MAX_TIMES it is left out.
TIMES_FROM, MAX_TIMES = 3, 100
# The kinds of tokens of a turn, in the order of the stacked column.
TOKEN_KINDS = {
    "Cached input": "cache_read",
    "Cache writes": "cache_write",
    "Fresh input": "input",
    "Output": "output",
}

CONTEXT_SERIES = ("Context", "Context after compaction", "Context of another model")


def build_usage_chart_context(
    query: UsageQuery, slots: dict[tuple[str, str], TokenUsage], by_name: dict[str, TokenUsage], now: datetime
) -> dict[str, Any]:
    """Return the context of the chart: its columns, its series and the sums of its columns.

    The largest series is first.
    """

    def usage_amount(used: TokenUsage) -> float:
        return used.cost if query.measure == "cost" else float(used.total_tokens)

    largest = sorted(by_name, key=lambda name: -usage_amount(by_name[name]))
    series = largest[:MOST_SERIES] + ([OTHERS] if len(largest) > MOST_SERIES else [])
    stacked: dict[tuple[str, str], TokenUsage] = {}
    sums: dict[str, TokenUsage] = {}
    for (slot, name), used in slots.items():
        key = (slot, name if name in series else OTHERS)
        stacked[key] = stacked.get(key, TokenUsage()) + used
        sums[slot] = sums.get(slot, TokenUsage()) + used
    values = {
        key: (
            usage_amount(used),
            used.cost_label if query.measure == "cost" else f"{used.total_tokens:,} tokens",
        )
        for key, used in stacked.items()
    }
    names = query.list_time_slot_labels(now)
    return {
        "chart": build_amount_chart(
            names,
            series,
            values,
            is_money=query.measure == "cost",
            marks=(
                names[0],
                f"{'Hours' if query.is_hourly else 'Days'} in {query.zone}",
                query.last_column_label,
            ),
        ),
        "series": list(enumerate(series, 1)),
        "sums": [(slot, sums[slot]) for slot in names if slot in sums],
    }


def sum_usage_by_name(slots: Mapping[tuple[str, str], TokenUsage]) -> dict[str, TokenUsage]:
    """Return the usage of all slots by name, the most expensive first."""
    by_name: dict[str, TokenUsage] = {}
    for (_, name), used in slots.items():
        by_name[name] = by_name.get(name, TokenUsage()) + used
    return sort_usage_dict_by_cost(by_name)


def load_small_usage_chart_context(days: QuerySet[UsageDay], now: datetime) -> dict[str, Any]:
    """Return a chart of the last SMALL_CHART_DAYS by model. It shows tokens if no usage has a price."""
    query = UsageQuery(days=SMALL_CHART_DAYS, zone=str(settings.LOCAL_ZONE))
    slots = load_usage_by_day_and_model(days.filter(day__gte=query.list_time_slot_labels(now)[0]))
    by_name = sum_usage_by_name(slots)
    total = sum_token_usages(by_name)
    if not total.cost:
        query = UsageQuery(days=SMALL_CHART_DAYS, zone=str(settings.LOCAL_ZONE), measure="tokens")
    return {"query": query, "total": total, **build_usage_chart_context(query, slots, by_name, now)}


def build_session_token_charts_context(session_usage: SessionUsage) -> dict[str, Any]:
    """Return the charts of a session: its tokens by turn, and the size of its context by request."""
    context, turn_totals = session_usage.context, session_usage.turns
    window = find_model_context_window_tokens(
        session_usage.last_used_model_or_empty, session_usage.largest_context_tokens
    )
    context_chart = build_context_chart_by_request(context, window)
    return {
        "turn_chart": build_tokens_by_turn_chart(turn_totals),
        "token_kinds": list(enumerate(TOKEN_KINDS, 1)),
        "context_chart": context_chart,
        "context_series": [
            (number, name)
            for number, name in enumerate(CONTEXT_SERIES, 1)
            if any(piece.series == number for column in context_chart.columns for piece in column.pieces)
        ],
        "context_window": window,
        "context_tokens": context[-1].tokens if context else 0,
        "context_percent": 100 * context[-1].tokens // window if context and window else None,
        "compactions": sum(fill.is_compacted for fill in context),
        "model_changes": sum(fill.has_new_model for fill in context),
    }


def build_tokens_by_turn_chart(turn_totals: Sequence[TurnTotals]) -> StackedChart:
    groups = group_evenly(turn_totals, MAX_SESSION_COLUMNS)
    values: dict[tuple[str, str], tuple[float, str]] = {}
    labels = []
    number = 1
    for group in groups:
        last = number + len(group) - 1
        label = f"Turn {number}" if last == number else f"Turns {number} to {last}"
        labels.append(label)
        number = last + 1
        used = sum((turn.usage for turn in group), TokenUsage())
        for name, kind in TOKEN_KINDS.items():
            tokens = getattr(used, kind)
            values[label, name] = (float(tokens), f"{tokens:,} tokens")
    return build_amount_chart(labels, list(TOKEN_KINDS), values)


def build_context_chart_by_request(context: Sequence[ContextFill], window: int | None) -> StackedChart:
    """Return a chart of the size of the context by request.

    If a column has several requests, it shows the largest context. The column of a request after a
    compaction, or after a change of the model, has another colour.
    """
    labels, values = [], {}
    number = 1
    for group in group_evenly(context, MAX_SESSION_COLUMNS):
        last = number + len(group) - 1
        label = f"Request {number}" if last == number else f"Requests {number} to {last}"
        labels.append(label)
        number = last + 1
        fullest = max(fill.tokens for fill in group)
        name = "Context"
        if any(fill.is_compacted for fill in group):
            name = "Context after compaction"
        elif any(fill.has_new_model for fill in group):
            name = "Context of another model"
        share = f", {100 * fullest // window} %" if window else ""
        values[label, name] = (float(fullest), f"{fullest:,} tokens{share}")
    return build_amount_chart(labels, CONTEXT_SERIES, values, top=float(window or 0))


def group_evenly(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return the items in order, in at most `most` groups of equal size; the last may be smaller."""
    size = max(1, -(-len(items) // most))
    return [items[start : start + size] for start in range(0, len(items), size)]


def describe_difference_from_previous_period(now: float, before: float, before_label: str) -> str:
    """Return how a figure differs from that of the previous period, such as `12 % more than $4.20`.

    If it is more than MAX_TIMES as large, only the previous figure is returned.
    """
    if not before:
        return "nothing before" if now else "as before"
    if now >= TIMES_FROM * before:
        times = round(now / before)
        return f"{times} times as much as {before_label}" if times <= MAX_TIMES else f"{before_label} before"
    percent = round(100 * (now - before) / before)
    if not percent:
        return f"as before: {before_label}"
    return f"{abs(percent):,} % {'more' if percent > 0 else 'less'} than {before_label}"
