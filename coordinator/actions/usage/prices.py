"""Actions that write the prices of models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.usage import usage_backfill
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import ModelPrice
from coordinator.usage.prices import KINDS


def replace_prices_pricing_unpriced_requests(
    prices: Mapping[str, Mapping[str, float]], *, actor: Actor, now: datetime
) -> None:
    """Put these prices (by model, each with every kind of token) in place of all others.

    Requests that had no price get theirs; others keep the price of their day.

    Raises UnprocessableRequest.
    """
    for model, price in prices.items():
        if not model.strip() or any(not 0 <= price[kind] < math.inf for kind in KINDS):
            raise UnprocessableRequest(f"The price of {model or 'a model without a name'} cannot be read.")
    with transaction.atomic():
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
