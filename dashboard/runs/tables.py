"""The columns of the list of runs, and which of them can be sorted."""

from __future__ import annotations

import django_tables2 as tables


class RunTable(tables.Table):  # type: ignore[misc] # the library has no types
    """A table with one row for each run, rendered by runs/_row.html."""

    status = tables.Column(verbose_name="Status")
    run = tables.Column(verbose_name="Run", orderable=False, empty_values=())
    agent = tables.Column(verbose_name="Agent", accessor="agent_name")
    created = tables.Column(verbose_name="Created", accessor="created_at", order_by=("created_at", "run_id"))

    class Meta:
        template_name = "runs/_table.html"
        order_by = "-created"
