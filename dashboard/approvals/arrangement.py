"""How a person has arranged the inbox: grouping, sorting and filters, from the query string.

A query string without these parameters means the person's last arrangement, which is stored in a cookie.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.http import HttpRequest, HttpResponse, QueryDict

GROUPS = (("same", "Same call"), ("session", "Session"), ("agent", "Agent"), ("tool", "Tool"))
SORTS = (
    ("oldest", "Longest waiting"),
    ("fair", "Requesters take turns"),
    ("deadline", "Deadline first"),
    ("newest", "Newest first"),
)
TAKEN = (("me", "Assigned to me"), ("nobody", "Unassigned"))
COOKIE_AGE = 365 * 24 * 3600
LONGEST = 500  # characters of one choice
MAX_COOKIE_CHARACTERS = 1_500


@dataclass(frozen=True, slots=True)
class InboxArrangement:
    """The arrangement. An empty text does not filter; `marked`, `snoozed` and `all` are "1" or empty.

    `all` includes requests that the person may not decide. It is not stored in the cookie.
    """

    group: str = "same"
    sort: str = "oldest"
    tool: str = ""
    agent: str = ""
    session: str = ""
    type: str = ""
    host: str = ""
    taken: str = ""
    marked: str = ""
    snoozed: str = ""
    all: str = ""

    @classmethod
    def from_query(cls, query: QueryDict) -> Self:
        """Return the arrangement in a query. Unknown values are replaced by the defaults."""
        values_by_name = {
            field.name: query.get(field.name, "").replace("\0", "")[:LONGEST] for field in fields(cls)
        }
        return cls(
            **values_by_name
            | {
                "group": choose_or_default(GROUPS, values_by_name["group"], "same"),
                "sort": choose_or_default(SORTS, values_by_name["sort"], "oldest"),
                "taken": choose_or_default(TAKEN, values_by_name["taken"], ""),
                "marked": "1" if values_by_name["marked"] else "",
                "snoozed": "1" if values_by_name["snoozed"] else "",
                "all": "1" if values_by_name["all"] else "",
            }
        )

    @property
    def has_filters(self) -> bool:
        """Return whether the arrangement may hide some waiting requests."""
        return any(
            getattr(self, field.name) for field in fields(self) if field.name not in {"group", "sort", "all"}
        )

    @property
    def query_string_for_decidable_requests(self) -> str:
        """Return the query string of this arrangement, limited to requests that the person may decide."""
        return replace(self, all="").query_string

    @property
    def query_string(self) -> str:
        """Return the query string of this arrangement. It overrides an arrangement in the cookie."""
        query = QueryDict(mutable=True)
        for field in fields(self):
            value = getattr(self, field.name)
            if value and (field.name == "group" or value != "oldest"):
                query[field.name] = value
        return query.urlencode()


def choose_or_default(choices: tuple[tuple[str, str], ...], value: str, otherwise: str) -> str:
    return value if value in dict(choices) else otherwise


def arrangement_from_query_or_cookie(request: HttpRequest) -> InboxArrangement:
    """Return the arrangement in the query string or, without one, that in the person's cookie."""
    if has_inbox_arrangement_parameters(request.GET):
        return InboxArrangement.from_query(request.GET)
    arrangement = InboxArrangement.from_query(
        QueryDict(request.COOKIES.get(inbox_cookie_name(request.user), "")[:MAX_COOKIE_CHARACTERS])
    )
    return replace(arrangement, all="1" if request.GET.get("all") else "")


def has_inbox_arrangement_parameters(query: QueryDict) -> bool:
    return any(field.name in query for field in fields(InboxArrangement) if field.name != "all")


def save_arrangement_cookie_if_chosen(
    arrangement: InboxArrangement, request: HttpRequest, response: HttpResponse
) -> HttpResponse:
    """Save the arrangement in the person's cookie if it came from the query string. Return the response."""
    cookie_options: dict[str, Any] = {"samesite": "Lax", "secure": request.is_secure(), "httponly": True}
    name, cookie_value = (
        inbox_cookie_name(request.user),
        arrangement.query_string_for_decidable_requests[:MAX_COOKIE_CHARACTERS],
    )
    if has_inbox_arrangement_parameters(request.GET) and request.COOKIES.get(name) != cookie_value:
        response.set_cookie(name, cookie_value, COOKIE_AGE, path=request.path, **cookie_options)
    return response


def inbox_cookie_name(user: AbstractBaseUser | AnonymousUser) -> str:
    return f"signalbox_inbox_{user.pk}"
