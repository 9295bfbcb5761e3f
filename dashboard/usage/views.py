"""The Usage page: tokens and costs by day, by model, agent and other dimensions, and the prices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from coordinator.actions.usage import prices
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_GET, require_POST, require_safe
from coordinator.models import ModelPrice, ModelRequestUsage, Session
from coordinator.models.agent_names import list_agent_filter_choices, list_names_of_same_agent
from coordinator.sessions import titles
from coordinator.usage import prices as prices_of
from coordinator.usage import reading as usage
from coordinator.usage import turns
from coordinator.usage.activity import (
    filter_activity_hours,
    find_counting_start_if_incomplete,
    hours_since_1970,
    load_call_totals_by_tool,
)
from coordinator.usage.limits import load_recent_limit_states
from coordinator.usage.prices import KINDS
from coordinator.usage.reading import DIMENSIONS, PeriodUsage, TokenUsage
from dashboard.frame.guards import require_admin, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.exports import build_csv_response, build_download_response
from dashboard.looks.charts import HeatMap, build_daily_heat_map
from dashboard.timeline.heading import build_session_header_context
from dashboard.timeline.query import TimelineQuery
from dashboard.usage.activity import build_activity_context, build_tool_context
from dashboard.usage.charts import (
    build_session_token_charts_context,
    build_usage_chart_context,
    describe_difference_from_previous_period,
    sum_usage_by_name,
)
from dashboard.usage.query import (
    HEAT_MAP_DAYS,
    MEASURES,
    PERIODS,
    UsageQuery,
    filter_usage_rows_by_period,
    load_usage_by_slot_and_name,
)

LABELS = {
    "model": "Model",
    "input": "Price of tokens in",
    "output": "Price of tokens out",
    "cache_read": "Price of tokens read from the cache",
    "cache_write": "Price of tokens written to the cache",
}


class PriceForm(forms.Form):
    model = forms.CharField(max_length=200, required=False)
    input = forms.FloatField(min_value=0, required=False)
    output = forms.FloatField(min_value=0, required=False)
    cache_read = forms.FloatField(min_value=0, required=False)
    cache_write = forms.FloatField(min_value=0, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, label in LABELS.items():  # the head of the column does not label the field
            self.fields[name].widget.attrs["aria-label"] = label

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        missing = [kind for kind in KINDS if cleaned.get(kind) is None]
        if not cleaned.get("model") and len(missing) < len(KINDS) and not self.errors:
            raise forms.ValidationError("Enter the name of the model, or delete the price.")
        if cleaned.get("model") and missing and not self.errors:
            raise forms.ValidationError(f"{cleaned['model']} has no price for: {', '.join(missing)}.")
        return cleaned


class BasePriceFormSet(forms.BaseFormSet):  # type: ignore[type-arg]
    def add_fields(self, form: Any, index: int | None) -> None:
        super().add_fields(form, index)
        form.fields["DELETE"].widget.attrs["aria-label"] = "Delete this price"


PriceForms = forms.formset_factory(PriceForm, formset=BasePriceFormSet, can_delete=True, extra=1, max_num=500)


CSV_COLUMNS = (
    "when", "name", "requests", "input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning",
    "web_searches", "cost", "unpriced_tokens",
)  # fmt: skip
MOST_ROWS = 100  # of a table; the CSV has all
TOOL_PERIODS = [("7", "7 days"), ("1", "24 hours"), ("14", "14 days"), ("30", "30 days")]
MAX_DEAREST_SESSIONS = 10


@require_GET
@require_viewer_role
def show_usage_and_prices(request: HtmxHttpRequest) -> HttpResponse:
    version = prices.compute_model_prices_version()  # read first: what is saved meanwhile makes it an old one
    initial = list(ModelPrice.objects.order_by("model").values("model", *KINDS))
    return render_costs_page(request, PriceForms(initial=initial), version)


@require_GET
@require_viewer_role
def show_activity_fragment(request: HtmxHttpRequest) -> HttpResponse:
    """Render the charts of the last 24 hours as a fragment, which the overview requests every minute."""
    if not wants_fragment(request):
        return redirect("overview")
    return render(request, "usage/_activity.html", build_activity_context(timezone.now()))


@require_GET
@require_viewer_role
def show_tool_usage(request: HtmxHttpRequest) -> HttpResponse:
    """Show each tool's calls, how many failed and how long they took, for all agents or one."""
    agent, days = request.GET.get("agent", "")[:300], request.GET.get("days", "")
    days = days if days in dict(TOOL_PERIODS) else TOOL_PERIODS[0][0]
    last = hours_since_1970(timezone.now())
    first = last - int(days) * 24 + 1
    names = list_names_of_same_agent(agent) if agent else None
    context = {
        "agent": agent,
        "agents": list_agent_filter_choices(agent),
        "days": days,
        "periods": TOOL_PERIODS,
        "uncounted": find_counting_start_if_incomplete(first),
        **build_tool_context(load_call_totals_by_tool(filter_activity_hours(first, last, names)), MOST_ROWS),
    }
    return render(request, "usage/tools.html", context)


