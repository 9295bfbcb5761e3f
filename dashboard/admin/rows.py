"""Rows of another table inside a row's page: a plugin's configuration and data, an agent's plugins.

These tables have composite keys and no foreign key, so Django's inlines cannot hold them. Each form carries
the key and the version of the row it shows (`stored`), so nothing depends on a row's place in the page: rows
that came, went or changed meanwhile are recognised. What nobody touched is never written.
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

PAGE = 100  # rows of one kind in one page
NEW = 2  # empty rows to add with; static/js/admin-rows.js makes more


class RowForm(forms.Form):
    """One row. `key` is asked for only where the row is new: another key would be another row."""

    stored = forms.CharField(required=False, strip=False, widget=forms.HiddenInput)
    key = TextColumnField()
    row: Any = None  # as it is in the database now, if it is

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stored_key, self.seen = parse_key_and_version_text(self["stored"].value())
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
        """The fields that a person fills in, beside the key and the box that deletes."""
        return [self[name] for name in self.fields if name not in {"stored", "key", "DELETE"}]


def build_key_and_version_text(key: str, version: str) -> str:
    """Return what `stored` holds: plain ASCII, because browsers rewrite line breaks."""
    return json.dumps([key, version])


def parse_key_and_version_text(text: Any) -> tuple[str | None, str | None]:
    try:
        key, version = json.loads(text or "null")
    except (ValueError, TypeError, RecursionError):
        return None, None
    return (key, version) if isinstance(key, str) and isinstance(version, str) else (None, None)


class RowFormSet(forms.BaseFormSet):  # type: ignore[type-arg]
    """The forms of one page of rows, and some for new ones."""

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
            for row in self.rows.query_owned_rows_by_key(self.owner, keys)
        }

    def submitted_row_key(self, number: int) -> str | None:
        return parse_key_and_version_text(self.data.get(f"{self.add_prefix(number)}-stored"))[0]

    def _construct_form(self, i: int, **kwargs: Any) -> Any:
        form: Any = super()._construct_form(i, **kwargs)  # type: ignore[misc]
        form.row = self.current_rows.get(form.stored_key) if form.is_stored else None
        self.rows.prepare_row_form(form)
        return form

    def save(self, actor: Actor) -> None:
        """Delete, change and add through the rows' actions; raises what they raise."""
        for form in self.deleted_forms:
            self.rows.delete_owned_row(self.owner, form, actor)
        kept_forms = [form for form in self.forms if form not in self.deleted_forms]
        for form in kept_forms:
            if form.is_stored and not self.rows.is_row_form_unchanged(form):
                self.rows.change_owned_row(self.owner, form, actor)
        for form in kept_forms:
            if not form.is_stored and form.has_changed():
                self.rows.add_owned_row(self.owner, form, actor)


@dataclass(frozen=True)
class RowPage:
    """One page of rows: those whose key begins with `beginning`, PAGE at a time."""

    prefix: str
    beginning: str
    number: int
    rows: list[Any]
    more: bool
    query: QueryDict

    @property
    def is_filtered(self) -> bool:
        """Say whether there are, or may be, rows that this page does not show."""
        return bool(self.more or self.beginning or self.number > 1)

    @property
    def previous_query(self) -> str:
        return self.build_row_page_query(self.number - 1) if self.number > 1 else ""

    @property
    def next_query(self) -> str:
        return self.build_row_page_query(self.number + 1) if self.more else ""

    @property
    def other_parameters(self) -> list[tuple[str, str]]:
        """The other parameters of the query, for the filter form."""
        own_parameters = {f"{self.prefix}-page", f"{self.prefix}-begins"}
        return [(name, str(value)) for name, value in self.query.dict().items() if name not in own_parameters]

    def build_row_page_query(self, number: int) -> str:
        query = self.query.copy()
        query[f"{self.prefix}-page"] = str(number)
        return query.urlencode()


class OwnedRows:
    """One kind of rows. Subclasses name the table and the actions."""

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

    def query_owned_rows_by_key(self, owner: Any, keys: list[str]) -> QuerySet[Any]:
        """Return those of the owner's rows that have one of `keys`."""
        return self.query_owned_rows(owner).filter(**{f"{self.key_name}__in": keys})

    def key_of_owned_row(self, row: Any) -> str:
        return str(getattr(row, self.key_name))

    def compute_row_version(self, row: Any) -> str:
        raise NotImplementedError

    def build_initial_values_of_row_form(self, row: Any) -> dict[str, Any]:
        raise NotImplementedError

    def prepare_row_form(self, form: Any) -> None:
        """Fit a form to its row, if need be."""

    def is_row_form_unchanged(self, form: Any) -> bool:
        """Say whether a stored row's form came back as it was shown."""
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
        """Return the forms: those that were sent, or those of the page of rows."""
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
    """A formset as Django's change form wants its inlines to be."""

    opts = SimpleNamespace(template="admin/_rows.html")
    has_add_permission = has_change_permission = has_delete_permission = has_view_permission = True

    def __init__(self, formset: RowFormSet) -> None:
        self.formset = formset
        self.media = formset.media

    def __iter__(self) -> Iterator[Any]:
        """Yield nothing: Django looks here for fields that fill themselves from others, and there are none."""
        return iter(())


class OwnedRowsAdmin(ActionAdmin):
    """A table whose rows' pages also hold rows of other tables, saved with them in one transaction."""

    row_kinds: tuple[OwnedRows, ...] = ()
    change_form_template = "admin/change_form_with_rows.html"

    class Media:
        js = ["js/admin-rows.js"]

    def _create_formsets(self, request: HttpRequest, obj: Any, change: bool) -> tuple[list[Any], list[Any]]:
        return ([rows.build_row_formset(request, obj) for rows in self.row_kinds] if change else []), []

    def get_inline_formsets(
        self, request: HttpRequest, formsets: Any, inline_instances: Any, obj: Any = None
    ) -> list[Any]:
        """Return the formsets in the shape in which Django's template includes them."""
        return [RowGroup(formset) for formset in formsets]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        for formset in formsets:
            formset.save(actor_from_request(request))

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> Any:
        """Lead to the new row's page, where its rows are added."""
        if "_addanother" not in request.POST:
            posted = request.POST.copy()
            posted["_continue"] = "1"
            request.POST = posted  # type: ignore[assignment]
        return super().response_add(request, obj, post_url_continue)
