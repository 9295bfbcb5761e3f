"""Runs: the queue and its past, ordering a new one, stopping one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from coordinator.actions import runs
from coordinator.actors import person
from coordinator.errors import SignalboxError
from coordinator.models import Run, Runner, Session
from coordinator.run_waits import Queue
from dashboard import refusals
from dashboard.filters.runs import RunFilter
from dashboard.guards import approver, viewer
from dashboard.htmx import HtmxHttpRequest, wants_fragment
from dashboard.paginator import CappedPaginator
from dashboard.run_forms import DemandsForm, ResumeForm, StartForm
from dashboard.status_facets import status_facets
from dashboard.tables.runs import RunTable

PAGE = 25
STATUSES = ("pending", "claimed", "running", "stopping", "completed", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run, why it waits if it does, and the host of the runner that has it."""

    run: Run
    why: str
    host: str

    @property
    def is_open(self) -> bool:
        """Say whether it can still be stopped."""
        return self.run.status in runs.OPEN

    @property
    def is_held(self) -> bool:
        """Say whether it waits for somebody to release it."""
        return self.is_open and hasattr(self.run, "hold")


@require_safe
@vary_on_headers("HX-Request")
@viewer
def listing(request: HtmxHttpRequest) -> HttpResponse:
    """List the runs, newest first, with the numbers of each status."""
    narrowed = RunFilter(request.GET, queryset=Run.objects.select_related("session", "hold"))
    table = RunTable(narrowed.qs)
    table.order_by = request.GET.get("sort") or "-created"
    page = CappedPaginator(table.data.data, PAGE).get_page(request.GET.get("page"))
    queue = Queue.at(timezone.now())
    hosts = dict(
        Runner.objects.filter(pk__in={run.runner_id for run in page.object_list}).values_list(
            "pk", "hostname"
        )
    )
    context: dict[str, Any] = {
        "table": table,
        "page": page,
        "rows": [
            RunRow(run, queue.why(run), hosts.get(run.runner_id, run.runner_id or ""))
            for run in page.object_list
        ],
        "statuses": status_facets("runs", STATUSES, request.GET),
        "filtered": any(request.GET.get(name) for name in narrowed.filters),
        "days": narrowed.days,
        "online": len(queue.runners),
    }
    return render(request, "runs/_results.html" if wants_fragment(request) else "runs/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@approver
def new(request: HtmxHttpRequest) -> HttpResponse:
    """Order a run that starts a session."""
    asked = {
        name: request.GET[name]
        for name in ("agent_name", "project_dir", "parent_session_id")
        if name in request.GET
    }
    form = StartForm(request.POST or None, initial=asked)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        fields = {name: data[name] or None for name in ("agent_name", "project_dir", "parent_session_id")}
        ordered = _order(request, form, kind=runs.START, **fields)
        if ordered is not None:
            return redirect("sessions:detail", ordered.session_id)
    return render(request, "runs/new.html", {"form": form}, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@approver
def resume(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Order a run that gives a session another prompt."""
    session = get_object_or_404(Session, pk=session_id)
    form = ResumeForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        ordered = _order(request, form, kind=runs.RESUME, session_id=session_id)
        if ordered is not None:
            return redirect(f"{reverse('sessions:detail', args=[session_id])}?from=end")
    context = {"form": form, "session": session}
    return render(request, "runs/resume.html", context, status=422 if form.errors else 200)


def _order(request: HtmxHttpRequest, form: DemandsForm, **order: Any) -> Run | None:
    """Queue the run; what is refused is said in the form."""
    assert request.user.is_authenticated
    try:
        return runs.create(
            prompt=form.cleaned_data["prompt"],
            additional_demands=form.demands(),
            by=person(request.user),
            now=timezone.now(),
            **order,
        )
    except SignalboxError as refusal:
        form.add_error(None, str(refusal.detail))
        return None


@require_POST
@approver
def stop(request: HtmxHttpRequest, run_id: str) -> HttpResponse:
    """Stop a run."""
    assert request.user.is_authenticated
    with refusals.as_message(request, missing_is_404=True):
        stopped = runs.stop(run_id, by=person(request.user), now=timezone.now())
        messages.success(request, stopped.message or f"Run {run_id} is {stopped.status}.")
    return redirect("runs:list")


@require_POST
@approver
def release(request: HtmxHttpRequest, run_id: str) -> HttpResponse:
    """Let runners take a run that is held."""
    assert request.user.is_authenticated
    with refusals.as_message(request, missing_is_404=True):
        runs.release(run_id, by=person(request.user), now=timezone.now())
        messages.success(request, f"Run {run_id} is released.")
    return redirect("runs:list")