@require_GET
@require_viewer_role
def export_usage_csv(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Return the usage of the current choices as CSV, one row for each column of the chart and each name."""
    return build_csv_response(
        "usage", CSV_COLUMNS, iterate_usage_export_rows(UsageQuery.from_query(request.GET))
    )


@require_GET
@require_viewer_role
def export_usage_json(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Return the rows of the CSV export and the choices as JSON."""
    query = UsageQuery.from_query(request.GET)
    document = {
        "days": query.days if query.day is None else 1,
        "day": query.day and query.day.isoformat(),
        "by": query.by,
        "time_zone": query.zone,
        "rows": list(iterate_usage_export_rows(query)),
    }
    return build_download_response(
        "usage.json", "application/json", [json.dumps(document, ensure_ascii=False)]
    )


def iterate_usage_export_rows(query: UsageQuery) -> Iterator[dict[str, Any]]:
    slots = load_usage_by_slot_and_name(query, timezone.now())
    for (when, name), usage_sum in sorted(slots.items()):
        yield {"when": when, "name": name} | {name: getattr(usage_sum, name) for name in CSV_COLUMNS[2:]}


@require_safe
@require_viewer_role
def show_session_usage(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show what a session used by turn, model and subagent, and the size of its context."""
    session = get_object_or_404(Session, pk=session_id)
    session_usage = turns.load_session_turn_usage(session.pk)
    numbered = list(enumerate(session_usage.turns, 1))
    subagents = usage.load_usage_by_subagent(session.pk)
    context = {
        "session_usage": session_usage,
        "turns": numbered[-MOST_ROWS:],
        "earlier_turns": max(0, len(numbered) - MOST_ROWS),
        "subagents": dict(list(subagents.items())[:MOST_ROWS]),
        "subagent_count": len(subagents),
        "spent_on_subagents": usage.sum_token_usages(subagents),
        **build_session_token_charts_context(session_usage),
    }
    return render(
        request, "usage/session.html", build_session_header_context(session, TimelineQuery()) | context
    )


@require_POST
@require_admin
def save_model_prices_view(request: HtmxHttpRequest) -> HttpResponse:
    """Save our prices. New requests use them, and earlier requests that had no price.

    If that is refused, show what was typed again with the reason.
    """
    forms_, version = PriceForms(request.POST), request.POST.get("version", "")
    if not forms_.is_valid():
        return render_costs_page(request, forms_, version, status=422)
    rows = [form.cleaned_data for form in forms_ if form.cleaned_data.get("model")]
    wanted_prices = {
        row["model"]: {kind: row[kind] for kind in KINDS} for row in rows if not row.get("DELETE")
    }
    try:
        prices.replace_prices_pricing_unpriced_requests(
            wanted_prices, seen_version=version, actor=person_actor(request.user), now=timezone.now()
        )
    except SignalboxError as refusal:
        problem, status = str(refusal.detail), refusal.status
        return render_costs_page(request, forms_, version, problem=problem, status=status)
    messages.success(request, "Prices saved. New requests use them, and earlier ones that had no price.")
    return redirect("costs:show")


def render_costs_page(
    request: HtmxHttpRequest, forms_: Any, version: str, *, problem: str = "", status: int = 200
) -> HttpResponse:
    query, now = UsageQuery.from_query(request.GET), timezone.now()
    slots = load_usage_by_slot_and_name(query, now)
    by_name = sum_usage_by_name(slots)
    since = filter_usage_rows_by_period(query.start_instant(now), query.end_instant)
    period = usage.load_period_usage(since)
    before = usage.load_period_usage(filter_usage_rows_by_period(*query.previous_bounds(now)))
    models = sorted(since.order_by().values_list("model", flat=True).distinct())
    unpriced = usage.load_usage_by_column_values(since.filter(cost__isnull=True), "model", "is_fast")
    own = prices_of.load_configured_model_prices()
    context = {
        "query": query,
        "choices": build_choice_links(query, now),
        "rows": dict(list(by_name.items())[:MOST_ROWS]),
        "more_rows": max(0, len(by_name) - MOST_ROWS),
        "total": period.total,
        "period": period,
        "before": before,
        "changes": describe_period_changes(period, before),
        "dearest": load_most_expensive_sessions(since),
        "heat_map": build_year_heat_map(query, slots, now)
        if query.days == HEAT_MAP_DAYS and query.day is None
        else None,
        "used_prices": {model: prices_of.find_model_price(model, own) for model in models},
        "unpriced": [
            (f"{model}, fast" if is_fast else model, used)
            for (model, is_fast), used in sorted(unpriced.items())
            if used.total_tokens
        ],
        "filled": usage.usage_backfill_share_or_none(),
        "limits": load_recent_limit_states(now),
        "forms": forms_,
        "version": version,
        "problem": problem,
        **build_usage_chart_context(query, slots, by_name, now),
    }
    return render(request, "usage/costs.html", context, status=status)


def describe_period_changes(period: PeriodUsage, before: PeriodUsage) -> dict[str, str]:
    """Return how the figures of a period differ from those of the previous one."""
    tokens, tokens_before = period.total.total_tokens, before.total.total_tokens
    return {
        "cost": describe_difference_from_previous_period(
            period.total.cost, before.total.cost, before.total.cost_label
        ),
        "tokens": describe_difference_from_previous_period(tokens, tokens_before, f"{tokens_before:,}"),
        "sessions": describe_difference_from_previous_period(
            period.sessions, before.sessions, f"{before.sessions:,}"
        ),
        "session": describe_difference_from_previous_period(
            period.average_session_cost, before.average_session_cost, before.average_session_cost_label
        ),
        "cache": f"of the input, {before.total.cache_hit_percent} % before"
        if tokens_before
        else "of the input",
        "subagents": f", {before.subagent_percent} % before" if tokens_before else "",
    }


def load_most_expensive_sessions(
    rows: QuerySet[ModelRequestUsage],
) -> list[tuple[str, str, bool, TokenUsage]]:
    """Return the sessions with the highest cost as (id, title, whether the session exists, usage)."""
    dearest = usage.load_usage_by_costliest_session(rows, MAX_DEAREST_SESSIONS)
    session_titles = titles.load_session_titles(dearest)
    existing = set(Session.objects.filter(pk__in=dearest).values_list("pk", flat=True))
    return [(name, session_titles.get(name, ""), name in existing, used) for name, used in dearest.items()]


def build_year_heat_map(
    query: UsageQuery, slots: dict[tuple[str, str], TokenUsage], now: datetime
) -> HeatMap:
    """Return a heat map of the year's days, shaded by the chosen measure."""
    by_day: dict[date, TokenUsage] = {}
    for (slot, _), used in slots.items():
        day = date.fromisoformat(slot)
        by_day[day] = by_day.get(day, TokenUsage()) + used
    values = {
        day: (used.cost, used.cost_label)
        if query.measure == "cost"
        else (float(used.total_tokens), f"{used.total_tokens:,} tokens")
        for day, used in by_day.items()
    }
    return build_daily_heat_map(values, now.astimezone(query.time_zone).date(), query.days)


def build_choice_links(query: UsageQuery, now: datetime) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """Return the groups of choices, each with a label and links.

    A link is (label, query string, whether it is the current choice).
    """
    yesterday = now.astimezone(query.time_zone).date() - timedelta(days=1)
    periods = [
        (
            UsageQuery(days=day_count).period_label,
            query.query_string(days=day_count, day=None),
            query.day is None and day_count == query.days,
        )
        for day_count in PERIODS
    ]
    periods.insert(1, ("Yesterday", query.query_string(day=yesterday), query.day == yesterday))
    return [
        ("Period", periods),
        (
            "Measure",
            [(one.capitalize(), query.query_string(measure=one), one == query.measure) for one in MEASURES],
        ),
        ("By", [(one.capitalize(), query.query_string(by=one), one == query.by) for one in DIMENSIONS]),
    ]
