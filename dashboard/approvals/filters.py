"""Filters of the history of permission requests."""

from __future__ import annotations

import django_filters
from django.db.models import Q, QuerySet
from django.utils import timezone

from coordinator.models import Agent, PermissionRequest
from coordinator.models.permissions import RequestStatus as Status
from dashboard.frame.days import DayRangeFilter

STATE_CHOICES = (
    ("waiting", "Waiting"),
    (Status.APPROVED.value, Status.APPROVED.label),
    ("in-force", "Approved, in force"),
    ("over", "Approved, ended or revoked"),
    *((one.value, one.label) for one in Status if one not in (Status.PENDING, Status.APPROVED)),
)
Rows = QuerySet[PermissionRequest]


class PermissionRequestFilter(DayRangeFilter):
    """Filters by status, plugin, type, person, dates and words. An unknown value matches no request."""

    q = django_filters.CharFilter(method="filter_requests_by_search_words", label="Search")
    status = django_filters.ChoiceFilter(
        choices=STATE_CHOICES, method="filter_requests_by_state", empty_label="Any status"
    )
    plugin = django_filters.CharFilter(field_name="plugin_id", label="Plugin")
    type = django_filters.CharFilter(field_name="permission_type", label="Type")
    person = django_filters.CharFilter(method="filter_requests_by_past_decider", label="Decided by")

    def filter_requests_by_search_words(self, rows: Rows, _name: str, text: str) -> Rows:
        """Keep requests that contain every word in a text that a person would search."""
        for word in text.replace("\0", "").split():
            rows = rows.filter(
                Q(request_id__icontains=word)
                | Q(plugin_id__icontains=word)
                | Q(target_resource__icontains=word)
                | Q(justification__icontains=word)
                | Q(context__tool_name__icontains=word)
                | Q(context__tool_input__icontains=word)
                | Q(context__agent_id__icontains=word)
                | Q(context__agent_id__in=Agent.objects.filter(name__icontains=word).values("pk"))
                | Q(context__session_id=word)
                | Q(context__reason__icontains=word)
            )
        return rows

    def filter_requests_by_state(self, rows: Rows, _name: str, state: str) -> Rows:
        """Keep requests that have this state now. A pending request past its deadline counts as expired."""
        everything, now = PermissionRequest.objects.all(), timezone.now()
        if state == "waiting":
            waiting_requests = everything.awaiting_decision(now)
        elif state == Status.EXPIRED:
            waiting_requests = everything.past_deadline(now)
        elif state == "in-force":
            waiting_requests = everything.approvals_in_force(now)
        elif state == "over":
            waiting_requests = everything.filter(status=Status.APPROVED).exclude(
                pk__in=everything.approvals_in_force(now).values("pk")
            )
        else:
            waiting_requests = everything.filter(status=state)
        return rows.filter(pk__in=waiting_requests.values("pk"))

    def filter_requests_by_past_decider(self, rows: Rows, _name: str, name: str) -> Rows:
        """Keep requests that this person decided, alone or with others, or whose approval they revoked.

        The column has all names of who decided, with a comma and a space between them.
        """
        return rows.filter(
            Q(approved_by__iexact=name)
            | Q(approved_by__istartswith=f"{name}, ")
            | Q(approved_by__icontains=f", {name}, ")
            | Q(approved_by__iendswith=f", {name}")
            | Q(context__revoked_by__iexact=name)
        )
