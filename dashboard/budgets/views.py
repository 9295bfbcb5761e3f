"""Budgets: the limits of what agents may use, what they have used, and what happens at the limit."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.policy import budgets
from coordinator.errors import NotFound, SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST, require_safe
from coordinator.models import Budget, Session
from coordinator.policy.limits.budgets import convert_budget_row
from dashboard.budgets.forms import BudgetAmountForm, BudgetForm
from dashboard.budgets.states import list_current_budget_states, load_session_budgets_near_limit
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_admin, require_approver, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.frame.known_names import is_known_name


@require_safe
@require_viewer_role
def list_budgets(request: HtmxHttpRequest) -> HttpResponse:
    return render_budgets_page(request, BudgetForm())


@require_POST
@require_admin
def add_budget_view(request: HtmxHttpRequest) -> HttpResponse:
    """Add a budget. If that is refused, show the reason on the form."""
    form = BudgetForm(request.POST)
    if not form.is_valid():
        return render_budgets_page(request, form, status=422)
    cleaned_data = form.cleaned_data
    try:
        budgets.create_budget(
            cleaned_data["reach"],
            cleaned_data["name"],
            cleaned_data["span"],
            cleaned_data["measure"],
            amount=cleaned_data["amount"],
            at_limit=cleaned_data["at_limit"],
            actor=person_actor(request.user),
            now=timezone.now(),
        )
    except SignalboxError as refusal:
        form.add_error(None, str(refusal.detail))
        return render_budgets_page(request, form, status=refusal.status)
    messages.success(request, "The budget is set. It includes what was already used today.")
    return redirect("budgets:home")


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def edit_budget_view(request: HtmxHttpRequest, budget_id: int) -> HttpResponse:
    """Change a budget's amount, or what happens when it is used up.

    If somebody else changed it meanwhile, nothing is saved and the form says so.
    """
    row = get_object_or_404(Budget, pk=budget_id, ended_at__isnull=True)
    form = BudgetAmountForm(request.POST or None, initial={"amount": row.amount, "at_limit": row.at_limit})
    version, status = budgets.compute_budget_version(row), 200
    if request.method == "POST":
        version = request.POST.get("version", "")
    if request.method == "POST" and form.is_valid():
        cleaned_data = form.cleaned_data
        try:
            budgets.update_budget(
                budget_id,
                **cleaned_data,
                seen_version=version,
                actor=person_actor(request.user),
                now=timezone.now(),
            )
        except NotFound as refusal:
            raise Http404(str(refusal.detail)) from None
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
            status = refusal.status
        else:
            messages.success(request, "The budget is changed.")
            return redirect("budgets:home")
    elif form.errors:
        status = 422
    context = {"form": form, "budget": convert_budget_row(row), "row": row, "version": version}
    return render(request, "budgets/edit.html", context, status=status)


@require_POST
@require_approver
def allow_over_budget_today(request: HtmxHttpRequest, budget_id: int) -> HttpResponse:
    """Suspend a budget until the end of the day."""
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        budgets.suspend_budget_for_today(budget_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, "The budget does not limit anything until the end of the day.")
    return redirect("budgets:home")


@require_POST
@require_admin
def delete_budget_view(request: HtmxHttpRequest, budget_id: int) -> HttpResponse:
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        budgets.end_budget(budget_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, "The budget is removed.")
    return redirect("budgets:home")


@require_safe
@never_cache
@require_viewer_role
def show_session_budget_warnings(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return the budget warnings on a session's page. The page fetches them again when a budget changes."""
    session = get_object_or_404(Session, pk=session_id)
    context = {
        "session": session,
        "budget_warnings": load_session_budgets_near_limit(session, timezone.now()),
    }
    return render(request, "budgets/_of_session.html", context)


def render_budgets_page(request: HtmxHttpRequest, form: BudgetForm, status: int = 200) -> HttpResponse:
    now = timezone.now()
    rows = Budget.objects.in_bulk()
    standings = [
        (budget, rows[budget.id], state, bool(budget.name) and not is_known_name(budget.reach, budget.name))
        for budget, state in list_current_budget_states(now)
        if budget.id in rows
    ]
    context = {"form": form, "budgets": standings, "time_zone": str(settings.LOCAL_ZONE)}
    return render(request, "budgets/home.html", context, status=status)
