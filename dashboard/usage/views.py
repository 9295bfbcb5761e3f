"""The Usage page: tokens and costs by day, told apart by model, agent and others, and the prices."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from coordinator.actions.usage import prices
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_GET, require_POST
from coordinator.lib import instants
from coordinator.models import ModelPrice, ModelRequestUsage
from coordinator.usage import prices as prices_of
from coordinator.usage import reading as usage
from coordinator.usage.prices import KINDS
from coordinator.usage.reading import DIMENSIONS, TokenUsage
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_admin, require_viewer
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.lists.exports import build_csv_response
from dashboard.looks.charts import MOST_SERIES, build_stacked_columns
from dashboard.usage.query import MEASURES, PERIODS, UsageQuery, load_usage_slots

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
        for name, label in LABELS.items():  # a column's head is no label
            self.fields[name].widget.attrs["aria-label"] = label

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        missing = [kind for kind in KINDS if cleaned.get(kind) is None]
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
OTHERS = "Others"
MOST_ROWS = 100  # of the table; the CSV has all


@require_GET
@require_viewer
def show_costs(request: HtmxHttpRequest) -> HttpResponse:
    initial = list(ModelPrice.objects.order_by("model").values("model", *KINDS))
    return render_costs_page(request, PriceForms(initial=initial))


@require_GET
@require_viewer
def export_usage_csv(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Answer with a row for each column of the chart and each name: what the same choices show."""
    slots = load_usage_slots(UsageQuery.from_query(request.GET), timezone.now())
    rows = (
        {name: getattr(usage, name) for name in CSV_COLUMNS[2:]} | {"when": when, "name": name}
        for (when, name), usage in sorted(slots.items())
    )
    return build_csv_response("usage", CSV_COLUMNS, rows)


@require_POST
@require_admin
def save_model_prices_view(request: HtmxHttpRequest) -> HttpResponse:
    """Save our own prices; every cost uses them from now on."""
    forms_ = PriceForms(request.POST)
    if not forms_.is_valid():
        return render_costs_page(request, forms_, status=422)
    rows = [form.cleaned_data for form in forms_ if form.cleaned_data.get("model")]
    wanted_prices = {
        row["model"]: {kind: row[kind] for kind in KINDS} for row in rows if not row.get("DELETE")
    }
    with refusals.show_refusal_as_message(request):
        prices.replace_model_prices(wanted_prices, by=person_actor(request.user), now=timezone.now())
        messages.success(request, "Prices saved. New requests use them, and earlier ones that had no price.")
    return redirect("costs:show")


def render_costs_page(request: HtmxHttpRequest, forms_: Any, status: int = 200) -> HttpResponse:
    query, now = UsageQuery.from_query(request.GET), timezone.now()
    slots = load_usage_slots(query, now)
    by_name: dict[str, TokenUsage] = {}
    for (_, name), used in slots.items():
        by_name[name] = by_name.get(name, TokenUsage()) + used
    by_name = usage.sort_usages_by_cost(by_name)
    since = ModelRequestUsage.objects.filter(at_us__gte=instants.to_microseconds(query.start_instant(now)))
    models = sorted(since.order_by().values_list("model", flat=True).distinct())
    unpriced = usage.load_usage_by_columns(since.filter(cost__isnull=True), "model", "is_fast")
    own = prices_of.load_own_prices()
    context = {
        "query": query,
        "choices": build_choice_links(query),
        "rows": dict(list(by_name.items())[:MOST_ROWS]),
        "more_rows": max(0, len(by_name) - MOST_ROWS),
        "total": usage.sum_usages(by_name),
        "used_prices": {model: prices_of.find_model_price(model, own) for model in models},
        "unpriced": [
            (f"{model}, fast" if is_fast else model, used)
            for (model, is_fast), used in sorted(unpriced.items())
            if used.total_tokens
        ],
        "filled": usage.find_fill_progress(),
        "forms": forms_,
        **build_usage_chart(query, slots, by_name, now),
    }
    return render(request, "costs/costs.html", context, status=status)


def build_choice_links(query: UsageQuery) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """Return the page's choices: what each is about, and its links with whether they are the current ones."""
    periods = [(day_count, "24 hours" if day_count == 1 else f"{day_count} days") for day_count in PERIODS]
    return [
        ("Period", [(label, query.query_string(days=one), one == query.days) for one, label in periods]),
        (
            "Measure",
            [(one.capitalize(), query.query_string(measure=one), one == query.measure) for one in MEASURES],
        ),
        ("By", [(one.capitalize(), query.query_string(by=one), one == query.by) for one in DIMENSIONS]),
    ]


def build_usage_chart(
    query: UsageQuery, slots: dict[tuple[str, str], TokenUsage], by_name: dict[str, TokenUsage], now: datetime
) -> dict[str, Any]:
    """Return the chart's columns, its series and the sums of its columns, the largest series first."""

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
    names = query.list_slots(now)
    return {
        "columns": build_stacked_columns(names, series, values),
        "series": list(enumerate(series, 1)),
        "sums": [(slot, sums[slot]) for slot in names if slot in sums],
    }
