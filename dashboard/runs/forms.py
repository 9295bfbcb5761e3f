"""The forms with which a person starts a run or resumes a session."""

from __future__ import annotations

from typing import Any

from django import forms

from coordinator.models import Blueprint, Session
from coordinator.models.runners import PROCEDURAL
from coordinator.runs.blueprints import find_procedural_runner_agent, load_procedural_runner_agents
from coordinator.runs.demands import PROPERTIES
from dashboard.frame.stored_choices import StoredChoiceField, set_choices_and_keep_saved_values
from dashboard.runs.offers import OnlineRunnerOffers


class RunDemandsForm(forms.Form):
    """A prompt, and the properties that a runner must have to take the run."""

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

    def runner_demands(self) -> dict[str, Any] | None:
        """Return the demands in the form that `coordinator.actions.runs` takes, or None if there are none."""
        data = self.cleaned_data
        tags = [tag.strip() for tag in data["tags"].split(",") if tag.strip()]
        named_demands = {name: data[name] for name in ("hostname", "executor_profile") if data[name]}
        named_demands = self.chosen_runner_demands() | named_demands
        if forked := Session.objects.filter(pk=data.get("fork_of") or None).first():
            # The agent's memory of the session is on the host where it ran.
            forked_demands = {"hostname": forked.hostname, "executor_profile": forked.executor_profile}
            named_demands = {name: value for name, value in forked_demands.items() if value} | named_demands
        return {**named_demands, "tags": tags} if named_demands or tags else None

    def chosen_runner_demands(self) -> dict[str, Any]:
        """Return the demands that only the chosen runner meets. This form has no choice of runner, so {}."""
        return {}


class ResumeSessionForm(RunDemandsForm):
    """A prompt for an existing session."""


class OptionalJSONField(forms.JSONField):
    """A JSON field that shows None as an empty field."""

    def prepare_value(self, value: Any) -> Any:
        """Return the text of the field."""
        return "" if value is None else super().prepare_value(value)


