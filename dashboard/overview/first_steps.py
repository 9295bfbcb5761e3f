"""The first steps after set-up, each with a check of whether it is done.

The list disappears when all steps are done or when the person dismisses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.people import hints
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST, require_safe
from coordinator.identity.roles import ADMIN, APPROVER, has_role
from coordinator.lib.body_limits import SMALL, declare_request_body_allowance
from coordinator.lib.listening_sockets import is_loopback
from coordinator.models import ApiKey, AuditLog, Invitation, ToolRule
from coordinator.policy.deciders.decider_book import can_user_edit_policy
from dashboard.connections.received import list_sessions_without_probes
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest

HINT = "first steps"
# After this time, audit entries may have been pruned. A finished step must not appear as undone then.
SHOWN_FOR = timedelta(days=30)
DECIDED_EVENTS = ("PERMISSION_REQUEST_APPROVED", "PERMISSION_REQUEST_DENIED")


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """Which first steps a person has done. A step that their role does not allow is None."""

    is_connected: bool | None
    has_session: bool
    has_rule: bool | None
    has_decided: bool
    has_invited: bool | None

    @property
    def done_count(self) -> int:
        return sum(step is True for step in self.steps)

    @property
    def step_count(self) -> int:
        return sum(step is not None for step in self.steps)

    @property
    def steps(self) -> tuple[bool | None, ...]:
        return (self.is_connected, self.has_session, self.has_rule, self.has_decided, self.has_invited)


def load_first_steps_if_shown(user: User | AnonymousUser, now: datetime) -> FirstSteps | None:
    """Return the person's first steps, or None if there is no list to show.

    There is none for viewers, for accounts older than SHOWN_FOR, and after it was finished or dismissed.
    There is also none in an installation with demo data, because its rows do not show what a person did.
    """
    if not isinstance(user, User) or not has_role(user, APPROVER) or now - user.date_joined > SHOWN_FOR:
        return None
    if hints.is_hint_dismissed(user, HINT) or AuditLog.objects.filter(event_type="DEMO_FILLED").exists():
        return None
    is_admin, has_session = has_role(user, ADMIN), list_sessions_without_probes().exists()
    decided = AuditLog.objects.filter(actor_id=str(person_actor(user)), event_type__in=DECIDED_EVENTS)
    steps = FirstSteps(
        is_connected=(has_session or ApiKey.objects.filter(last_used_at__isnull=False).exists())
        if is_admin
        else None,
        has_session=has_session,
        has_rule=ToolRule.objects.exists() if can_user_edit_policy(user) else None,
        has_decided=decided.exists(),
        has_invited=(User.objects.count() > 1 or Invitation.objects.exists()) if is_admin else None,
    )
    return None if steps.done_count == steps.step_count else steps


def build_first_steps_context(request: HtmxHttpRequest, now: datetime) -> dict[str, object]:
    """Return the context for templates/overview/_first_steps.html."""
    host = request.get_host().rpartition(":")[0].strip("[]") or request.get_host()
    return {
        "first_steps": load_first_steps_if_shown(request.user, now),
        "is_local_address": is_loopback(host) or host.endswith("localhost"),
    }


@require_safe
@never_cache
@require_viewer_role
def show_first_steps_fragment(request: HtmxHttpRequest) -> HttpResponse:
    """Render the current list as a fragment, which replaces the one on the overview."""
    return render(request, "overview/_first_steps.html", build_first_steps_context(request, timezone.now()))


@require_POST
@declare_page_of_form_view("overview")
@require_viewer_role
@declare_request_body_allowance(SMALL)
def dismiss_first_steps(request: HtmxHttpRequest) -> HttpResponse:
    assert isinstance(request.user, User)
    hints.dismiss_hint(request.user, HINT, timezone.now())
    return redirect("overview")
