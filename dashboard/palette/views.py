"""Go to a page, an action, a session, an agent or a person by a few letters of its name."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from dashboard.frame.context import build_rail_items
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.palette.destinations import find_destination_groups

MAX_QUERY_CHARACTERS = 200


@require_safe
@never_cache
@vary_on_headers("HX-Request")
@require_viewer_role
def show_palette(request: HtmxHttpRequest) -> HttpResponse:
    """Show the destinations that match `q`.

    The dialog of static/js/palette.js receives only the results, any other request a page.
    """
    query = request.GET.get("q", "")[:MAX_QUERY_CHARACTERS]
    groups = find_destination_groups(query, build_rail_items(request), request.user)
    is_dialog = wants_fragment(request)
    context = {
        "query": query,
        "groups": groups,
        "count": sum(len(group.destinations) for group in groups),
        "as_options": is_dialog,
    }
    return render(request, "palette/_results.html" if is_dialog else "palette/page.html", context)
