"""The list of runs: which columns it has and which of them sort."""

from __future__ import annotations

import django_tables2 as tables


class RunTable(tables.Table):  # type: ignore[misc] # the library has no types
    """One row a run, drawn by runs/_row.html."""

    status = tables.Column(verbose_name="Status")
    run = tables.Column(verbose_name="Run", orderable=False, empty_values=())
    agent = tables.Column(verbose_name="Agent", accessor="agent_name")
    created = tables.Column(verbose_name="Created", accessor="created_at", order_by=("created_at", "run_id"))

    class Meta:
        template_name = "runs/_table.html"
        order_by = "-created"
