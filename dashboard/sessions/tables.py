"""The columns of the list of sessions, those that are shown by default, and the orders of sorting."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.db.models import BigIntegerField, Case, ExpressionWrapper, F, QuerySet, Value, When
from django.db.models.expressions import Combinable
from django.utils import timezone

from coordinator.lib import instants
from coordinator.models import Session
from coordinator.sessions.statuses import LIVE

Rows = QuerySet[Session]
SHOWN_BY_DEFAULT = ("status", "agent", "started", "took", "cost", "events", "errors")
# The choices of sorting on phones, where the table has no heads.
ORDERS = (
    ("-started", "Newest first"),
    ("started", "Oldest first"),
    ("-took", "Longest first"),
    ("-cost", "Highest cost first"),
    ("-tokens", "Most tokens first"),
    ("-files", "Most changed files first"),
    ("status", "By status"),
    ("agent", "By agent"),
)


def session_duration_sql_expression() -> Combinable:
    """Return an SQL expression for a session's duration in microseconds.

    The duration ends with the last event or, while the session is live, now.
    """
    now_us = Value(instants.instant_to_microseconds(timezone.now()), output_field=BigIntegerField())
    end = Case(When(status__in=LIVE, then=now_us), default=F("figures__ended_us"))
    # Of its own type, or Django takes it for 32 bits, and finds nothing on PostgreSQL that took over 35 minutes.
    return ExpressionWrapper(end - F("figures__began_us"), output_field=BigIntegerField())


def sort_sessions_by_figure(rows: Rows, figure: Any, *, is_descending: bool) -> tuple[Rows, bool]:
    """Return rows sorted by a figure, then the latest first.

    Sessions without the figure come last in both directions.
    """
    order = figure.desc(nulls_last=True) if is_descending else figure.asc(nulls_last=True)
    return rows.order_by(order, "-created_at", "-session_id"), True


def build_session_column(label: str, name: str, *, is_number: bool = False, **options: Any) -> tables.Column:
    """Return a column whose cells can be hidden by the column's name (static/css/lists.css)."""
    return tables.Column(
        verbose_name=label,
        attrs={"th": {"class": f"{'num ' if is_number else ''}col-{name}"}},
        empty_values=(),
        initial_sort_descending=is_number,  # people who sort by a number want the largest
        **options,
    )


class SessionTable(tables.Table):  # type: ignore[misc] # the library has no types
    """A table with one row for each session.

    The rows are rendered by sessions/_list_row.html, which the live stream also uses.
    coordinator/sessions/list_facts.py loads the data of the cells, and `.listing` in static/css/lists.css
    styles them. A row contains all columns, because the stream renders it once for everybody; the table hides
    those that are not chosen.
    """

    status = build_session_column("Status", "status", accessor="status")
    about = build_session_column("Session", "about", orderable=False)
    agent = build_session_column("Agent", "agent", accessor="agent_name")
    host = build_session_column("Host", "host", accessor="hostname")
    person = build_session_column("Started by", "person")
    started = build_session_column(
        "Started", "started", accessor="created_at", order_by=("created_at", "session_id")
    )
    took = build_session_column("Took", "took", is_number=True)
    cost = build_session_column("Cost", "cost", is_number=True)
    tokens = build_session_column("Tokens", "tokens", is_number=True)
    files = build_session_column("Files changed", "files", is_number=True)
    events = build_session_column("Events", "events", is_number=True, orderable=False)
    errors = build_session_column("Errors", "errors", is_number=True, orderable=False)
    waiting = build_session_column("Waiting", "waiting", is_number=True, orderable=False)

    class Meta:
        template_name = "sessions/_table.html"
        order_by = "-started"

    def order_person(self, rows: Rows, is_descending: bool) -> tuple[Rows, bool]:
        """Sort by the person who started the session."""
        return sort_sessions_by_figure(rows, F("figures__person"), is_descending=is_descending)

    def order_took(self, rows: Rows, is_descending: bool) -> tuple[Rows, bool]:
        """Sort by the duration of the session."""
        return sort_sessions_by_figure(rows, session_duration_sql_expression(), is_descending=is_descending)

    def order_cost(self, rows: Rows, is_descending: bool) -> tuple[Rows, bool]:
        """Sort by cost, as far as prices are known."""
        return sort_sessions_by_figure(rows, F("figures__cost"), is_descending=is_descending)

    def order_tokens(self, rows: Rows, is_descending: bool) -> tuple[Rows, bool]:
        """Sort by tokens."""
        return sort_sessions_by_figure(rows, F("figures__tokens"), is_descending=is_descending)

    def order_files(self, rows: Rows, is_descending: bool) -> tuple[Rows, bool]:
        """Sort by the number of files that the session changed."""
        return sort_sessions_by_figure(rows, F("figures__files_changed"), is_descending=is_descending)


COLUMN_LABELS: dict[str, str] = {
    name: str(bound.verbose_name) for name, bound in SessionTable.base_columns.items() if name != "about"
}
