"""The list of sessions with the buttons above it, and its exports. What narrows the list is in `filters`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from coordinator.lib import instants
from coordinator.models import SavedSessionView, Session, SessionListChoice, SessionPin
from coordinator.models.agent_names import list_agent_filter_choices
from coordinator.models.sessions import list_distinct_session_values
from coordinator.search import files
from coordinator.sessions import titles
from coordinator.sessions.statuses import ENDED, LIVE
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.exports import build_csv_response, build_ndjson_response
from dashboard.lists.paginator import CappedPaginator, ScannedPaginator
from dashboard.lists.status_facets import (
    load_status_facets,
    query_pairs_of_named_fields,
    query_string_with_changed_values,
)
from dashboard.sessions.filters import SessionFilter
from dashboard.sessions.rows import SessionRow, load_session_rows
from dashboard.sessions.tables import COLUMN_LABELS, ORDERS, SHOWN_BY_DEFAULT, SessionTable

PAGE = 25
MOST_CHOICES = 300
MOST_CHILDREN = 100
MOST_FOLLOWED = 16  # running sessions whose rows a list follows, in addition to the topics of the page
STATUSES = (*LIVE, *ENDED)
PRESERVED_FIELDS = (
    "status",
    "dir",
    "parent",
    "errors",
    "waiting",
    "archived",
)  # preserved by the form of filters
EXPORTED_AT_ONCE = 200
EXPORT_COLUMNS = (
    "session_id",
    "title",
    "status",
    "agent_name",
    "executor_profile",
    "hostname",
    "project_dir",
    "parent_session_id",
    "started_by",
    "started_at",
    "duration_seconds",
    "cost_usd",
    "unpriced_tokens",
    "tokens",
    "files_changed",
    "children",
    "events",
    "errors",
    "waiting",
    "tags",
    "archived",
)


@dataclass(frozen=True, slots=True)
class FilterToggle:
    label: str
    icon: str
    on: bool
    query: str


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    name: str
    label: str
    is_shown: bool


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def show_session_list(request: HtmxHttpRequest) -> HttpResponse:
    """List sessions, the latest first: those without a parent, or those that match the filters."""
    assert request.user.is_authenticated
    narrowed, context = filter_sessions_and_build_context(request)
    if wants_fragment(request):
        return render(request, "sessions/_results.html", context)
    query = request.GET
    context |= {
        "followed": session_ids_to_follow_live([*context["pinned_rows"], *context["rows"]]),
        "parent_title": titles.load_session_title(query.get("parent", "")),
        "statuses": load_status_facets("sessions", STATUSES, query, *counted_sessions_sql(narrowed)),
        "kept": query_pairs_of_named_fields(query, *PRESERVED_FIELDS),
        "switches": [
            build_filter_toggle(query, "waiting", "Waiting for a person", "approvals"),
            build_filter_toggle(query, "errors", "With errors", "st-cross"),
            build_filter_toggle(query, "archived", "Archive", "archive"),
        ],
        "orders": [
            *ORDERS,
            *[(name, name) for name in [query.get("sort")] if name and name not in dict(ORDERS)],
        ],
        "agents": list_agent_filter_choices(query.get("agent")),
        "hosts": list_distinct_session_values("hostname", MOST_CHOICES),
        "people": list_distinct_session_values("person", MOST_CHOICES, "sbx_session_figures"),
        "tags": list_distinct_session_values("tag", MOST_CHOICES, "sbx_session_tags"),
        "tools": files.list_all_called_tools(),
        "views": list(SavedSessionView.objects.filter(user_id=request.user.pk).order_by("name")),
        "here": query.urlencode(),
    }
    return render(request, "sessions/list.html", context)


def counted_sessions_sql(narrowed: SessionFilter) -> tuple[str, list[str]]:
    """Return SQL for the sessions that the status filters count, and its parameters.

    They are those of the archive, those that are not archived, or all children of the session in `parent`.
    """
    archived = "EXISTS (SELECT 1 FROM sbx_archived_sessions a WHERE a.session_id = sessions.session_id)"
    parent = narrowed.form.cleaned_data.get("parent")
    if not parent:
        return archived if narrowed.should_list_only_archived else f"NOT {archived}", []
    of_parent = "parent_session_id = %s"
    return f"{of_parent} AND {archived}" if narrowed.should_list_only_archived else of_parent, [parent]


def filter_sessions_and_build_context(request: HtmxHttpRequest) -> tuple[SessionFilter, dict[str, Any]]:
    """Return the filters of the query string, and the context of `sessions/_results.html`."""
    assert request.user.is_authenticated
    query = request.GET
    narrowed = SessionFilter(query, queryset=Session.objects.all())
    pins = SessionPin.objects.filter(user_id=request.user.pk)
    pinned_ids = set(pins.values_list("session_id", flat=True))
    # Without filters, pinned sessions come first on the first page, in the same order as the others.
    pinned_first = bool(pinned_ids) and not narrowed.has_any_filter
    listed = narrowed.qs.exclude(pk__in=pinned_ids) if pinned_first else narrowed.qs
    table = build_session_table(listed, query)
    paginator = ScannedPaginator if narrowed.needs_full_scan else CappedPaginator
    page = paginator(table.data.data, PAGE).get_page(query.get("page"))
    pinned: list[Session] = []
    if pinned_first and page.number == 1:
        pinned_sessions = Session.objects.filter(pk__in=pinned_ids, archived__isnull=True)
        pinned = list(build_session_table(pinned_sessions, query).data.data)
    rows = load_session_rows([*pinned, *page.object_list], pinned_ids)
    choice = SessionListChoice.objects.filter(pk=request.user.pk).first()
    shown_columns = (
        set(choice.columns) if choice and isinstance(choice.columns, list) else set(SHOWN_BY_DEFAULT)
    )
    return narrowed, {
        "filter": narrowed,
        "table": table,
        "page": page,
        "pinned_rows": rows[: len(pinned)],
        "rows": rows[len(pinned) :],
        "columns": [
            ColumnChoice(name, label, name in shown_columns) for name, label in COLUMN_LABELS.items()
        ],
        "list_query": query.urlencode(),
    }


def build_session_table(rows: Any, query: QueryDict) -> SessionTable:
    """Return a table of these sessions in the order of the query's `sort`."""
    table = SessionTable(rows)
    table.order_by = query.get("sort") or "-started"
    return table


