"""Names of agents, hosts, people, folders and models in forms.

An unknown name may be a typo, so it is confirmed.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import Q

from coordinator.models import Agent, Runner, Session, UsageDay
from coordinator.policy.limits.budgets import FOLDER_SEPARATORS, strip_trailing_folder_separators
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.usage.prices import find_model_price, load_configured_model_prices, normalize_model_name

MOST_OFFERED = 200
HIDDEN_WHILE_EMPTY = {
    "placeholder": " "
}  # an empty name can then be hidden by components.css while `reach` is everything
UNKNOWN = {
    "agent": "No agent or program is called “{}”, and no session names it.",
    "host": "No session and no runner names the host “{}”.",
    "person": "Nobody has the user name “{}”.",
    "folder": "No session was in the folder “{}” or below it.",
    "model": "No request went to a model “{}”, and no price of it is known.",
}


def is_known_name(kind: str, name: str) -> bool:
    """Return whether something of that kind has that name. For an unknown kind, return True."""
    if kind == "agent":
        return (
            name in AGENT_TITLES
            or Agent.objects.filter(pk=name).exists()
            or Session.objects.filter(agent_name=name).exists()
        )
    if kind == "host":
        hosts = (Session.objects.filter(hostname=name), Runner.objects.filter(hostname=name))
        return any(host_rows.exists() for host_rows in hosts)
    if kind == "folder":
        outer = strip_trailing_folder_separators(name)
        inner = (Q(project_dir__startswith=outer + end) for end in FOLDER_SEPARATORS)
        return Session.objects.filter(reduce(or_, inner, Q(project_dir=outer))).exists()
    if kind == "model":
        reported = UsageDay.objects.exclude(model="").values_list("model", flat=True).distinct()
        plain_name = normalize_model_name(name)
        return any(normalize_model_name(model) == plain_name for model in reported) or (
            find_model_price(name, load_configured_model_prices()) is not None
        )
    return kind != "person" or User.objects.filter(username=name).exists()


def list_suggested_agent_names() -> set[str]:
    """Return the agents and agent programs that a field suggests."""
    return {
        *map(str, Agent.objects.order_by("pk").values_list("pk", flat=True)[:MOST_OFFERED]),
        *AGENT_TITLES,
    }


class NamedReachForm(forms.Form):
    """A form with the fields `reach` (a kind) and `name`. An unknown name must be confirmed."""

    is_meant = forms.BooleanField(required=False, label="Use this name anyway", widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """Refuse an unknown name unless `is_meant` is checked. That checkbox is then shown."""
        data = self.cleaned_data
        kind, name = data.get("reach", ""), data.get("name", "")
        if name and not data.get("is_meant") and not is_known_name(kind, name):
            self.fields["is_meant"].widget = forms.CheckboxInput()
            self.add_error("name", f"{UNKNOWN[kind].format(name)} Correct it, or confirm it below.")
        return data
