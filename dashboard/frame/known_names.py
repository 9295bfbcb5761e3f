"""Names of agents, hosts and people that a form takes: what is not known may be a slip, so the form asks once more."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User

from coordinator.models import Agent, Runner, Session
from coordinator.sessions.agent_programs import AGENT_TITLES

MOST_OFFERED = 200
UNKNOWN = {
    "agent": "No agent or program is called “{}”, and no session names it.",
    "host": "No session and no runner names the host “{}”.",
    "person": "Nobody has the user name “{}”.",
}


def is_known(kind: str, name: str) -> bool:
    """Say whether an agent (or program), host or person of that name is known; of other kinds, every name is."""
    if kind == "agent":
        return (
            name in AGENT_TITLES
            or Agent.objects.filter(pk=name).exists()
            or Session.objects.filter(agent_name=name).exists()
        )
    if kind == "host":
        hosts = (Session.objects.filter(hostname=name), Runner.objects.filter(hostname=name))
        return any(found.exists() for found in hosts)
    return kind != "person" or User.objects.filter(username=name).exists()


def agents_offered() -> set[str]:
    """Return the agents and programs that a field offers."""
    return {
        *map(str, Agent.objects.order_by("pk").values_list("pk", flat=True)[:MOST_OFFERED]),
        *AGENT_TITLES,
    }


class UnknownNameField(forms.BooleanField):
    """The question whether a name that nothing has is meant. It is asked only once such a name was sent."""

    def __init__(self) -> None:
        super().__init__(required=False, label="Use this name anyway", widget=forms.HiddenInput)


def ask_about_unknown(form: forms.Form, data: dict[str, Any], *, kind: str) -> None:
    """Refuse a name that is not known, and ask whether it is meant; nothing once the form's `is_meant` says so."""
    name = data.get("name", "")
    if not name or data.get("is_meant") or is_known(kind, name):
        return
    form.fields["is_meant"].widget = forms.CheckboxInput()
    form.add_error("name", f"{UNKNOWN[kind].format(name)} Correct it, or confirm it below.")
