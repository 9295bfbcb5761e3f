"""The forms by which a person starts a run or resumes a session."""

from __future__ import annotations

from typing import Any

from django import forms

from coordinator.models import Blueprint


class DemandsForm(forms.Form):
    """A prompt, and what the runner must be or have."""

    prompt = forms.CharField(
        widget=forms.Textarea({"rows": 6}), label="Prompt", help_text="What the agent is to do."
    )
    hostname = forms.CharField(required=False, label="Host", help_text="Only a runner on this host.")
    executor_profile = forms.CharField(
        required=False, label="Profile", help_text="Only a runner with this profile."
    )
    tags = forms.CharField(
        required=False, label="Tags", help_text="Only a runner with all of these; comma between them."
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
    """A new session: which agent, where, and for whom."""

    agent_name = forms.ChoiceField(
        required=False, label="Blueprint", help_text="Which agent; its demands are added."
    )
    project_dir = forms.CharField(
        required=False, label="Directory", help_text="Where the agent works, as its host names it."
    )
    parent_session_id = forms.CharField(
        required=False, label="Parent session", help_text="The session it works for."
    )

    field_order = (
        "agent_name",
        "prompt",
        "project_dir",
        "hostname",
        "executor_profile",
        "tags",
        "parent_session_id",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Blueprint.objects.filter(status="active").values_list("name", flat=True)
        field = self.fields["agent_name"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "No blueprint"), *((name, name) for name in names)]
