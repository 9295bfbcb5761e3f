"""Lists of any length: a page's rows are read, the rest is counted only as far as anyone would page."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.utils.functional import cached_property

COUNTED = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts up to COUNTED rows. `capped` says that there are more: filters and search lead to those.

    Counting ten million events takes a database seconds, and nobody turns to page 200,000.
    """

    object_list: QuerySet  # type: ignore[type-arg]

    @cached_property
    def capped(self) -> bool:
        """Say whether there are more rows than can be paged through."""
        return self.row_count_up_to_cap > COUNTED

    @cached_property
    def count(self) -> int:
        return min(self.row_count_up_to_cap, COUNTED)

    @cached_property
    def row_count_up_to_cap(self) -> int:
        return self.object_list.order_by().values_list("pk", flat=True)[: COUNTED + 1].count()


class ScannedPaginator(CappedPaginator):
    """The same for filters that no index serves: the table is read once, for the number and for the page."""

    @cached_property
    def primary_keys_up_to_cap(self) -> list[Any]:
        return list(self.object_list.values_list("pk", flat=True)[: COUNTED + 1])

    @cached_property
    def row_count_up_to_cap(self) -> int:
        return len(self.primary_keys_up_to_cap)

    def page(self, number: int | str) -> Page[Any]:
        number = self.validate_number(number)
        keys = self.primary_keys_up_to_cap[: self.count][
            (number - 1) * self.per_page : number * self.per_page
        ]
        rows_by_key = self.object_list.model._default_manager.in_bulk(keys)
        return Page([rows_by_key[key] for key in keys if key in rows_by_key], number, self)
