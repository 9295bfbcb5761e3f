"""Base classes of all admin pages: permissions by role, fast lists, and changes only through actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode

from coordinator.errors import Conflict, SignalboxError
from coordinator.identity.actors import Actor, person_actor
from coordinator.identity.roles import ADMIN, has_role
from coordinator.models.fields import TimeField
from dashboard.admin import columns
from dashboard.admin.forms import StoredForm, build_text_or_json_form_field
from dashboard.lists.paginator import CappedPaginator

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin

# Django's date transforms (`__year`) treat texts and integers as dates, which is an error in SQL.
PLAIN_LOOKUPS = frozenset({"exact", "in", "gt", "gte", "lt", "lte", "range", "isnull"})


def actor_from_request(request: HttpRequest) -> Actor:
    """Return the signed-in person as an actor. The admin site admits only signed-in people."""
    assert request.user.is_authenticated
    return person_actor(request.user)


class TableChangeList(ChangeList):
    """A list that shows the total number of rows only if a search or filter is active."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not (self.query or self.has_active_filters) or getattr(self.paginator, "capped", False):
            self.full_result_count = self.result_count


class TableAdmin(ModelAdmin):
    """One table. The role decides who may see it, not Django's permissions; the audit log replaces LogEntry.

    `list_without` names columns that a list does not read (large texts). `never_read` names columns that are
    never shown, searched or filtered (secrets).
    """

    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    list_without: tuple[str, ...] = ()
    never_read: tuple[str, ...] = ()

    class Media:
        css = {"all": ["css/components.css", "css/admin-tables.css"]}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return TableChangeList

    def has_module_permission(self, request: HttpRequest) -> bool:
        return has_role(request.user, ADMIN)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return has_role(request.user, ADMIN)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return has_role(request.user, ADMIN)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return has_role(request.user, ADMIN)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return has_role(request.user, ADMIN)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        match = request.resolver_match
        is_list = match is not None and (match.url_name or "").endswith("_changelist")
        without = (*self.never_read, *(self.list_without if is_list else ()))
        queryset = super().get_queryset(request)
        return queryset.defer(*without) if without else queryset

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row, or None if there is none. An id too large for the column also gives None."""
        try:
            return super().get_object(request, object_id, from_field)
        except OverflowError:
            return None

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        name, _, rest = lookup.partition("__")
        if name in self.never_read:  # `?secret__startswith=` would reveal it letter by letter
            return False
        field = next((field for field in self.opts.fields if name in {field.name, field.attname}), None)
        if isinstance(field, TimeField) and rest and rest not in PLAIN_LOOKUPS:
            return False
        return bool(super().lookup_allowed(lookup, value, request))  # type: ignore[arg-type]

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Write nothing: the action writes the audit row."""

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Write nothing: the action writes the audit row."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Write nothing: the action writes the audit row."""

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> list[dict[str, dict[str, Any]]]:
        return []

    def audit_log_target_of_row(self, object_id: str) -> str:
        return object_id

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> Any:
        query = urlencode({"target_id": self.audit_log_target_of_row(unquote(object_id))})
        return HttpResponseRedirect(f"{reverse('admin:coordinator_auditlog_changelist')}?{query}")


class ViewOnlyAdmin(TableAdmin):
    """A read-only table: rows cannot be added, changed or deleted here."""

    actions = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def list_detail_page_columns(self) -> list[columns.Cell]:
        """Return the cells of a row's page: by default all columns that are not in `never_read`."""
        return columns.build_cells_for_model(self.model, without=self.never_read)

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return self.list_detail_page_columns()

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return self.list_detail_page_columns()


