"""The statuses that a list's rows have, as filters with numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from django.db import connection
from django.http import QueryDict
from django.utils.text import capfirst

from dashboard.lists.paginator import COUNTED
from dashboard.text.states import find_status_style

MOST_STATUSES = 50  # other programs may write words of their own

# From one value to the next, and each counted no further than a page says: GROUP BY would read every row's entry.
NUMBERS = """
WITH RECURSIVE found (word) AS (
    SELECT min(status) FROM {table}
    UNION ALL
    SELECT (SELECT min(status) FROM {table} WHERE status > found.word) FROM found WHERE found.word IS NOT NULL
)
SELECT CAST(word AS TEXT),
    (SELECT count(*) FROM (SELECT 1 FROM {table} WHERE status = found.word{condition} LIMIT {most}) AS counted)
FROM found WHERE word IS NOT NULL LIMIT {statuses}
"""


@dataclass(frozen=True, slots=True)
class StatusFacet:
    """A status as a filter, and how many rows have it (COUNTED + 1 for any number above COUNTED)."""

    word: str
    count: int
    on: bool
    query: str
    label: str

    @property
    def count_label(self) -> str:
        return f"{COUNTED:,}+" if self.count > COUNTED else f"{self.count:,}"


def load_status_facets(
    table: Literal["sessions", "runs"], known_statuses: Sequence[str], query: QueryDict, condition: str = ""
) -> list[StatusFacet]:
    """Return the statuses that there are, the `known_statuses` ones in their order, each with its number.

    `condition` is SQL that rows which are counted must meet; a status of which none does is left out.
    """
    statement = NUMBERS.format(
        table=table,
        most=COUNTED + 1,
        statuses=MOST_STATUSES,
        condition=f" AND {condition}" if condition else "",
    )
    with connection.cursor() as cursor:
        cursor.execute(statement)
        numbers: dict[str, int] = {word: number for word, number in cursor.fetchall() if number}
    status_words = [word for word in known_statuses if word in numbers] + sorted(
        numbers.keys() - set(known_statuses)
    )
    return build_status_facets({word: numbers[word] for word in status_words}, query)


def build_status_facets(
    numbers: Mapping[str, int],
    query: QueryDict,
    name: str = "status",
    labels: Mapping[str, str] = MappingProxyType({}),
) -> list[StatusFacet]:
    """Return filters for the statuses with these numbers; `name` is the query's word for them.

    `labels` are for words that would mislead as they are.
    """
    chosen = query.get(name, "")
    return [
        StatusFacet(
            word,
            number,
            on=word == chosen,
            query=query_string_with_changed_values(query, **{name: "" if word == chosen else word}),
            label=labels.get(word, capfirst(find_status_style(word).label)),
        )
        for word, number in numbers.items()
    ]


def query_string_with_changed_values(query: QueryDict, **values: str) -> str:
    """Return the query string with `values` set (an empty one is left out), back on the first page."""
    new_query = query.copy()
    for name, value in {"page": "", **values}.items():
        new_query.pop(name, None)
        if value:
            new_query[name] = value
    return f"?{new_query.urlencode()}"


def query_pairs_of_named_fields(query: QueryDict, *names: str) -> list[tuple[str, str]]:
    """Return what the query says of `names`, for a form that narrows the list further."""
    return [(name, str(query[name])) for name in names if query.get(name)]
