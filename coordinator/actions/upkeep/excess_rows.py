"""Pruning of tables in which only the newest rows of each group are kept."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet


def delete_excess_rows(newest_first: QuerySet[Any], max_rows: int, *, at_once: int | None = None) -> None:
    """Delete all but the first `max_rows`; `at_once` limits how many one call deletes, so that none takes long."""
    end = None if at_once is None else max_rows + at_once
    if excess := list(newest_first.values_list("pk", flat=True)[max_rows:end]):
        newest_first.model._default_manager.filter(pk__in=excess).delete()
