"""Agents and which plugins they use."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from coordinator.actions.agents import agents
from coordinator.chat.presence import agent_presence_status
from coordinator.identity.actors import Actor
from coordinator.lib.instants import EPOCH
from coordinator.models import Agent, AgentPlugin
from dashboard.admin import columns
from dashboard.admin.filters import build_period_filter_class
from dashboard.admin.forms import TextColumnField
from dashboard.admin.rows import OwnedRows, OwnedRowsAdmin, RowForm
from dashboard.templatetags.signalbox import status, time


class PluginAssignmentForm(RowForm):
    key = TextColumnField(label="Plugin id", widget=forms.TextInput)
    pos_x = forms.IntegerField(label="Position x", initial=0, min_value=-(2**63), max_value=2**63 - 1)
    pos_y = forms.IntegerField(label="Position y", initial=0, min_value=-(2**63), max_value=2**63 - 1)


class PluginAssignmentRows(OwnedRows):
    """The plugins that an agent uses, with the position of their cards on its board."""

    prefix = "plugins"
    title = "Plugins of this agent"
    form = PluginAssignmentForm
    model = AgentPlugin
    owner_name = "agent_id"
    key_name = "plugin_id"

    def compute_row_version(self, row: Any) -> str:
        return agents.plugin_assignment_version(row)

    def build_initial_values_of_row_form(self, row: Any) -> dict[str, Any]:
        return {"pos_x": row.pos_x, "pos_y": row.pos_y}

    def is_row_form_unchanged(self, form: Any) -> bool:
        typed = AgentPlugin(pos_x=form.cleaned_data["pos_x"], pos_y=form.cleaned_data["pos_y"])
        return bool(agents.plugin_assignment_version(typed) == form.seen)

    def add_owned_row(self, owner: Any, form: Any, actor: Actor) -> None:
        cleaned_data = form.cleaned_data
        agents.assign_plugin(
            owner.pk,
            cleaned_data["key"],
            pos_x=cleaned_data["pos_x"],
            pos_y=cleaned_data["pos_y"],
            actor=actor,
        )

    def change_owned_row(self, owner: Any, form: Any, actor: Actor) -> None:
        cleaned_data = form.cleaned_data
        agents.move_plugin_on_board(
            owner.pk,
            form.stored_key,
            pos_x=cleaned_data["pos_x"],
            pos_y=cleaned_data["pos_y"],
            actor=actor,
            seen_version=form.seen,
        )

    def delete_owned_row(self, owner: Any, form: Any, actor: Actor) -> None:
        agents.unassign_plugin(owner.pk, form.stored_key, actor=actor, seen_version=form.seen)


@admin.display(description="status")
def presence_cell(row: Agent) -> Any:
    """Return whether the agent is online, from its heartbeat. The column `status` is not used any more."""
    return status(agent_presence_status(row, timezone.now()))


@admin.display(description="last seen", ordering="last_seen")
def last_seen_cell(row: Agent) -> Any:
    """Return the time of the last heartbeat; the epoch (1970) means never."""
    return time(None if row.last_seen == EPOCH else row.last_seen, "never")


@admin.display(description="power switch")
def power_guard_cell(row: Agent) -> str:
    """Return whether a password protects the power switch. The hash itself is never shown."""
    return "Protected by a password" if row.power_password_hash else "Not protected"


POWER = columns.flag_column("enabled")
STATE_FIELDS = [
    presence_cell,
    last_seen_cell,
    power_guard_cell,
    columns.text_column("status", label="legacy status"),
]


@admin.register(Agent)
class AgentAdmin(OwnedRowsAdmin):
    row_kinds = (PluginAssignmentRows(),)
    list_display = (
        columns.code_column("id"),
        columns.text_column("name"),
        presence_cell,
        columns.flag_column("enabled", yes="active", no="inactive", label="power"),
        last_seen_cell,
        columns.code_column("default_engine_id", label="engine"),
        columns.text_column("description"),
    )
    list_filter = ("enabled", build_period_filter_class("last_seen"))
    search_fields = ("id", "name", "description", "default_engine_id")
    list_without = ("metadata",)
    ordering = ("name",)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return [(None, {"fields": ["id", *agents.EDITABLE, "version"]})]
        guarded = bool(obj.power_password_hash)
        fields = [POWER if guarded and name == "enabled" else name for name in agents.EDITABLE]
        return [
            (None, {"fields": [*fields, "version"]}),
            ("Current state", {"fields": STATE_FIELDS}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return []
        return [*STATE_FIELDS, POWER]

    def compute_row_version(self, row: Any) -> str:
        return agents.compute_agent_version(row)

    def add_row(self, form: Any, actor: Actor) -> Agent:
        return agents.create_agent(
            form.cleaned_data["id"], actor=actor, **form.changed_form_values(agents.EDITABLE)
        )

    def change_row_from_admin_form(self, row: Any, form: Any, actor: Actor) -> None:
        changes = form.changed_form_values(agents.EDITABLE)
        agents.update_agent(row.pk, changes, actor=actor, seen_version=form.cleaned_data["version"])

    def delete_row(self, row: Any, actor: Actor) -> None:
        agents.delete_agent_with_data(row.pk, actor=actor)

    def count_dependent_rows(self, rows: list[Any]) -> dict[str, int]:
        return agents.count_agent_dependents_by_kind([row.pk for row in rows])

    def list_deletion_refusal_reasons(self, rows: list[Any], actor: Actor) -> list[str]:
        return [agents.DEFAULT_REFUSED] if any(row.pk == agents.DEFAULT_AGENT for row in rows) else []
