"""The forms by which a person starts a run or resumes a session."""

from __future__ import annotations

from typing import Any

from django import forms

from coordinator.models import Blueprint
from coordinator.runs.blueprints import brought_agents


class DemandsForm(forms.Form):
    """A prompt, and what the runner must be or have."""

    prompt = forms.CharField(
        widget=forms.Textarea({"rows": 6}), label="Prompt", help_text="What the agent should do."
    )
    hostname = forms.CharField(required=False, label="Host", help_text="Only a runner on this host.")
    executor_profile = forms.CharField(
        required=False, label="Profile", help_text="Only a runner with this profile."
    )
    tags = forms.CharField(
        required=False, label="Tags", help_text="Only a runner with all of these tags, separated by commas."
    )

    def demands(self) -> dict[str, Any] | None:
        """Return what is demanded, as actions.runs takes it, or None."""
        data = self.cleaned_data
        tags = [tag.strip() for tag in data["tags"].split(",") if tag.strip()]
        named = {name: data[name] for name in ("hostname", "executor_profile") if data[name]}
        return {**named, "tags": tags} if named or tags else None


class ResumeForm(DemandsForm):
    """Another prompt for a session that is there already."""


class StartForm(DemandsForm):
    agent_name = forms.ChoiceField(
        required=False, label="Blueprint", help_text="The blueprint of the agent. Its demands are added."
    )
    parameters = forms.JSONField(
        required=False,
        widget=forms.Textarea({"rows": 3}),
        label="Arguments",
        help_text='Of a procedural agent, instead of a prompt: JSON such as {"branch": "main"}.',
    )
    project_dir = forms.CharField(
        required=False,
        label="Directory",
        help_text="The folder on the runner's host in which the agent works.",
    )
    parent_session_id = forms.CharField(
        required=False, label="Parent session", help_text="The parent session, if the new one works for it."
    )

    field_order = (
        "agent_name",
        "prompt",
        "parameters",
        "project_dir",
        "hostname",
        "executor_profile",
        "tags",
        "parent_session_id",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["prompt"].required = False
        active = set(Blueprint.objects.filter(status="active").values_list("name", flat=True))
        names = sorted(active | {agent.name for agent in brought_agents()})
        field = self.fields["agent_name"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "No blueprint"), *((name, name) for name in names)]

    def clean_parameters(self) -> dict[str, Any] | None:
        """Return the arguments; nothing for an empty field."""
        given = self.cleaned_data["parameters"]
        if given is not None and not isinstance(given, dict):
            raise forms.ValidationError(
                'Arguments have names: write a JSON object such as {"branch": "main"}.'
            )
        return given

    def clean(self) -> dict[str, Any]:
        """Ask for a prompt, or for arguments instead."""
        data = super().clean() or {}
        prompt, parameters = data.get("prompt"), data.get("parameters")
        if not prompt and parameters is None and "parameters" not in self.errors:
            self.add_error(
                "prompt", "Say what the agent should do, or give a procedural agent its arguments."
            )
        elif prompt and parameters is not None:
            data["parameters"] = {"prompt": prompt, **parameters}
        return data
