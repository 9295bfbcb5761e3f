"""Runners: the list with the runs of each, and deregistering one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from coordinator.actions.agents import runners
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST, require_safe
from coordinator.models import Run, Runner
from coordinator.models.agent_names import load_linked_agents_by_name
from coordinator.runs import offers
from coordinator.runs.liveness import is_runner_alive
from coordinator.runs.statuses import ACTIVE
from coordinator.sessions import titles
from dashboard.frame.guards import require_admin, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment


@dataclass(frozen=True, slots=True)
class DrivenAgentRow:
    """An agent that a runner can drive, with the abilities that it reported."""

    offer: dict[str, Any]

    @property
    def ability_labels(self) -> list[str]:
        return offers.list_agent_abilities(self.offer)


@dataclass(frozen=True, slots=True)
class RunnerRow:
    """A runner, with its active runs and its agents."""

    runner: Runner
    state: str  # "online", or "stale" if it has not polled in time
    runs: list[tuple[Run, str]]  # each with the title of its session
    drives: list[DrivenAgentRow]
    missing: list[dict[str, Any]]  # configured agents that it cannot drive; `how` is the reason


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def show_runner_list(request: HtmxHttpRequest) -> HttpResponse:
    now = timezone.now()
    active = list(Run.objects.filter(status__in=ACTIVE).select_related("session").order_by("created_at"))
    session_titles = titles.load_session_titles(run.session_id for run in active)
    runs_by_runner: dict[str | None, list[tuple[Run, str]]] = {}
    for run in active:
        runs_by_runner.setdefault(run.runner_id, []).append((run, session_titles.get(run.session_id, "")))
    known_runners = list(Runner.objects.order_by("hostname", "project_dir", "runner_id"))
    offered = offers.load_offers_by_runner_id(runner.pk for runner in known_runners)
    rows = [
        RunnerRow(
            runner,
            "online" if is_runner_alive(runner, now) else "stale",
            runs_by_runner.get(runner.pk, []),
            [DrivenAgentRow(offer) for offer in offers.list_agents_in_offers(offered.get(runner.pk))],
            [
                agent
                for agent in offers.list_agents_missing_on_machine(offered.get(runner.pk))
                if agent.get("is_configured") is True
            ],
        )
        for runner in known_runners
    ]
    context = {
        "rows": rows,
        "agents": load_linked_agents_by_name(run.agent_name for run in active),
        "waiting": Run.objects.filter(status=Run.Status.PENDING).count(),
    }
    return render(
        request, "runners/_results.html" if wants_fragment(request) else "runners/list.html", context
    )


@require_POST
@require_admin
def deregister_runner_view(request: HtmxHttpRequest, runner_id: str) -> HttpResponse:
    """Deregister a runner. The answer to its next poll reports that it is deregistered."""
    assert request.user.is_authenticated
    try:
        runners.remove_own_runner_or_deregister(
            runner_id, actor=person_actor(request.user), itself=False, now=timezone.now()
        )
    except SignalboxError as refusal:
        raise Http404(str(refusal.detail)) from None
    messages.success(request, "The runner is deregistered at its next poll.")
    return redirect("runners:list")
