"""Prices that are set while an agent reports (PostgreSQL)."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest
from django.db import connection, connections, transaction

from coordinator.actions.sessions.events import record_events
from coordinator.actions.usage import usage_backfill
from coordinator.models import ModelPrice, ModelRequestUsage, Session, UsageDay
from coordinator.sessions.events import DedupedEvent, NewEvent
from coordinator.usage.reading import sum_usage_rows

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def spend(tokens: int = 1_000_000) -> None:
    record_events(
        [
            NewEvent(
                event_type="model_request",
                session_id="ses_1",
                timestamp="",
                model="nobody-knows",
                output_tokens=tokens,
            )
        ],
        NOW,
    )


@pytest.mark.django_db(transaction=True)
def test_what_is_reported_while_prices_are_set_is_in_both_sums() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    Session.objects.create(session_id="ses_1", status="running", created_at=NOW)
    spend()
    ModelPrice.objects.create(
        model="nobody-knows", input=7, output=7, cache_read=7, cache_write=7, changed_at=NOW, changed_by="t"
    )
    reported, go_on = threading.Event(), threading.Event()

    def report() -> None:
        with transaction.atomic():
            spend()
            reported.set()
            go_on.wait(10)
        connections.close_all()

    thread = threading.Thread(target=report)
    thread.start()
    reported.wait(10)
    threading.Timer(1.0, go_on.set).start()
    usage_backfill.price_unpriced_usage(NOW)
    thread.join()
    assert sum_usage_rows(ModelRequestUsage.objects.all()).cost == 14.0
    assert UsageDay.objects.get(model="nobody-knows").cost == 14.0


@pytest.mark.django_db
def test_amounts_that_grow_while_they_are_priced_are_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    Session.objects.create(session_id="ses_1", status="running", created_at=NOW)

    def tell(tokens: int) -> None:
        record_events(
            [
                DedupedEvent(
                    event_type="model_request",
                    session_id="ses_1",
                    timestamp="",
                    model="nobody-knows",
                    output_tokens=tokens,
                    origin="r1",
                )
            ],
            NOW,
        )

    tell(1_000_000)
    ModelPrice.objects.create(
        model="nobody-knows", input=7, output=7, cache_read=7, cache_write=7, changed_at=NOW, changed_by="t"
    )
    real = usage_backfill.price_usage_rows

    def late(rows, own):  # the rows are read; another worker writes the end of the answer
        tell(3_000_000)
        return real(rows, own)

    monkeypatch.setattr(usage_backfill, "price_usage_rows", late)
    usage_backfill.price_unpriced_usage(NOW)
    assert ModelRequestUsage.objects.get().output_tokens == 3_000_000
    assert ModelRequestUsage.objects.get().cost == 21.0