@require_safe
@require_viewer_role
def show_updated_session_rows(request: HtmxHttpRequest) -> HttpResponse:
    """Return the current rows of the sessions in `id`, with which a list updates its numbers."""
    sessions = Session.objects.filter(pk__in=request.GET.getlist("id")[:PAGE])
    return render(request, "sessions/_children.html", {"rows": load_session_rows(sessions)})


@require_safe
@require_viewer_role
def list_child_sessions(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return the rows of a session's children, the oldest first, and how many more there are."""
    assert request.user.is_authenticated
    sessions = Session.objects.filter(parent_session_id=session_id).order_by("created_at", "session_id")
    listed = list(sessions[: MOST_CHILDREN + 1])
    pins = SessionPin.objects.filter(user_id=request.user.pk)
    context = {
        "rows": load_session_rows(listed[:MOST_CHILDREN], set(pins.values_list("session_id", flat=True))),
        "parent": session_id,
        "more": sessions.count() - MOST_CHILDREN if len(listed) > MOST_CHILDREN else 0,
    }
    return render(request, "sessions/_children.html", context)


@require_safe
@require_viewer_role
def export_session_list_csv(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Return all sessions that match the filters as CSV, in the order of the list."""
    return build_csv_response("sessions", EXPORT_COLUMNS, walk_exported_sessions(request))


@require_safe
@require_viewer_role
def export_session_list_ndjson(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Return all sessions that match the filters, one JSON object per line."""
    return build_ndjson_response("sessions", walk_exported_sessions(request))


def walk_exported_sessions(request: HtmxHttpRequest) -> Iterator[dict[str, Any]]:
    narrowed = SessionFilter(request.GET, queryset=Session.objects.all())
    listed = build_session_table(narrowed.qs, request.GET).data.data
    ids = list(
        listed.values_list("pk", flat=True)
    )  # all at once, because a server-side cursor would stay open for minutes
    for start in range(0, len(ids), EXPORTED_AT_ONCE):
        some = ids[start : start + EXPORTED_AT_ONCE]
        sessions = Session.objects.in_bulk(some)
        for row in load_session_rows(sessions[pk] for pk in some if pk in sessions):
            yield export_session_row_as_dict(row)


def export_session_row_as_dict(row: SessionRow) -> dict[str, Any]:
    session, facts, began = row.session, row.facts, row.began_at
    ended = timezone.now() if row.is_live else facts.last
    seconds = None
    if isinstance(began, datetime) and isinstance(ended, datetime):
        seconds = round(max((ended - began).total_seconds(), 0), 3)
    return {
        "session_id": session.pk,
        "title": facts.title,
        "status": row.status_or_idle,
        "agent_name": session.agent_name,
        "executor_profile": session.executor_profile,
        "hostname": session.hostname,
        "project_dir": session.project_dir,
        "parent_session_id": session.parent_session_id,
        "started_by": facts.person,
        "started_at": instants.format_canonical_instant(session.created_at)
        if isinstance(session.created_at, datetime)
        else str(session.created_at),
        "duration_seconds": seconds,
        "cost_usd": round(facts.usage.cost, 6) if facts.usage else None,
        "unpriced_tokens": facts.usage.unpriced_tokens if facts.usage else None,
        "tokens": facts.usage.total_tokens if facts.usage else None,
        "files_changed": facts.files_changed,
        "children": facts.children,
        "events": facts.events,
        "errors": facts.errors,
        "waiting": facts.waiting,
        "tags": facts.tags,
        "archived": facts.is_archived,
    }


def session_ids_to_follow_live(rows: Iterable[SessionRow]) -> list[str]:
    """Return the ids of live sessions whose rows are updated by events.

    An id that contains white space cannot be a topic and is left out.
    """
    return [row.session.pk for row in rows if row.is_live and len(row.session.pk.split()) == 1][
        :MOST_FOLLOWED
    ]


def build_filter_toggle(query: QueryDict, name: str, label: str, icon: str) -> FilterToggle:
    on = query.get(name) == "true"
    return FilterToggle(
        label, icon, on, query_string_with_changed_values(query, **{name: "" if on else "true"})
    )
