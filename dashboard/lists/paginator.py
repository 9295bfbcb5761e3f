"""Pagination of large lists. Rows are counted only up to a limit."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.utils.functional import cached_property

COUNTED = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts at most COUNTED rows. If `capped` is true there are more, which filters and search can find.

    A database takes seconds to count ten million events, and nobody turns to page 200,000.
    """

    object_list: QuerySet  # type: ignore[type-arg]

    @cached_property
    def capped(self) -> bool:
        """Return whether there are more rows than COUNTED."""
        return self.row_count_up_to_cap > COUNTED

    @cached_property
    def count(self) -> int:
        return min(self.row_count_up_to_cap, COUNTED)

    @cached_property
    def row_count_up_to_cap(self) -> int:
        return self.object_list.order_by().values_list("pk", flat=True)[: COUNTED + 1].count()


class ScannedPaginator(CappedPaginator):
    """A paginator for filters without an index: one scan of the table gives both the count and the page."""

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
