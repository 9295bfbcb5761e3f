"""What filters offer of a column that no query may read as a whole."""

from __future__ import annotations

import pytest

from coordinator.engine.distinct import list_distinct_values
from coordinator.models import AuditLog
from dashboard.lists import choices
from tests.approvals.factories import NOW

pytestmark = pytest.mark.django_db


def write(*results: str) -> None:
    for result in results:
        AuditLog.objects.create(timestamp=NOW, event_type=f"TRIED_{result}", result=result)


def test_the_values_of_an_indexed_column_are_all_offered_once_in_order() -> None:
    assert list_distinct_values("audit_logs", "event_type") == []
    write("success", "denied", "success", "allowed")
    assert list_distinct_values("audit_logs", "event_type") == [
        "TRIED_allowed",
        "TRIED_denied",
        "TRIED_success",
    ]


def test_of_another_column_those_of_the_newest_rows_are_and_what_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choices, "RECENT_ROWS", 2)
    write("ancient", "success", "denied")
    rows = AuditLog.objects.all()
    assert choices.list_recent_column_values(rows, "result") == ["denied", "success"]
    assert choices.list_recent_column_values(rows, "result", chosen="ancient") == [
        "ancient",
        "denied",
        "success",
    ]
