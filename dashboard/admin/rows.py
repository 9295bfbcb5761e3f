"""Rows of another table on a row's page: a plugin's configuration and data, an agent's plugins.

These tables have composite keys and no foreign key, so Django's inlines cannot edit them. Each form carries
the key and the version of its row (`stored`). So the order of the rows does not matter, and rows that were
added, deleted or changed meanwhile are recognised. Rows that the person did not edit are not written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, QueryDict
from django.utils.functional import cached_property

from coordinator.identity.actors import Actor
from dashboard.admin.forms import TextColumnField
from dashboard.admin.options import ActionAdmin, actor_from_request

PAGE = 100  # rows of one kind on one page
NEW = 2  # empty forms for new rows; static/js/admin-rows.js adds more


class RowForm(forms.Form):
    """The form of one row. It has a field `key` only if the row is new, because a key cannot be changed."""

    stored = forms.CharField(required=False, strip=False, widget=forms.HiddenInput)
    key = TextColumnField()
    row: Any = None  # the row in the database now; None if it is new or deleted

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stored_key, self.seen = parse_key_version_or_none(self["stored"].value())
        if self.is_stored:
            del self.fields["key"]

    @property
    def is_stored(self) -> bool:
        return self.stored_key is not None

    def clean_stored(self) -> str:
        text: str = self.cleaned_data["stored"]
        if text and not self.is_stored:
            raise ValidationError("This row can no longer be read. Reload the page.")
        return text

    @property
    def input_fields(self) -> list[forms.BoundField]:
        """The fields that a person fills in, without the key and the checkbox that deletes the row."""
        return [self[name] for name in self.fields if name not in {"stored", "key", "DELETE"}]


def build_key_and_version_text(key: str, version: str) -> str:
    """Return the value of `stored`: ASCII JSON without line breaks, which browsers would change."""
    return json.dumps([key, version])


def parse_key_version_or_none(text: Any) -> tuple[str | None, str | None]:
    try:
        key, version = json.loads(text or "null")
    except (ValueError, TypeError, RecursionError):
        return None, None
    return (key, version) if isinstance(key, str) and isinstance(version, str) else (None, None)


class RowFormSet(forms.BaseFormSet):  # type: ignore[type-arg]
    """The forms of one page of rows, and empty forms for new rows."""

    rows: OwnedRows
    owner: Any

    def __init__(self, *args: Any, page: RowPage, **kwargs: Any) -> None:
        self.page = page
        super().__init__(*args, **kwargs)

    @cached_property
    def current_rows(self) -> dict[str, Any]:
        if not self.is_bound:
            return {self.rows.key_of_owned_row(row): row for row in self.page.rows}
        sent_keys = (self.submitted_row_key(number) for number in range(self.total_form_count()))
        keys = [key for key in sent_keys if key is not None]
        return {
            self.rows.key_of_owned_row(row): row
            for row in self.rows.query_owned_rows_by_keys(self.owner, keys)
        }

    def submitted_row_key(self, number: int) -> str | None:
        return parse_key_version_or_none(self.data.get(f"{self.add_prefix(number)}-stored"))[0]

    def _construct_form(self, i: int, **kwargs: Any) -> Any:
        form: Any = super()._construct_form(i, **kwargs)  # type: ignore[misc]
        form.row = self.current_rows.get(form.stored_key) if form.is_stored else None
        self.rows.prepare_row_form(form)
        return form

    def save(self, actor: Actor) -> None:
        """Delete, change and add rows through the actions of `rows`. Raises what they raise."""
        for form in self.deleted_forms:
            self.rows.delete_owned_row(self.owner, form, actor)
        remaining_forms = [form for form in self.forms if form not in self.deleted_forms]
        for form in remaining_forms:
            if form.is_stored and not self.rows.is_row_form_unchanged(form):
                self.rows.change_owned_row(self.owner, form, actor)
        for form in remaining_forms:
            if not form.is_stored and form.has_changed():
                self.rows.add_owned_row(self.owner, form, actor)


@dataclass(frozen=True)
class RowPage:
    """One page of rows: those whose key begins with `beginning`, PAGE rows a page."""

    prefix: str
    beginning: str
    number: int
    rows: list[Any]
    more: bool
    query: QueryDict

    @property
    def has_rows_not_shown(self) -> bool:
        """Return whether there may be rows that this page does not show."""
        return bool(self.more or self.beginning or self.number > 1)

    @property
    def previous_page_query(self) -> str:
        return self.build_row_page_query(self.number - 1) if self.number > 1 else ""

    @property
    def next_page_query(self) -> str:
        return self.build_row_page_query(self.number + 1) if self.more else ""

    @property
    def other_parameters(self) -> list[tuple[str, str]]:
        """The other query parameters, which the filter form sends along."""
        own_parameters = {f"{self.prefix}-page", f"{self.prefix}-begins"}
        return [(name, str(value)) for name, value in self.query.dict().items() if name not in own_parameters]

    def build_row_page_query(self, number: int) -> str:
        query = self.query.copy()
        query[f"{self.prefix}-page"] = str(number)
        return query.urlencode()


class OwnedRows:
    """One kind of rows on an owner's page. Subclasses define the table and the actions."""

    prefix = ""
    title = ""
    hint = ""
    key_name = ""
    owner_name = ""
    form: type[RowForm] = RowForm
    model: type[Model]

    def query_owned_rows(self, owner: Any) -> QuerySet[Any]:
        """Return the rows of `owner`, ordered by key."""
        return self.model._default_manager.filter(**{self.owner_name: owner.pk}).order_by(self.key_name)

    def query_owned_rows_by_keys(self, owner: Any, keys: list[str]) -> QuerySet[Any]:
        """Return the rows of `owner` whose key is in `keys`."""
        return self.query_owned_rows(owner).filter(**{f"{self.key_name}__in": keys})

    def key_of_owned_row(self, row: Any) -> str:
        return str(getattr(row, self.key_name))

    def compute_row_version(self, row: Any) -> str:
        raise NotImplementedError

    def build_initial_values_of_row_form(self, row: Any) -> dict[str, Any]:
        raise NotImplementedError

    def prepare_row_form(self, form: Any) -> None:
        """Adapt a form to its row. Does nothing by default."""

    def is_row_form_unchanged(self, form: Any) -> bool:
        """Return whether the form of a stored row has the values that were shown."""
        raise NotImplementedError

    def add_owned_row(self, owner: Any, form: Any, actor: Actor) -> None:
        raise NotImplementedError

    def change_owned_row(self, owner: Any, form: Any, actor: Actor) -> None:
        raise NotImplementedError

    def delete_owned_row(self, owner: Any, form: Any, actor: Actor) -> None:
        raise NotImplementedError

    def load_owned_row_page(self, request: HttpRequest, owner: Any) -> RowPage:
        beginning = request.GET.get(f"{self.prefix}-begins", "")
        page_number = request.GET.get(f"{self.prefix}-page", "1")
        number = max(int(page_number), 1) if page_number.isdecimal() and len(page_number) < 7 else 1
        owned_rows = self.query_owned_rows(owner)
        if beginning:
            owned_rows = owned_rows.filter(**{f"{self.key_name}__startswith": beginning})
        rows = list(owned_rows[(number - 1) * PAGE : number * PAGE + 1])
        return RowPage(self.prefix, beginning, number, rows[:PAGE], len(rows) > PAGE, request.GET)

    def build_row_formset(self, request: HttpRequest, owner: Any) -> RowFormSet:
        """Return the formset: bound to the posted data, or filled with one page of rows."""
        kind = forms.formset_factory(
            self.form,
            formset=RowFormSet,
            extra=NEW,
            can_delete=True,
            can_delete_extra=False,
            absolute_max=5 * PAGE,
            max_num=5 * PAGE,
        )
        kind.rows, kind.owner = self, owner  # type: ignore[attr-defined]
        page = self.load_owned_row_page(request, owner)
        if request.method == "POST":
            return kind(request.POST, prefix=self.prefix, page=page)  # type: ignore[return-value,call-arg]
        initial = [
            {
                "stored": build_key_and_version_text(
                    self.key_of_owned_row(row), self.compute_row_version(row)
                ),
                **self.build_initial_values_of_row_form(row),
            }
            for row in page.rows
        ]
        return kind(initial=initial, prefix=self.prefix, page=page)  # type: ignore[return-value,call-arg]


