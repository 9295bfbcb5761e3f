"""The forms with which people add and edit agents."""

from __future__ import annotations

import json
from typing import Any

from django import forms

from coordinator.actions.agents import agents
from coordinator.lib import json_bounds
from coordinator.lib.identifiers import slugify_name_as_agent_id
from coordinator.models import Agent, UnreadableText

CAPABILITIES = "Separated by commas, for example Reasoning, Memory."


class AgentForm(forms.Form):
    """The form of an agent: name, description, engine, required capabilities and metadata."""

    name = forms.CharField(max_length=200, help_text="The name that people see.")
    description = forms.CharField(required=False, widget=forms.Textarea({"rows": 3}))
    default_engine_id = forms.CharField(
        label="Engine",
        max_length=200,
        widget=forms.TextInput({"list": "engines"}),
        help_text="The plugin that runs it, for example <code>mind.deepseek</code>.",
    )
    required_capabilities = forms.CharField(required=False, label="Capabilities", help_text=CAPABILITIES)
    metadata = forms.CharField(
        required=False,
        widget=forms.Textarea({"rows": 4, "spellcheck": "false"}),
        help_text="Any JSON object. Signalbox only stores and shows it.",
    )
    version = forms.CharField(required=False, widget=forms.HiddenInput)

    @classmethod
    def create_form_from_agent(cls, agent: Agent, data: Any = None) -> AgentForm:
        """Return the form filled with the agent's values, or bound to `data` if that is given."""
        initial = {
            "name": agent.name,
            "description": agent.description or "",
            "default_engine_id": agent.default_engine_id,
            "required_capabilities": join_capabilities_with_commas(agent.required_capabilities),
            "metadata": format_agent_metadata(agent.metadata),
            "version": agents.compute_agent_version(agent),
        }
        return cls(data, initial=initial)

    def clean_required_capabilities(self) -> list[str]:
        """Return the capabilities, without duplicates."""
        capability_names = [word.strip() for word in self.cleaned_data["required_capabilities"].split(",")]
        return list(dict.fromkeys(word for word in capability_names if word))

    def clean_metadata(self) -> Any:
        text = self.cleaned_data["metadata"].strip()
        if not text:
            return {}
        try:
            value = json_bounds.load_bounded_json(text)
        except (ValueError, RecursionError) as problem:
            raise forms.ValidationError(f"This is not JSON: {problem}.") from None
        if not isinstance(value, dict):
            raise forms.ValidationError("Metadata must be a JSON object, with names and values in braces.")
        return value

    def changed_column_values(self) -> dict[str, Any]:
        """Return the values of the fields that the person changed, by column name."""
        columns = ("name", "description", "default_engine_id", "required_capabilities", "metadata")
        return {name: self.cleaned_data[name] for name in columns if name in self.changed_data}


class NewAgentForm(AgentForm):
    agent_id = forms.CharField(
        required=False,
        label="Id",
        max_length=200,
        help_text="If empty, it is derived from the name: Night watch becomes <code>agent.night_watch</code>.",
    )
    password = forms.CharField(
        required=False,
        label="Power switch password",
        max_length=1000,
        strip=False,
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
        help_text="If empty, everyone who may switch agents may switch this one.",
    )
    taken: Agent | None = None  # the agent that already has the wanted id
    field_order = ("name", "agent_id", "description", "default_engine_id")

    def clean(self) -> dict[str, Any] | None:
        """Derive the id from the name if the person typed none."""
        cleaned = super().clean() or {}
        if not cleaned.get("agent_id") and cleaned.get("name"):
            cleaned["agent_id"] = slugify_name_as_agent_id(cleaned["name"])
        return cleaned


class SwitchPasswordForm(forms.Form):
    password = forms.CharField(
        max_length=1000,
        strip=False,
        label="New password",
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
        help_text="Everyone who switches the agent on or off must enter it, including admins.",
    )


def join_capabilities_with_commas(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def format_agent_metadata(value: Any) -> str:
    if value is None or value == {}:
        return ""
    return (
        str(value) if isinstance(value, UnreadableText) else json.dumps(value, indent=2, ensure_ascii=False)
    )
