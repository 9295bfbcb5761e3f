"""The jobs: which wait, which process runs which until when, and the last error of each.

An administrator may run a job now, or cancel the delivery of a notification.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.text import Truncator

from coordinator.actions import notifications
from coordinator.actions.upkeep import jobs
from coordinator.errors import SignalboxError
from coordinator.models import Job
from dashboard.admin import columns
from dashboard.admin.options import ViewOnlyAdmin, actor_from_request
from dashboard.templatetags.signalbox import NOTHING, status, time


def job_state(job: Job, now: datetime) -> str:
    """Return `running`, `failed` (the last attempt failed) or `waiting`."""
    if isinstance(job.leased_until, datetime) and job.leased_until > now:
        return "running"
    return "failed" if job.error is not None else "waiting"


class JobStateFilter(SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("running", "Running"), ("failed", "Last attempt failed"), ("waiting", "Waiting")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        running = Q(leased_until__isnull=False, leased_until__gt=timezone.now())
        match self.value():
            case "running":
                return queryset.filter(running)
            case "failed":
                return queryset.filter(~running, error__isnull=False)
            case "waiting":
                return queryset.filter(~running, error__isnull=True)
        return queryset


@admin.register(Job)
class JobAdmin(ViewOnlyAdmin):
    list_display = (
        "job_cell",
        "state_cell",
        columns.time_column("next_at", label="next attempt"),
        "attempts",
        columns.text_column("error", label="last error"),
        "lease_cell",
    )
    list_filter = (JobStateFilter,)
    search_fields = ("name", "subject", "error", "leased_by")
    ordering = ("next_at", "id")
    actions = ("run_now", "give_up")  # type: ignore[assignment]

    def audit_log_target_of_row(self, object_id: str) -> str:
        return f"job:{Job.objects.filter(pk=object_id).first() or object_id}"

    @admin.display(description="job", ordering="name")
    def job_cell(self, job: Job) -> Any:
        """Return the name of the work, and below it its subject."""
        if not job.subject:
            return format_html("<code>{}</code>", job.name)
        subject = Truncator(job.subject).chars(columns.SHOWN)
        return format_html("<code>{}</code><br><code>{}</code>", job.name, subject)

    @admin.display(description="state")
    def state_cell(self, job: Job) -> Any:
        word = job_state(job, timezone.now())
        return "Waiting" if word == "waiting" else status(word)

    @admin.display(description="lease")
    def lease_cell(self, job: Job) -> Any:
        """Return the process that runs the job, and when its lease ends."""
        if job.leased_by is None:
            return NOTHING
        return format_html("<code>{}</code> {}", job.leased_by, time(job.leased_until))

    @admin.action(description="Run now")
    def run_now(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Schedule the chosen jobs to run now. Jobs that are running are not changed."""
        done = self.apply_action_and_count_successes(request, queryset, jobs.schedule_job_immediately)
        if done:
            messages.success(request, f"{done} {'job starts' if done == 1 else 'jobs start'} within seconds.")

    @admin.action(description="Give up")
    def give_up(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Cancel the chosen notification deliveries. Other jobs repeat, and cannot be given up."""
        done = self.apply_action_and_count_successes(
            request, queryset, notifications.cancel_notification_delivery
        )
        if done:
            messages.success(request, f"{done} {'message was' if done == 1 else 'messages were'} given up.")

    def apply_action_and_count_successes(
        self, request: HttpRequest, queryset: QuerySet[Job], act: Callable[..., None]
    ) -> int:
        """Call `act` for each job and return for how many it succeeded. A refusal is shown as a message."""
        done = 0
        for pk in queryset.values_list("pk", flat=True):
            try:
                act(pk, actor=actor_from_request(request), now=timezone.now())
                done += 1
            except SignalboxError as refusal:
                messages.error(request, str(refusal.detail))
        return done
