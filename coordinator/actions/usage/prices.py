"""Actions that write the prices of models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.usage import usage_backfill
from coordinator.engine.locks import lock_table_against_writes
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.lib import row_versions
from coordinator.models import ModelPrice
from coordinator.usage.prices import KINDS


def compute_model_prices_version() -> str:
    """Return the version of the list of prices that its editor has seen."""
    rows = ModelPrice.objects.order_by("model").values_list("model", *KINDS)
    return row_versions.hash_column_values_as_version(rows)


def replace_prices_pricing_unpriced_requests(
    prices: Mapping[str, Mapping[str, float]],
    *,
    actor: Actor,
    now: datetime,
    seen_version: str | None = None,
) -> None:
    """Put these prices (by model, each with every kind of token) in place of all others.

    Requests that had no price get theirs; others keep the price of their day. `seen_version` is the version of the list
    that the editor started from, where there is an editor.

    Raises UnprocessableRequest, and Conflict where somebody else saved prices meanwhile.
    """
    for model, price in prices.items():
        if not model.strip() or any(not 0 <= price[kind] < math.inf for kind in KINDS):
            raise UnprocessableRequest(f"The price of {model or 'a model without a name'} cannot be read.")
    with transaction.atomic():
        lock_table_against_writes("model_prices")  # two editors of an empty list have no row to meet at
        row_versions.require_current_version(
            compute_model_prices_version(), seen_version, "The list of prices"
        )
        before = {
            price.model: {kind: getattr(price, kind) for kind in KINDS} for price in ModelPrice.objects.all()
        }
        after = {model: {kind: float(price[kind]) for kind in KINDS} for model, price in prices.items()}
        if before == after:
            return
        ModelPrice.objects.exclude(model__in=after).delete()
        for model, price in after.items():
            if before.get(model) != price:
                values = {**price, "changed_at": now, "changed_by": str(actor)}
                ModelPrice.objects.update_or_create(model=model, defaults=values)
        audit.record_audit_entry(
            "MODEL_PRICES_SAVED",
            actor=actor,
            target="model_prices",
            result="success",
            metadata={"before": before, "after": after},
            now=now,
        )
    usage_backfill.price_unpriced_usage(now)
