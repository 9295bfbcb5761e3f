"""Views of API keys, for admins: list, create, revoke and bind them. A key's text is shown only once."""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.people import key_binding, key_quotas, keys
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST
from coordinator.identity.keys import accepts_keys_without_agent
from coordinator.identity.scopes import WHAT_SCOPES_ALLOW
from coordinator.models import Agent, ApiKey
from coordinator.models.agent_names import agent_labels_by_id
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_admin
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.frame.stored_choices import StoredChoiceField, set_choices_and_keep_saved_values

EXPIRIES = {"": "never", "1": "in a day", "30": "in 30 days", "90": "in 90 days", "365": "in a year"}


class ApiKeyForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="Who uses it, for example <code>my-runner</code>.")
    scopes = forms.MultipleChoiceField(
        choices=[(scope, f"{scope}: {allowed}") for scope, allowed in WHAT_SCOPES_ALLOW.items()],
        widget=forms.CheckboxSelectMultiple,
    )
    agent_id = StoredChoiceField(
        label="Agent",
        required=False,
        help_text="Whom the key speaks for, and whose sessions and chat it reaches. A key of scope agent without "
        "one gets a new agent with the key's name.",
    )
    expires = forms.ChoiceField(choices=list(EXPIRIES.items()), required=False)

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        agents = Agent.objects.exclude(pk=None).order_by("name").values_list("id", "name")
        set_choices_and_keep_saved_values(self, "agent_id", [("", "none"), *agents])


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@require_admin
def list_and_create_api_keys(request: HtmxHttpRequest) -> HttpResponse:
    """List the keys. A POST creates a key and shows its text once, on the page that it returns."""
    form = ApiKeyForm(request.POST or None)
    api_key = (
        create_key_or_add_form_error(request, form) if request.method == "POST" and form.is_valid() else None
    )
    rows = ApiKey.objects.annotate(
        stored_today=key_quotas.build_stored_today_subquery(timezone.now())
    ).order_by("name")
    context = {
        "keys": sorted(rows, key=lambda row: row.revoked_at is not None),
        "form": ApiKeyForm() if api_key else form,
        "made": api_key,
        "accepts_unbound": accepts_keys_without_agent(),
        "unbound": key_binding.list_unbound_keys(timezone.now()),
        "now": timezone.now(),
        "stored_limit": settings.KEY_BYTES_PER_DAY,
        "agent_labels": agent_labels_by_id(),
    }
    status = 422 if form.errors else 200
    return render(request, "keys/list.html", context, status=status)


def create_key_or_add_form_error(request: HtmxHttpRequest, form: ApiKeyForm) -> tuple[ApiKey, str] | None:
    """Create the key and return it with its text.

    If the action refuses, add the reason to the form and return None.
    """
    cleaned_data, now = form.cleaned_data, timezone.now()
    try:
        return key_binding.create_bound_key(
            name=cleaned_data["name"],
            scopes=cleaned_data["scopes"],
            agent_id=cleaned_data["agent_id"] or None,
            expires_at=now + timedelta(days=int(cleaned_data["expires"]))
            if cleaned_data["expires"]
            else None,
            actor=person_actor(request.user),
            now=now,
        )
    except SignalboxError as refusal:
        form.add_error(None, str(refusal.detail))
        return None


@require_POST
@require_admin
def bind_all_then_refuse_unbound(request: HtmxHttpRequest) -> HttpResponse:
    """Bind each key without an agent to the agents that it was used for.

    Afterwards a key without an agent is refused.
    """
    with refusals.add_refusal_message_during_block(request):
        unbound = key_binding.bind_keys_and_refuse_unbound(
            actor=person_actor(request.user), now=timezone.now()
        )
        bound = sum(1 for key in unbound if key.spoken_for)
        messages.success(
            request,
            f"{bound} of {len(unbound)} keys were bound. Keys without an agent are refused from now on.",
        )
    return redirect("keys:list")


@require_POST
@require_admin
def revoke_api_key_view(request: HtmxHttpRequest, key_id: int) -> HttpResponse:
    with refusals.add_refusal_message_during_block(request):
        row = keys.invalidate_api_key(key_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, f"The key {row.name} is revoked.")
    return redirect("keys:list")
