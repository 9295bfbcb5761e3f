"""Pages of a list that grows while it is read: by id, newest first, so that no row is skipped or shown twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from django.http import QueryDict

M = TypeVar("M", bound=Model)
PAGE = 50


@dataclass(frozen=True, slots=True)
class KeysetPage(Generic[M]):
    """One page, and the query strings of its neighbours (empty where there is none)."""

    rows: list[M]
    newer: str
    older: str

    @property
    def count_label(self) -> str:
        return f"{len(self.rows)} on this page"


def load_keyset_page(rows: QuerySet[M], query: QueryDict, size: int = PAGE) -> KeysetPage[M]:
    """Return the page that `?before=ID` or `?after=ID` names; without either, the newest rows."""
    before, after = parse_row_id(query.get("before")), parse_row_id(query.get("after"))
    if after is not None:
        found = list(reversed(rows.filter(pk__gt=after).order_by("pk")[: size + 1]))
        has_newer, has_older = len(found) > size, True
        found = found[-size:]
    else:
        older_rows = rows if before is None else rows.filter(pk__lt=before)
        found = list(older_rows.order_by("-pk")[: size + 1])
        has_newer, has_older = before is not None, len(found) > size
        found = found[:size]
    newer = build_keyset_query(query, after=found[0].pk) if has_newer and found else ""
    older = build_keyset_query(query, before=found[-1].pk) if has_older and found else ""
    return KeysetPage(found, newer, older)


def parse_row_id(text: str | None) -> int | None:
    """Return an id that the database can compare with; None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def build_keyset_query(query: QueryDict, **place: Any) -> str:
    kept = query.copy()
    kept.pop("before", None)
    kept.pop("after", None)
    for name, value in place.items():
        kept[name] = str(value)
    return f"?{kept.urlencode()}"
