"""The brake stops an agent, a host or everything. Every page shows a banner while one is on."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.policy import brakes
from coordinator.errors import NotFound, SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST, require_safe
from coordinator.models import Brake
from dashboard.brakes.forms import BrakeForm
from dashboard.frame.guards import require_approver, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest

MOST_RELEASED = 50  # released brakes that the page lists


@require_safe
@require_viewer_role
def show_brakes(request: HtmxHttpRequest) -> HttpResponse:
    return render_brakes_page(request, BrakeForm())


@require_POST
@require_approver
def apply_brake_view(request: HtmxHttpRequest) -> HttpResponse:
    """Apply a brake. If that is refused, show the reason on the form."""
    form = BrakeForm(request.POST)
    if not form.is_valid():
        return render_brakes_page(request, form, status=422)
    data = form.cleaned_data
    try:
        done = brakes.apply_brake_and_stop_runs(
            data["reach"], data["name"], data["reason"], actor=person_actor(request.user), now=timezone.now()
        )
    except SignalboxError as refusal:
        form.add_error(None, str(refusal.detail))
        return render_brakes_page(request, form, status=refusal.status)
    stopped = f" {done.stopped} running turns are being stopped." if done.stopped else ""
    messages.success(request, f"The brake is on. No new call runs.{stopped}")
    return redirect("brakes:home")


@require_POST
@require_approver
def release_brake_view(request: HtmxHttpRequest, brake_id: int) -> HttpResponse:
    try:
        brakes.lift_brake(brake_id, actor=person_actor(request.user), now=timezone.now())
    except NotFound as refusal:
        messages.error(request, str(refusal.detail))
    except SignalboxError as refusal:
        messages.warning(request, str(refusal.detail))
    else:
        messages.success(request, "The brake is released. Waiting calls continue.")
    return redirect("brakes:home")


@require_safe
@never_cache
@require_viewer_role
def show_brake_banner(request: HtmxHttpRequest) -> HttpResponse:
    """Return the banner that every page shows while a brake is on.

    Pages fetch it again when a brake changes.
    """
    return render(request, "brakes/_banner.html")


def render_brakes_page(request: HtmxHttpRequest, form: BrakeForm, status: int = 200) -> HttpResponse:
    released = Brake.objects.filter(released_at__isnull=False).order_by("-id")[:MOST_RELEASED]
    context = {"form": form, "released": released}
    return render(request, "brakes/home.html", context, status=status)
