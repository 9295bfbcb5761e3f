"""Keyset pagination by id, newest first. It skips and repeats no row while the list grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from django.http import QueryDict

M = TypeVar("M", bound=Model)
PAGE = 50


@dataclass(frozen=True, slots=True)
class KeysetPage(Generic[M]):
    """One page, and the query strings of the newer and older page (empty if there is none)."""

    rows: list[M]
    newer: str
    older: str

    @property
    def count_label(self) -> str:
        return f"{len(self.rows)} on this page"


def load_keyset_page(rows: QuerySet[M], query: QueryDict, size: int = PAGE) -> KeysetPage[M]:
    """Return the page of `?before=ID` or `?after=ID`; without either, the newest rows."""
    before, after = parse_row_id_or_none(query.get("before")), parse_row_id_or_none(query.get("after"))
    if after is not None:
        newer_rows = list(reversed(rows.filter(pk__gt=after).order_by("pk")[: size + 1]))
        has_newer, has_older = len(newer_rows) > size, True
        newer_rows = newer_rows[-size:]
    else:
        older_rows = rows if before is None else rows.filter(pk__lt=before)
        newer_rows = list(older_rows.order_by("-pk")[: size + 1])
        has_newer, has_older = before is not None, len(newer_rows) > size
        newer_rows = newer_rows[:size]
    newer = build_keyset_query_string(query, after=newer_rows[0].pk) if has_newer and newer_rows else ""
    older = build_keyset_query_string(query, before=newer_rows[-1].pk) if has_older and newer_rows else ""
    return KeysetPage(newer_rows, newer, older)


def parse_row_id_or_none(text: str | None) -> int | None:
    """Return the text as an id that fits into the database; None if it is not one."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def build_keyset_query_string(query: QueryDict, **keyset: Any) -> str:
    new_query = query.copy()
    new_query.pop("before", None)
    new_query.pop("after", None)
    for name, value in keyset.items():
        new_query[name] = str(value)
    return f"?{new_query.urlencode()}"
