"""Rows that are written by one statement fail as any other statement does: doors know Django's errors alone."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, transaction

from coordinator.engine import bulk

pytestmark = pytest.mark.django_db


def test_a_statement_for_many_rows_that_fails_raises_djangos_error() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        bulk.insert("event_context", "event_id", ["no_such_column"], [1], [["x"]])
