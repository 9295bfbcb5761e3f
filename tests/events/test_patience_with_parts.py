"""What needs a lock behind which everybody queues waits a moment at a time, and leaves off where it is not had."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from coordinator.actions.upkeep import partitions as parts_of_events
from coordinator.actions.upkeep import pruning
from coordinator.engine import partitions
from coordinator.engine.partitions import EventPartition
from tests.served import postgres_url, with_database

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite keeps its events in one table"),
]


@pytest.fixture
def _somebody_searches() -> Iterator[None]:
    """Another program reads the search index, and does not come to an end."""
    url = with_database(str(postgres_url()), connection.settings_dict["NAME"])
    with psycopg.connect(url) as other:
        other.execute("SELECT count(*) FROM sbx_search")
        yield
        other.rollback()


@pytest.mark.usefixtures("_somebody_searches")
def test_nobody_queues_behind_a_part_that_goes_for_longer_than_a_moment() -> None:
    began = time.monotonic()
    with pytest.raises(OperationalError):
        partitions.drop_partition(partitions.list_partitions()[0], 0)
    assert time.monotonic() - began < 1.5


@pytest.mark.usefixtures("_somebody_searches")
def test_a_round_of_pruning_ends_with_its_first_busy_part(monkeypatch: pytest.MonkeyPatch) -> None:
    known, tried = partitions.list_partitions(), []
    monkeypatch.setattr(parts_of_events, "list_filled_parts", lambda: known)

    def drop(part: EventPartition, before: int) -> bool:
        tried.append(part)
        return dropped(part, before)

    dropped = partitions.drop_partition
    monkeypatch.setattr(partitions, "drop_partition", drop)
    monkeypatch.setattr(parts_of_events.retry_for_locks, "__defaults__", (2,))
    now = timezone.now()
    assert pruning.drop_old_event_parts(now - timedelta(days=30), now) == pruning.PrunableSize()
    assert tried == [known[0]] * 2
