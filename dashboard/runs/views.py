"""Runs: the list of pending and past runs, starting a run, stopping and releasing one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from coordinator.actions import runs
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST, require_safe
from coordinator.models import Run, Runner, Session
from coordinator.models.agent_names import LinkedAgent, load_linked_agents_by_name
from coordinator.policy.limits import budgets
from coordinator.runs.statuses import OPEN, OVER, RESUME, START
from coordinator.runs.stops import STOPPABLE
from coordinator.runs.waits import RunQueueState
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions import titles
from coordinator.sessions.title_words import make_title_from_text, preview_markdown
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_approver, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.paginator import CappedPaginator
from dashboard.lists.status_facets import load_status_facets, query_pairs_of_named_fields
from dashboard.runs.filters import RunFilter
from dashboard.runs.forms import ResumeSessionForm, RunDemandsForm, StartRunForm
from dashboard.runs.tables import RunTable

PAGE = 25
LONGEST_PROMPT = 200  # characters of a prompt in the list
STATUSES = (*OPEN, *OVER)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run, ready for display."""

    run: Run
    why: str  # why it waits; "" if it does not wait
    host: str  # of the runner that has it
    titles: Mapping[str, str]  # titles of sessions by their ids
    agent: LinkedAgent | None

    @property
    def session_title(self) -> str:
        """The session's title, or "" if it only repeats the prompt that the row shows."""
        title = self.titles.get(self.run.session_id, "")
        return "" if title == make_title_from_text(self.run.prompt or "") else title

    @property
    def parent_title(self) -> str:
        return self.titles.get(self.run.parent_session_id or "", "")

    @property
    def is_run_open(self) -> bool:
        return self.run.status in OPEN

    @property
    def prompt_or_arguments_text(self) -> str:
        """The beginning of the run's prompt, or the arguments of a procedural agent as JSON."""
        with_parameters = getattr(self.run, "ordered_with", None)
        parameters = with_parameters.parameters if with_parameters is not None else None
        return preview_markdown(self.run.prompt or "", LONGEST_PROMPT) or (
            json.dumps(parameters, ensure_ascii=False) if parameters is not None else ""
        )

    @property
    def can_stop(self) -> bool:
        return self.run.status in STOPPABLE

    @property
    def is_held(self) -> bool:
        return self.is_run_open and hasattr(self.run, "hold")


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def show_run_list(request: HtmxHttpRequest) -> HttpResponse:
    """List the runs, the latest first, with the number of runs in each status."""
    narrowed = RunFilter(request.GET, queryset=Run.objects.select_related("session", "hold", "ordered_with"))
    table = RunTable(narrowed.qs)
    table.order_by = request.GET.get("sort") or "-created"
    page = CappedPaginator(table.data.data, PAGE).get_page(request.GET.get("page"))
    now = timezone.now()
    queue = RunQueueState.load_queue_state(now, budgets.load_spent_run_budgets(now))
    hosts = dict(
        Runner.objects.filter(pk__in={run.runner_id for run in page.object_list}).values_list(
            "pk", "hostname"
        )
    )
    session_titles = titles.load_session_titles(
        session_id for run in page.object_list for session_id in (run.session_id, run.parent_session_id)
    )
    agents = load_linked_agents_by_name(run.agent_name for run in page.object_list)
    context: dict[str, Any] = {
        "table": table,
        "page": page,
        "rows": [
            RunRow(
                run,
                queue.explain_waiting_run(run),
                hosts.get(run.runner_id, run.runner_id or ""),
                session_titles,
                agents.get(run.agent_name),
            )
            for run in page.object_list
        ],
        "statuses": load_status_facets("runs", STATUSES, request.GET),
        "filtered": any(request.GET.get(name) for name in narrowed.filters),
        "days": narrowed.day_range,
        "kept": query_pairs_of_named_fields(request.GET, "status", "runner", "session", "sort"),
        "online": len(queue.runners),
    }
    return render(request, "runs/_results.html" if wants_fragment(request) else "runs/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@require_approver
def start_run_view(request: HtmxHttpRequest) -> HttpResponse:
    initial_values = {
        name: request.GET[name]
        for name in ("agent_name", "project_dir", "parent_session_id")
        if name in request.GET
    }
    form = StartRunForm(
        request.POST or None, initial=initial_values_from_earlier_run(request) | initial_values
    )
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        fields = {name: data[name] or None for name in ("agent_name", "project_dir", "parent_session_id")}
        ordered = queue_run_or_add_error(request, form, kind=START, **fields)
        if ordered is not None:
            return redirect("sessions:detail", ordered.session_id)
    return render(request, "runs/new.html", {"form": form}, status=422 if form.errors else 200)


def initial_values_from_earlier_run(request: HtmxHttpRequest) -> dict[str, Any]:
    """Return initial values from the first run of a session, to start the same again or to fork it."""
    again, fork_of = request.GET.get("again", ""), request.GET.get("fork_of", "")
    first = Run.objects.filter(session_id=again or fork_of).select_related("ordered_with")
    run = first.order_by("created_at", "run_id").first()
    if run is None:
        return {}
    ordered_with = getattr(run, "ordered_with", None)
    parameters = ordered_with.parameters if ordered_with is not None else {}
    agent = parameters.get("agent", "") if isinstance(parameters, dict) else ""
    initial_values = {
        "agent": agent,
        "agent_name": run.agent_name or "",
        "project_dir": run.project_dir or "",
    }
    return initial_values | ({"prompt": mask_secrets_in_value(run.prompt)} if again else {"fork_of": fork_of})


@require_http_methods(["GET", "HEAD", "POST"])
@require_approver
def resume_session_view(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    session = get_object_or_404(Session, pk=session_id)
    form = ResumeSessionForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        ordered = queue_run_or_add_error(request, form, kind=RESUME, session_id=session_id)
        if ordered is not None:
            return redirect(f"{reverse('sessions:detail', args=[session_id])}?from=end")
    context = {"form": form, "session": session, "session_title": titles.load_session_title(session_id)}
    return render(request, "runs/resume.html", context, status=422 if form.errors else 200)


def queue_run_or_add_error(request: HtmxHttpRequest, form: RunDemandsForm, **order: Any) -> Run | None:
    """Queue a run. If it is refused, add the reason to the form's errors and return None."""
    assert request.user.is_authenticated
    try:
        return runs.queue_start_or_resume_run(
            prompt=form.cleaned_data["prompt"],
            parameters=form.cleaned_data.get("parameters"),
            additional_demands=form.runner_demands(),
            actor=person_actor(request.user),
            now=timezone.now(),
            **order,
        )
    except SignalboxError as refusal:
        form.add_error(None, describe_run_refusal(refusal.detail))
        return None


def describe_run_refusal(detail: Any) -> str:
    """Return the text of a refusal, with the validation errors of the parameters."""
    if not isinstance(detail, dict):
        return str(detail)
    problems = [
        f"{validation_error['path']}: {validation_error['message']}"
        for validation_error in detail.get("validation_errors", [])
    ]
    return " ".join([f"{detail.get('message', detail)}.", *(f"{fault}." for fault in problems)])


@require_POST
@require_approver
def stop_run_view(request: HtmxHttpRequest, run_id: str) -> HttpResponse:
    assert request.user.is_authenticated
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        stopped = runs.request_run_stop(run_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, stopped.message or f"Run {run_id} is {stopped.status}.")
    return redirect("runs:list")


@require_POST
@require_approver
def release_run_view(request: HtmxHttpRequest, run_id: str) -> HttpResponse:
    assert request.user.is_authenticated
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        runs.release_held_run(run_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, f"Run {run_id} is released. A runner may take it now.")
    return redirect("runs:list")