class ActionAdmin(TableAdmin):
    """A table that is changed through actions.

    `add_row`, `change_row_from_admin_form` and `delete_row` each call one. If an action raises
    SignalboxError, the form is shown again with the reason and everything that was typed.
    """

    form = StoredForm

    def add_row(self, form: Any, actor: Actor) -> Model:
        """Create a row from the form's values through an action, and return it."""
        raise NotImplementedError

    def change_row_from_admin_form(self, row: Any, form: Any, actor: Actor) -> None:
        """Change `row` through an action, with the version that the editor has seen."""
        raise NotImplementedError

    def delete_row(self, row: Any, actor: Actor) -> None:
        """Delete `row` through an action."""
        raise NotImplementedError

    def compute_row_version(self, row: Any) -> str:
        raise NotImplementedError

    def count_dependent_rows(self, rows: list[Any]) -> dict[str, int]:
        return {}

    def list_deletion_refusal_reasons(self, rows: list[Any], actor: Actor) -> list[str]:
        return []

    def formfield_for_dbfield(
        self, db_field: Any, request: HttpRequest | None, **kwargs: Any
    ) -> forms.Field | None:
        own = build_text_or_json_form_field(db_field)
        return own or super().formfield_for_dbfield(db_field, request, **kwargs)  # type: ignore[arg-type]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form's class, with the row's version and the reason if this request was refused."""
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        form.refusal = getattr(request, "signalbox_refusal", None)
        form.shown_version = self.compute_row_version(obj) if obj else ""
        return form

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = list(super().get_fieldsets(request, obj))
        return [*fieldsets, (None, {"fields": ["version"]})]

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show or save the form.

        If an action refuses, roll back everything and show the form with the reason.
        """
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except SignalboxError as refusal:
            request.signalbox_refusal = str(refusal.detail)  # type: ignore[attr-defined]
            return super().changeform_view(request, object_id, form_url, extra_context)

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        """Return the unsaved row.

        `form.save(commit=False)` would also add a `save_m2m` that must not be called.
        """
        return form.instance

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            self.change_row_from_admin_form(obj, form, actor_from_request(request))
        else:
            obj.pk = self.add_row(form, actor_from_request(request)).pk
        obj.refresh_from_db()

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save nothing: admins that show rows of other tables override this (rows.py)."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self.delete_row(obj, actor_from_request(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete all the rows in one transaction. If one is refused, none is deleted."""
        with transaction.atomic():
            for row in queryset:
                self.delete_row(row, actor_from_request(request))

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """Return what the confirmation page lists: links to the rows and counts of what is deleted with them.

        Raises Conflict if a row cannot be deleted.
        """
        rows = list(objs)
        if refused := self.list_deletion_refusal_reasons(rows, actor_from_request(request)):
            raise Conflict(" ".join(refused))
        names = [columns.link_to_admin_row(self.opts.label_lower.replace(".", "_"), row.pk) for row in rows]
        counts = {str(self.opts.verbose_name_plural): len(rows), **self.count_dependent_rows(rows)}
        return names, counts, set(), []

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> Any:
        return self.run_view_or_redirect_with_refusal(
            request,
            lambda: super(ActionAdmin, self).delete_view(request, object_id, extra_context),
            reverse(f"admin:{self.opts.label_lower.replace('.', '_')}_change", args=[object_id]),
        )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return self.run_view_or_redirect_with_refusal(
            request,
            lambda: super(ActionAdmin, self).changelist_view(request, extra_context),
            request.get_full_path(),
        )

    def run_view_or_redirect_with_refusal(
        self, request: HttpRequest, view: Callable[[], Any], back: str
    ) -> HttpResponse:
        """Return the view's response.

        If an action refuses, redirect to `back` with the reason as a message.
        """
        try:
            answer: HttpResponse = view()
        except SignalboxError as refusal:
            messages.error(request, str(refusal.detail))
            return HttpResponseRedirect(back)
        return answer


class DeleteOnlyAdmin(ActionAdmin):
    """A table whose rows can be deleted, but not added or changed."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return [(None, {"fields": self.get_readonly_fields(request, obj)})]

    def compute_row_version(self, row: Any) -> str:
        """Return an empty version for every row, because rows do not change."""
        return ""
