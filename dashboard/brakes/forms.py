"""The form with which a person applies a brake."""

from __future__ import annotations

from typing import Any

from django import forms

from coordinator.models import Session
from coordinator.models.brakes import BrakeReach
from dashboard.frame.known_names import (
    HIDDEN_WHILE_EMPTY,
    MOST_OFFERED,
    NamedReachForm,
    list_suggested_agent_names,
)


class BrakeForm(NamedReachForm):
    """What the brake stops (an agent, a host or everything), and why."""

    reach = forms.ChoiceField(
        choices=BrakeReach.choices, widget=forms.RadioSelect, initial=BrakeReach.EVERYTHING, label="Hold"
    )
    name = forms.CharField(
        required=False,
        max_length=255,
        label="Agent or host",
        help_text="The agent's id or program (such as codex), or the host's name.",
    )
    reason = forms.CharField(required=False, max_length=500, label="Reason", help_text="Held agents see it.")
    field_order = ("reach", "name", "is_meant", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].widget.attrs |= {"list": "brake-names", **HIDDEN_WHILE_EMPTY}

    def known_agents_and_hosts(self) -> list[str]:
        """Return the known agents and hosts, which the field suggests."""
        hosts = Session.objects.exclude(hostname=None).order_by("hostname").values_list("hostname", flat=True)
        return sorted(list_suggested_agent_names() | {str(host) for host in hosts.distinct()[:MOST_OFFERED]})
