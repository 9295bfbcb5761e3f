"""Plugins: switch, permissions, configuration and stored values on one page; runtime plugins, read-only."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode

from coordinator.actions.plugins import plugin_permissions, plugin_values, plugins
from coordinator.identity.actors import Actor
from coordinator.models import PluginConfig, PluginSetting, RuntimePlugin, UnreadableText
from coordinator.models.plugins import PluginPermission
from coordinator.secrets import MASK, is_secret_key_or_url_password, mask_value_of_secret_key
from dashboard.admin import columns
from dashboard.admin.filters import build_period_filter_class
from dashboard.admin.forms import PermissionsField, StoredForm, TextColumnField, normalize_line_breaks
from dashboard.admin.options import ViewOnlyAdmin
from dashboard.admin.rows import OwnedRows, OwnedRowsAdmin, RowForm
from dashboard.templatetags.signalbox import NOTHING, pretty_json

LONGEST = 20_000  # characters of a value that can be edited in a page


class PluginForm(StoredForm):
    """The form of a plugin's switch and permissions.

    If the stored permissions are not a list, they are shown, and replaced only if the person asks for it.
    """

    plugin_id = TextColumnField(label="Plugin id", help_text="For example mind.deepseek")
    is_active = forms.BooleanField(label="Active", required=False, initial=True)
    allowed_permissions = PermissionsField(label="Allowed permissions")
    replace_unreadable = forms.BooleanField(
        label="Replace the unreadable value with the permissions ticked above", required=False
    )
    reason = forms.CharField(
        label="Reason", required=False, max_length=500, help_text="Recorded in the audit log."
    )

    class Meta:
        model = PluginSetting
        fields = ("plugin_id", "is_active", "allowed_permissions")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance._state.adding:
            self.fields.pop("plugin_id", None)  # the id cannot be changed: it identifies the plugin
        stored = self.instance.allowed_permissions
        self.is_unreadable = stored is not None and not isinstance(stored, list)
        if not self.is_unreadable:
            self.fields.pop("replace_unreadable", None)

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if (
            self.is_unreadable
            and self.cleaned_data.get("allowed_permissions")
            and not self.cleaned_data.get("replace_unreadable")
        ):
            self.add_error(
                "allowed_permissions",
                "The stored value cannot be read. Tick the box below to replace it, or leave these empty.",
            )
        return cleaned


class PluginValueForm(RowForm):
    """The form of one key and its value. A secret is shown masked; sending the mask back keeps the secret."""

    key = TextColumnField(label="Name", widget=forms.TextInput)
    value = TextColumnField(label="Value", required=False)
    note = ""


class PluginValueRows(OwnedRows):
    """Keys and values of a plugin: its configuration, or the data that it stores."""

    form = PluginValueForm
    owner_name = "plugin_id"

    def __init__(
        self, values: plugin_values.PluginValueTable[Any], *, prefix: str, title: str, hint: str = ""
    ) -> None:
        self.values = values
        self.model, self.key_name, self.value_name = values.model, values.key_name, values.value_name
        self.prefix, self.title, self.hint = prefix, title, hint

    def unmasked_plugin_value_of_row(self, row: Any) -> str | None:
        value: str | None = getattr(row, self.value_name)
        return value

    def compute_row_version(self, row: Any) -> str:
        return plugin_values.compute_plugin_value_version(self.unmasked_plugin_value_of_row(row))

    def build_initial_values_of_row_form(self, row: Any) -> dict[str, Any]:
        value = self.unmasked_plugin_value_of_row(row)
        shown_value = mask_value_of_secret_key(self.key_of_owned_row(row), value)
        return {"value": shown_value if shown_value is None or len(shown_value) <= LONGEST else ""}

    def prepare_row_form(self, form: Any) -> None:
        if not form.is_stored:
            return
        value = self.unmasked_plugin_value_of_row(form.row) if form.row else None
        if value is not None and is_secret_key_or_url_password(form.stored_key, value):
            form.fields["value"].widget = forms.TextInput({"autocomplete": "off", "spellcheck": "false"})
            form.note = f"A secret: {MASK} keeps what is stored."
        elif value is not None and len(value) > LONGEST:
            del form.fields["value"]
            form.note = f"{len(value):,} characters, too many to edit here."

    def is_row_form_unchanged(self, form: Any) -> bool:
        if "value" not in form.fields:
            return True
        typed = form.cleaned_data["value"]
        now = self.unmasked_plugin_value_of_row(form.row) if form.row else None
        if typed == MASK and is_secret_key_or_url_password(form.stored_key, now):
            return True
        crlf = typed.replace("\n", "\r\n")
        unchanged_values = [typed, crlf] if typed else [typed, None]
        if form.seen in {plugin_values.compute_plugin_value_version(value) for value in unchanged_values}:
            return True
        # A value that mixes both kinds of line breaks: no typed form of it has its version.
        unchanged = form.row is not None and form.seen == self.compute_row_version(form.row)
        return unchanged and normalize_line_breaks(now or "") == typed

    def add_owned_row(self, owner: Any, form: Any, actor: Actor) -> None:
        self.values.add_plugin_value(
            owner.pk, form.cleaned_data["key"], form.cleaned_data["value"], actor=actor
        )

    def change_owned_row(self, owner: Any, form: Any, actor: Actor) -> None:
        self.values.change_plugin_value(
            owner.pk, form.stored_key, form.cleaned_data["value"], actor=actor, seen_version=form.seen
        )

    def delete_owned_row(self, owner: Any, form: Any, actor: Actor) -> None:
        self.values.delete_plugin_value(owner.pk, form.stored_key, actor=actor, seen_version=form.seen)


CONFIG_ROWS = PluginValueRows(plugin_values.CONFIG, prefix="configs", title="Configuration")
DATA_ROWS = PluginValueRows(
    plugin_values.DATA,
    prefix="data",
    title="Stored values",
    hint="Values that the plugin stores itself. It may overwrite them at any time.",
)


@admin.display(description="allowed permissions")
def permissions_cell(row: PluginSetting) -> Any:
    """Return the names of the permissions; the column as JSON if it is not a list."""
    allowed_permissions = row.allowed_permissions
    return (
        ", ".join(map(str, allowed_permissions))
        if isinstance(allowed_permissions, list)
        else columns.json_column("allowed_permissions")(row)
    )


@admin.display(description="Other stored permissions")
def unrecognized_permissions_cell(row: PluginSetting) -> Any:
    allowed_permissions = row.allowed_permissions
    if allowed_permissions is None:
        return NOTHING
    if not isinstance(allowed_permissions, list):
        foreign_rows = (
            str(allowed_permissions)
            if isinstance(allowed_permissions, UnreadableText)
            else pretty_json(allowed_permissions)
        )
        return format_html('Not a list of permissions: <pre class="code">{}</pre>', foreign_rows)
    foreign = [name for name in allowed_permissions if name not in PluginPermission.values]
    return format_html_join(", ", "<code>{}</code>", ((pretty_json(name),) for name in foreign)) or NOTHING


@admin.register(PluginSetting)
class PluginAdmin(OwnedRowsAdmin):
    form = PluginForm
    row_kinds = (CONFIG_ROWS, DATA_ROWS)
    list_display = (
        columns.code_column("plugin_id"),
        columns.flag_column("is_active", label="state"),
        permissions_cell,
    )
    list_filter = ("is_active",)
    search_fields = ("plugin_id", "allowed_permissions")
    ordering = ("plugin_id",)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            fields: list[Any] = ["plugin_id", "is_active", "allowed_permissions"]
        else:
            fields = ["is_active", "allowed_permissions", unrecognized_permissions_cell]
            stored = obj.allowed_permissions
            if stored is not None and not isinstance(stored, list):
                fields.append("replace_unreadable")
            fields.append("reason")
        return [(None, {"fields": [*fields, "version"]})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [unrecognized_permissions_cell] if obj else []

    def compute_row_version(self, row: Any) -> str:
        return plugins.compute_plugin_version(row)

    def add_row(self, form: Any, actor: Actor) -> PluginSetting:
        cleaned_data = form.cleaned_data
        return plugins.create_plugin(
            cleaned_data["plugin_id"],
            is_active=cleaned_data["is_active"],
            permissions=cleaned_data["allowed_permissions"],
            actor=actor,
        )

    def change_row_from_admin_form(self, row: Any, form: Any, actor: Actor) -> None:
        cleaned_data, reason = form.cleaned_data, form.cleaned_data["reason"] or None
        plugins.lock_plugin(row.pk, cleaned_data["version"])
        plugins.enable_or_disable_plugin(row.pk, cleaned_data["is_active"], actor=actor, reason=reason)
        if cleaned_data.get("replace_unreadable"):
            plugins.replace_broken_permissions(
                row.pk, cleaned_data["allowed_permissions"], actor=actor, reason=reason
            )
        elif not form.is_unreadable:
            self.change_plugin_permissions_to_ticked(
                row, set(cleaned_data["allowed_permissions"]), actor, reason
            )

    def change_plugin_permissions_to_ticked(
        self, row: Any, ticked: set[str], actor: Actor, reason: str | None
    ) -> None:
        current_permissions = {name for name in row.allowed_permissions or [] if isinstance(name, str)}
        for name in PluginPermission.values:
            if name in ticked - current_permissions:
                plugin_permissions.add_plugin_permission(row.pk, name, actor=actor, reason=reason)
            elif name in current_permissions - ticked:
                plugin_permissions.remove_plugin_permission(row.pk, name, actor=actor, reason=reason)

    def delete_row(self, row: Any, actor: Actor) -> None:
        plugins.delete_plugin(row.pk, actor=actor)

    def count_dependent_rows(self, rows: list[Any]) -> dict[str, int]:
        return plugins.count_plugin_dependents_by_kind([row.pk for row in rows])

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"plugin_id": request.GET.get("plugin_id", "")}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if request.method == "GET":
            self.warn_about_unregistered_plugins(request)
        return super().changelist_view(request, extra_context)

    def warn_about_unregistered_plugins(self, request: HttpRequest) -> None:
        """Warn about plugins that have a configuration but no row here, with links to add them."""
        plugin_setting_rows = PluginSetting.objects.values("plugin_id")
        strays = PluginConfig.objects.exclude(plugin_id__in=plugin_setting_rows).values_list(
            "plugin_id", flat=True
        )
        stray_plugins = list(strays.distinct().order_by("plugin_id")[:10])
        if stray_plugins:
            add = reverse("admin:coordinator_pluginsetting_add")
            links = (
                (f"{add}?{urlencode({'plugin_id': plugin_id})}", plugin_id) for plugin_id in stray_plugins
            )
            names = format_html_join(", ", '<a href="{}">{}</a>', links)
            messages.warning(
                request,
                format_html(
                    "These plugins have a configuration but are not registered: {}. Add them to edit it.",
                    names,
                ),
            )


@admin.register(RuntimePlugin)
class RuntimePluginAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code_column("plugin_id"),
        columns.flag_column("is_active", label="state"),
        columns.code_column("script_name"),
        columns.text_column("description"),
        columns.text_column("created_by"),
        columns.time_column("created_at"),
        columns.build_cell_for_attribute("generation_number", str, label="generation"),
    )
    list_filter = ("is_active", build_period_filter_class("created_at"))
    list_without = ("code_content",)
    search_fields = ("plugin_id", "script_name", "description", "created_by")
    ordering = ("-created_at",)
