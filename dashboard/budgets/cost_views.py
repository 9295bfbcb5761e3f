"""Tokens and costs by model and agent, and the prices that give the costs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from coordinator.actions.usage import prices
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_GET, require_POST
from coordinator.models import ModelPrice
from coordinator.usage import prices as prices_of
from coordinator.usage import reading as usage
from coordinator.usage.prices import KINDS
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_admin, require_viewer
from dashboard.frame.htmx import HtmxHttpRequest

PERIODS = (1, 7, 30, 90)
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
        said = super().clean() or {}
        missing = [kind for kind in KINDS if said.get(kind) is None]
        if said.get("model") and missing and not self.errors:
            raise forms.ValidationError(f"{said['model']} has no price for: {', '.join(missing)}.")
        return said


class BasePriceFormSet(forms.BaseFormSet):  # type: ignore[type-arg]
    def add_fields(self, form: Any, index: int | None) -> None:
        super().add_fields(form, index)
        form.fields["DELETE"].widget.attrs["aria-label"] = "Delete this price"


PriceForms = forms.formset_factory(PriceForm, formset=BasePriceFormSet, can_delete=True, extra=1, max_num=500)


@require_GET
@require_viewer
def show_costs(request: HtmxHttpRequest) -> HttpResponse:
    initial = list(ModelPrice.objects.order_by("model").values("model", *KINDS))
    return render_costs_page(request, PriceForms(initial=initial))


@require_POST
@require_admin
def save_model_prices_view(request: HtmxHttpRequest) -> HttpResponse:
    """Save our own prices; every cost uses them from now on."""
    forms_ = PriceForms(request.POST)
    if not forms_.is_valid():
        return render_costs_page(request, forms_, status=422)
    rows = [form.cleaned_data for form in forms_ if form.cleaned_data.get("model")]
    wanted = {row["model"]: {kind: row[kind] for kind in KINDS} for row in rows if not row.get("DELETE")}
    with refusals.show_refusal_as_message(request):
        prices.replace_model_prices(wanted, by=person_actor(request.user), now=timezone.now())
        messages.success(request, "Prices saved. New requests use them, and earlier ones that had no price.")
    return redirect("costs:show")


def render_costs_page(request: HtmxHttpRequest, forms_: Any, status: int = 200) -> HttpResponse:
    asked = request.GET.get("days", "")
    days = int(asked) if asked in {str(one) for one in PERIODS} else 7
    models, agents = usage.load_usage_since(timezone.now() - timedelta(days=days))
    own = prices_of.load_own_prices()
    context = {
        "days": days,
        "periods": PERIODS,
        "tables": [("Model", models), ("Agent", agents)],
        "total": usage.sum_usages(models),
        "used_prices": {model: prices_of.find_model_price(model, own) for model in models},
        "forms": forms_,
    }
    return render(request, "costs/costs.html", context, status=status)
