"""The matrix of agents and tools.

It has pages without JavaScript; static/js/matrix.js makes it scrollable.
"""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from coordinator.identity.declarations import require_safe
from coordinator.models import McpServer
from coordinator.policy.grants import end_parsing as grant_lengths
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.mcp import matrix
from dashboard.mcp.access_sheet import CHOICES


@require_safe
@require_viewer_role
def show_access_matrix(request: HtmxHttpRequest) -> HttpResponse:
    """Show the matrix from `row` and `col` on. With `part=window`, return only the cells."""
    now, query = timezone.now(), request.GET
    axes = matrix.load_filtered_matrix_axes(
        now,
        agents=query.get("agents", ""),
        tools=query.get("tools", ""),
        server=query.get("server", "").replace("\0", ""),
        only=query.get("only", ""),
    )
    window = matrix.load_matrix_window(
        axes,
        now,
        row=parse_small_number_or_default(query.get("row"), 0),
        column=parse_small_number_or_default(query.get("col"), 0),
        rows=parse_small_number_or_default(query.get("rows"), matrix.ROWS),
        columns=parse_small_number_or_default(query.get("cols"), matrix.COLUMNS),
    )
    context = {
        "window": window,
        "number_of_agents": len(axes.agents),
        "number_of_tools": axes.number_of_tools,
        "number_of_columns": len(axes.tools),
        "servers": list(McpServer.objects.exclude(name=None).order_by("name").values_list("name", flat=True)),
        "filtered": any(query.get(name) for name in ("agents", "tools", "server", "only")),
        "pages": neighbour_window_offsets(window),
        "choices": CHOICES,
        "default_end": grant_lengths.DEFAULT,
    }
    return render(
        request, "mcp/_window.html" if query.get("part") == "window" else "mcp/matrix.html", context
    )


def parse_small_number_or_default(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else otherwise


def neighbour_window_offsets(window: matrix.VisibleMatrix) -> dict[str, int | None]:
    """Return the first row or column of each neighbouring window; None at the matrix's edge."""
    row, column = window.row, window.column
    return {
        "up": max(row - matrix.ROWS, 0) if row else None,
        "down": row + matrix.ROWS if row + matrix.ROWS < len(window.axes.agents) else None,
        "left": max(column - matrix.COLUMNS, 0) if column else None,
        "right": column + matrix.COLUMNS if column + matrix.COLUMNS < len(window.axes.tools) else None,
    }
