"""Connect Claude Code: make a key, paste a block of settings, try it."""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from coordinator.actions import keys
from coordinator.dialects.claude_settings import KEY_VARIABLE, exports_for, settings_for
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person
from coordinator.models import Agent, Session
from coordinator.operations.doctor import Finding
from coordinator.operations.doctor.claude_code import examine
from coordinator.sessions import titles
from dashboard.frame.guards import admin, viewer
from dashboard.frame.htmx import HtmxHttpRequest

TRIAL_KEY_LASTS = timedelta(minutes=2)


class ClaudeKeyForm(forms.Form):
    name = forms.CharField(
        max_length=100, help_text="Who uses this Claude Code, for example <code>ann-laptop</code>."
    )
    agent_id = forms.ChoiceField(
        label="Agent",
        required=False,
        help_text="The agent whose MCP grants apply and whose sessions it may reach. Without one, "
        "each server's default policy applies, and the key may write into every session.",
    )

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        agents = Agent.objects.order_by("name").values_list("id", "name")
        field = self.fields["agent_id"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "none"), *agents]


@require_GET
@never_cache
@viewer
def connect(request: HtmxHttpRequest) -> HttpResponse:
    return _page(request, ClaudeKeyForm())


@require_POST
@never_cache
@admin
def make_key(request: HtmxHttpRequest) -> HttpResponse:
    """Create the key and show it on the page this answers with, and never again."""
    form = ClaudeKeyForm(request.POST)
    if form.is_valid():
        try:
            _, raw = keys.create(
                name=form.cleaned_data["name"],
                scopes=["agent"],
                agent_id=form.cleaned_data["agent_id"] or None,
                by=person(request.user),
                now=timezone.now(),
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
        else:
            return _page(request, ClaudeKeyForm(), key=raw)
    return _page(request, form, status=422)


@require_POST
@never_cache
@admin
def test(request: HtmxHttpRequest) -> HttpResponse:
    """Send a hook through every hop, with a key of its own, and show each with its time."""
    now, by = timezone.now(), person(request.user)
    row, raw = keys.create(
        name=f"trial-{now:%Y%m%d-%H%M%S-%f}",
        scopes=["agent"],
        by=by,
        now=now,
        expires_at=now + TRIAL_KEY_LASTS,
    )
    try:
        findings = list(examine(_address(request), raw, by=by))
    finally:
        keys.revoke(row.pk, by=by, now=timezone.now(), reason="the test has ended")
    return _page(request, ClaudeKeyForm(), findings=findings)


def _address(request: HtmxHttpRequest) -> str:
    """Return where programs reach us: not under people's own host name, which only browsers find."""
    bare = settings.BIND.rpartition(":")[0]
    return request.build_absolute_uri("/").rstrip("/").replace(settings.OWN_HOST or bare, bare)


def _page(
    request: HtmxHttpRequest,
    form: ClaudeKeyForm,
    *,
    key: str | None = None,
    findings: list[Finding] | None = None,
    status: int = 200,
) -> HttpResponse:
    address = _address(request)
    latest = Session.objects.filter(executor_profile="claude-code").order_by("-created_at").first()
    context = {
        "form": form,
        "exports": exports_for(key) if key else None,
        "findings": findings,
        "variable": KEY_VARIABLE,
        "address": address,
        "settings": settings_for(address),
        "managed": settings_for(address, managed=True),
        "latest": latest,
        "latest_title": titles.of_one(latest.pk) if latest else "",
    }
    return render(request, "claude_code/connect.html", context, status=status)