class StartRunForm(RunDemandsForm):
    """The form that starts a new session. `offered` is what online runners offer (dashboard.runs.offers)."""

    agent = forms.ChoiceField(
        required=False, label="Agent", help_text="The agents that online runners can drive."
    )
    runner = forms.ChoiceField(
        required=False,
        label="Runner",
        help_text="Several runners are online. Any of them that can takes the run.",
    )
    worktree = forms.BooleanField(
        required=False,
        label="In a separate work tree",
        help_text="The agent works on its own branch, so that runs in one repository do not interfere.",
    )
    fork_of = forms.CharField(required=False, widget=forms.HiddenInput)
    agent_name = StoredChoiceField(
        required=False,
        label="Blueprint",
        help_text="The blueprint of the agent. Its demands are added to the run's.",
    )
    parameters = OptionalJSONField(
        required=False,
        widget=forms.Textarea({"rows": 3}),
        label="Arguments",
        help_text='For a procedural agent, instead of a prompt: JSON such as {"branch": "main"}.',
    )
    project_dir = forms.CharField(
        required=False,
        label="Directory",
        help_text="The folder on the runner's host in which the agent works.",
    )
    parent_session_id = forms.CharField(
        required=False, label="Parent session", help_text="The session that the new one works for."
    )

    field_order = (
        "agent",
        "runner",
        "project_dir",
        "prompt",
        "worktree",
        "agent_name",
        "parameters",
        "hostname",
        "executor_profile",
        "tags",
        "parent_session_id",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.offered = OnlineRunnerOffers.load_online_offers()
        self._set_choices_or_remove_fields()
        # A procedural agent takes arguments instead of a prompt. `clean` requires one of the two.
        self.use_required_attribute = False
        self.fields["prompt"].required = not self.is_bound
        active = set(Blueprint.objects.filter(status="active").values_list("name", flat=True))
        names = sorted(active | {agent.name for agent in load_procedural_runner_agents()})
        set_choices_and_keep_saved_values(
            self, "agent_name", [("", "No blueprint"), *((name, name) for name in names)]
        )

    # Fields that are visible at once. The others are in a folded part of the form.
    FIRST = ("agent", "runner", "project_dir", "prompt", "worktree")

    def chosen_runner_demands(self) -> dict[str, Any]:
        """Return the demands that only the chosen runner meets, or {} if any runner may take the run."""
        runner = self.offered.by_id.get(self.cleaned_data.get("runner") or "")
        return {name: getattr(runner, name) for name in PROPERTIES} if runner is not None else {}

    def _set_choices_or_remove_fields(self) -> None:
        """Set the choices from what online runners offer, and remove the fields that would have no choice.

        A field that was filled in stays: what was chosen and is offered no more is refused, never ignored.
        """
        agents = self.fields["agent"]
        assert isinstance(agents, forms.ChoiceField)
        agents.choices = [("", "Any agent"), *self.offered.agents]
        if not self.offered.agents and not self.data.get("agent"):
            del self.fields["agent"]
        runner = self.fields["runner"]
        assert isinstance(runner, forms.ChoiceField)
        runner.choices = [("", "Any runner"), *self.offered.runner_choices]
        if self.offered.runner_count < 2 and not self.data.get("runner"):
            del self.fields["runner"]
        if not self.offered.worktrees and not self.data.get("worktree"):
            del self.fields["worktree"]
        self.fields["project_dir"].widget.attrs["list"] = "offered-directories"
        if self.offered.agents and not self.initial.get("agent"):
            self.initial["agent"] = self.offered.agents[0][0]
        if self.offered.directories and not self.initial.get("project_dir"):
            self.initial["project_dir"] = self.offered.directories[0]

    @property
    def unfolded_form_fields(self) -> list[forms.BoundField]:
        """The fields that are visible at once."""
        return [self[name] for name in self.FIRST if name in self.fields]

    @property
    def folded_form_fields(self) -> list[forms.BoundField]:
        """The fields in the folded part of the form."""
        return [field for field in self.visible_fields() if field.name not in self.FIRST]

    @property
    def has_folded_values_or_errors(self) -> bool:
        """Return whether a field in the folded part has a value or an error."""
        return any(field.errors or field.value() for field in self.folded_form_fields)

    def clean_worktree(self) -> bool:
        """Return whether the agent gets a work tree. Raises ValidationError if no online runner can create one."""
        is_chosen = bool(self.cleaned_data["worktree"])
        if is_chosen and not self.offered.worktrees:
            raise forms.ValidationError("No online runner can create a work tree now.")
        return is_chosen

    def clean_parameters(self) -> dict[str, Any] | None:
        """Return the arguments, or None for an empty field.

        Raises ValidationError if they are not a JSON object.
        """
        parameters = self.cleaned_data["parameters"]
        if parameters is not None and not isinstance(parameters, dict):
            raise forms.ValidationError(
                'Arguments have names: write a JSON object such as {"branch": "main"}.'
            )
        return parameters

    def clean(self) -> dict[str, Any]:
        """Require a prompt or arguments, and add the prompt to the parameters that a runner receives."""
        data = super().clean() or {}
        prompt, parameters = data.get("prompt"), data.get("parameters")
        if not prompt and parameters is None and "parameters" not in self.errors:
            self.add_error(
                "prompt", "Say what the agent should do, or give a procedural agent its arguments."
            )
        elif self._is_agent_script(data.get("agent_name")):
            if prompt and parameters is not None:
                data["parameters"] = {"prompt": prompt, **parameters}
            if data.get("worktree"):
                self.add_error("worktree", "A procedural agent works without a work tree of its own.")
        elif prompt:
            chosen = self.driven_run_parameters(data)
            data["parameters"] = (
                chosen if parameters is None else {"prompt": prompt, **(chosen or {}), **parameters}
            )
        return data

    @staticmethod
    def _is_agent_script(agent_name: str | None) -> bool:
        """Return whether it is a procedural agent, which takes its own arguments alone."""
        blueprint = Blueprint.objects.filter(pk=agent_name).first() if agent_name else None
        if blueprint is not None:
            return blueprint.type == PROCEDURAL
        return find_procedural_runner_agent(agent_name) is not None

    @staticmethod
    def driven_run_parameters(data: dict[str, Any]) -> dict[str, Any] | None:
        """Return the parameters for a runner that drives agents, or None if the prompt is enough."""
        run_parameters = {name: data[name] for name in ("agent", "fork_of", "worktree") if data.get(name)}
        return {"prompt": data["prompt"], **run_parameters} if run_parameters else None
