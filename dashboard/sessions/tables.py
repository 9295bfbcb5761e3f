"""The list of sessions: which columns it has and which of them sort."""

from __future__ import annotations

import django_tables2 as tables


class SessionTable(tables.Table):  # type: ignore[misc] # the library has no types
    """One row a session, drawn by sessions/_list_row.html, which the live stream uses too.

    What a cell needs is read in coordinator/sessions/list_facts.py; its look is `.listing` in static/css/lists.css.
    """

    status = tables.Column(verbose_name="Status")
    about = tables.Column(verbose_name="Session", orderable=False, empty_values=())
    agent = tables.Column(verbose_name="Agent", accessor="agent_name")
    started = tables.Column(
        verbose_name="Started", accessor="created_at", order_by=("created_at", "session_id")
    )
    took = tables.Column(
        verbose_name="Took", orderable=False, empty_values=(), attrs={"th": {"class": "num"}}
    )
    events = tables.Column(
        verbose_name="Events", orderable=False, empty_values=(), attrs={"th": {"class": "num"}}
    )
    errors = tables.Column(
        verbose_name="Errors", orderable=False, empty_values=(), attrs={"th": {"class": "num"}}
    )

    class Meta:
        template_name = "sessions/_table.html"
        order_by = "-started"