class RowGroup:
    """Wraps a formset in the interface that Django's change form expects of an inline."""

    opts = SimpleNamespace(template="admin/_rows.html")
    has_add_permission = has_change_permission = has_delete_permission = has_view_permission = True

    def __init__(self, formset: RowFormSet) -> None:
        self.formset = formset
        self.media = formset.media

    def __iter__(self) -> Iterator[Any]:
        """Yield nothing: Django iterates to find prepopulated fields, and there are none."""
        return iter(())


class OwnedRowsAdmin(ActionAdmin):
    """A table whose rows' pages also edit rows of other tables. Both are saved in one transaction."""

    row_kinds: tuple[OwnedRows, ...] = ()
    change_form_template = "admin/change_form_with_rows.html"

    class Media:
        js = ["js/admin-rows.js"]

    def _create_formsets(self, request: HttpRequest, obj: Any, change: bool) -> tuple[list[Any], list[Any]]:
        return ([rows.build_row_formset(request, obj) for rows in self.row_kinds] if change else []), []

    def get_inline_formsets(
        self, request: HttpRequest, formsets: Any, inline_instances: Any, obj: Any = None
    ) -> list[Any]:
        """Return the formsets, wrapped for Django's template."""
        return [RowGroup(formset) for formset in formsets]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        for formset in formsets:
            formset.save(actor_from_request(request))

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> Any:
        """Redirect to the new row's page, where its other rows can be added."""
        if "_addanother" not in request.POST:
            posted = request.POST.copy()
            posted["_continue"] = "1"
            request.POST = posted  # type: ignore[assignment]
        return super().response_add(request, obj, post_url_continue)
