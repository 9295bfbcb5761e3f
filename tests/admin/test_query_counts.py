from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordinator.models import Event, Session
from dashboard.lists import paginator
from tests.admin.pages import url
from tests.admin.rows import REGISTERED, odd_row
from tests.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_sidebar")]

MOST = 9  # session, person, role, count, rows, strays or prefetches


def queries(client: Any, place: str) -> list[str]:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert client.get(place).status_code == 200
    return [query["sql"] for query in captured.captured_queries]


@pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model._meta.label)
def test_a_list_asks_the_same_however_long_it_is_and_counts_no_whole_table(model: Any) -> None:
    client = signed_in("admin")
    odd_row(model, 9_000_001)
    short = queries(client, url(model, "changelist"))
    counts = [sql for sql in short if "COUNT(*)" in sql.upper()]
    assert counts
    assert all("LIMIT" in sql for sql in counts)  # no whole table is counted
    for number in range(2, 12):
        odd_row(model, 9_000_000 + number)
    long = queries(client, url(model, "changelist"))
    assert len(long) == len(short) <= MOST, "\n".join(long)


def test_a_list_of_events_does_not_read_what_they_hold() -> None:
    client = signed_in("admin")
    odd_row(Event)
    rows = [sql for sql in queries(client, url(Event, "changelist")) if '"events"."timestamp"' in sql]
    assert rows
    assert not any('"tool_output"' in sql or '"content"' in sql for sql in rows)


def test_a_longer_list_than_is_counted_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paginator, "COUNTED", 3)
    client = signed_in("admin")
    for number in range(3):
        odd_row(Session, number)
    assert "3 sessions" in " ".join(client.get(url(Session, "changelist")).content.decode().split())
    odd_row(Session, 3)
    assert "first 3 sessions; filter or search to see the others" in " ".join(
        client.get(url(Session, "changelist")).content.decode().split()
    )
