"""The statuses that a list's rows have, as filters with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from django.db import connection
from django.http import QueryDict

from dashboard.paginator import COUNTED

MOST = 50  # statuses; other programs may write words of their own

# From one value to the next, and each counted no further than a page says: GROUP BY would read every row's entry.
NUMBERS = """
WITH RECURSIVE found (word) AS (
    SELECT min(status) FROM {table}
    UNION ALL
    SELECT (SELECT min(status) FROM {table} WHERE status > found.word) FROM found WHERE found.word IS NOT NULL
)
SELECT word, (SELECT count(*) FROM (SELECT 1 FROM {table} WHERE status = found.word LIMIT {most}) AS counted)
FROM found WHERE word IS NOT NULL LIMIT {statuses}
"""


@dataclass(frozen=True, slots=True)
class StatusFacet:
    """A status as a filter, and how many rows have it (COUNTED + 1 for any number above COUNTED)."""

    word: str
    count: int
    on: bool
    query: str

    @property
    def says(self) -> str:
        """Return the number as it is shown."""
        return f"{COUNTED:,}+" if self.count > COUNTED else f"{self.count:,}"


def status_facets(
    table: Literal["sessions", "runs"], known: Sequence[str], query: QueryDict
) -> list[StatusFacet]:
    """Return the statuses that there are, the `known` ones in their order, each with its number."""
    with connection.cursor() as cursor:
        cursor.execute(NUMBERS.format(table=table, most=COUNTED + 1, statuses=MOST))
        numbers: dict[str, int] = dict(cursor.fetchall())
    words = [word for word in known if word in numbers] + sorted(numbers.keys() - set(known))
    chosen = query.get("status", "")
    return [
        StatusFacet(
            word, numbers[word], word == chosen, changed(query, status="" if word == chosen else word)
        )
        for word in words
    ]


def changed(query: QueryDict, **values: str) -> str:
    """Return the query string with `values` set (an empty one is left out), back on the first page."""
    kept = query.copy()
    for name, value in {"page": "", **values}.items():
        kept.pop(name, None)
        if value:
            kept[name] = value
    return f"?{kept.urlencode()}"
