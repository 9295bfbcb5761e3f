"""The statuses of a list's rows as filters with counts."""

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

MOST_STATUSES = 50  # other programs may store statuses of their own

# Steps from one status to the next and counts each up to a limit. GROUP BY would read every row of the index.
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
    """A status as a filter, with its number of rows (COUNTED + 1 for any number above COUNTED)."""

    word: str
    count: int
    on: bool
    query: str
    label: str

    @property
    def count_label(self) -> str:
        return f"{COUNTED:,}+" if self.count > COUNTED else f"{self.count:,}"


def load_status_facets(
    table: Literal["sessions", "runs"],
    known_statuses: Sequence[str],
    query: QueryDict,
    condition: str = "",
    parameters: Sequence[str] = (),
) -> list[StatusFacet]:
    """Return a filter for each status in the table, `known_statuses` first, with its count.

    `condition` is SQL that counted rows must meet, with `parameters` for its placeholders. A status with no such row is
    left out.
    """
    statement = NUMBERS.format(
        table=table,
        most=COUNTED + 1,
        statuses=MOST_STATUSES,
        condition=f" AND {condition}" if condition else "",
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
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
    """Return a filter for each status in `numbers`.

    Args:
        numbers: The number of rows of each status.
        query: The current query string.
        name: The name of the status in the query string.
        labels: Labels for statuses whose usual label would mislead.
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
    """Return the query string with `values` set, on the first page. An empty value removes its parameter."""
    new_query = query.copy()
    for name, value in {"page": "", **values}.items():
        new_query.pop(name, None)
        if value:
            new_query[name] = value
    return f"?{new_query.urlencode()}"


def query_pairs_of_named_fields(query: QueryDict, *names: str) -> list[tuple[str, str]]:
    """Return the parameters in `names` that the query has, for a form that filters the list further."""
    return [(name, str(query[name])) for name in names if query.get(name)]
