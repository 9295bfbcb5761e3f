"""What is left of a statement that failed: nothing that some thread's garbage collector has to wait for."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator

import pytest
from django.db import DatabaseError, OperationalError, connection

from coordinator.engine import is_sqlite

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        not is_sqlite(), reason="PostgreSQL's cursors do not wait for their connection's lock"
    ),
]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_a_failed_statement_leaves_no_cursor_to_the_garbage_collector() -> None:
    cursor = connection.cursor()
    left = weakref.ref(cursor.cursor)
    with contextlib.suppress(DatabaseError):
        cursor.execute("SELECT name FROM nowhere")
    del cursor
    assert left() is None


def test_its_error_says_where_it_failed_and_why() -> None:
    with (
        pytest.raises(OperationalError, match="no such table: nowhere") as failed,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT name FROM nowhere")
    assert failed.traceback[-1].name == "execute", "the statement itself is the last line"
    assert type(failed.value.__cause__).__module__ == "sqlite3"
