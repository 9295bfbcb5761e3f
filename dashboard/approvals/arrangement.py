"""How a person has the inbox arranged: grouped, sorted and narrowed, as the address says it.

An address that says nothing of it means what this person chose last, which their browser keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.http import HttpRequest, HttpResponse, QueryDict

GROUPS = (("same", "Same call"), ("session", "Session"), ("agent", "Agent"), ("tool", "Tool"))
SORTS = (
    ("fair", "Requesters take turns"),
    ("oldest", "Oldest first"),
    ("deadline", "Deadline first"),
    ("newest", "Newest first"),
)
TAKEN = (("me", "Assigned to me"), ("nobody", "Unassigned"))
COOKIE_AGE = 365 * 24 * 3600
LONGEST = 500  # characters of one choice
LONGEST_KEPT = 1_500


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The choices; an empty text narrows nothing. `marked`, `snoozed` and `all` are "1" or nothing.

    `all`: what others may decide, too. That is not kept.
    """

    group: str = "same"
    sort: str = "fair"
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
    def of(cls, query: QueryDict) -> Self:
        """Read a query; what is no choice is as if it were not there."""
        said = {one.name: query.get(one.name, "").replace("\0", "")[:LONGEST] for one in fields(cls)}
        return cls(
            **said
            | {
                "group": _one_of(GROUPS, said["group"], "same"),
                "sort": _one_of(SORTS, said["sort"], "fair"),
                "taken": _one_of(TAKEN, said["taken"], ""),
                "marked": "1" if said["marked"] else "",
                "snoozed": "1" if said["snoozed"] else "",
                "all": "1" if said["all"] else "",
            }
        )

    @property
    def narrows(self) -> bool:
        """Say whether some of what waits may be left out."""
        return any(
            getattr(self, one.name) for one in fields(self) if one.name not in {"group", "sort", "all"}
        )

    @property
    def own(self) -> str:
        """Return the query string of the same for what this person may decide alone."""
        return replace(self, all="").query

    @property
    def query(self) -> str:
        """Return the query string that means this arrangement, whatever was chosen before."""
        said = QueryDict(mutable=True)
        for one in fields(self):
            value = getattr(self, one.name)
            if value and (one.name == "group" or value != "fair"):
                said[one.name] = value
        return said.urlencode()


def _one_of(choices: tuple[tuple[str, str], ...], value: str, otherwise: str) -> str:
    return value if value in dict(choices) else otherwise


def arrangement_of(request: HttpRequest) -> Arrangement:
    """Return what the address says or, where it says nothing, what this person chose last."""
    if _says(request.GET):
        return Arrangement.of(request.GET)
    kept = Arrangement.of(QueryDict(request.COOKIES.get(_cookie_of(request.user), "")[:LONGEST_KEPT]))
    return replace(kept, all="1" if request.GET.get("all") else "")


def _says(query: QueryDict) -> bool:
    return any(one.name in query for one in fields(Arrangement) if one.name != "all")


def keep(arrangement: Arrangement, request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Have this person's browser keep the arrangement that the address names."""
    kept: dict[str, Any] = {"samesite": "Lax", "secure": request.is_secure(), "httponly": True}
    name, said = _cookie_of(request.user), arrangement.own[:LONGEST_KEPT]
    if _says(request.GET) and request.COOKIES.get(name) != said:
        response.set_cookie(name, said, COOKIE_AGE, path=request.path, **kept)
    return response


def _cookie_of(user: AbstractBaseUser | AnonymousUser) -> str:
    return f"signalbox_inbox_{user.pk}"
