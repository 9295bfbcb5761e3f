"""Limits of a request's body, by who sends it.

A view or an operation of the API declares one of the `BodyAllowance`s of this module with
`declare_request_body_allowance`; what it gets without one says coordinator/identity/declarations.py. The edge reads a
body no further than its sender may send.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings

KIB, MIB = 1024, 1024 * 1024
View = TypeVar("View", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """What one body may be. `sent` and `unpacked` (without Content-Encoding) are in bytes, `seconds` are for it
    to arrive whole, and `becomes` is the memory in bytes that it may take once decoded (lib.json_bounds). `values` is
    how many fields and items a body may hold that is looked at as a whole: no other thread runs meanwhile. 0: any."""

    sent: int
    seconds: float
    unpacked: int = 0
    becomes: int = 0
    values: int = 0


# Before sign-in: a form with a name and a password, or a machine's small JSON, of which the endpoint asks the key.
STRANGER = BodyLimit(8 * KIB, 10, 8 * KIB, MIB)
_JSON = BodyLimit(8 * MIB, 60, 8 * MIB, 64 * MIB)
_UPLOAD = BodyLimit(settings.DATA_UPLOAD_MAX_MEMORY_SIZE, 300, settings.DATA_UPLOAD_MAX_MEMORY_SIZE, 96 * MIB)

MOST_VALUES = 100_000  # at which one look at all of them takes some 50 ms


@dataclass(frozen=True, slots=True)
class BodyAllowance:
    """How much a signed-in person and a key may send. Who has proven nothing sends what a stranger may."""

    person: BodyLimit = STRANGER
    key: BodyLimit = STRANGER

    def body_limit_of_sender(self, sender: str) -> BodyLimit:
        """Return the limit of `sender`: `key:1`, `person:2` or an address."""
        kind = sender.partition(":")[0]
        return {"person": self.person, "key": self.key}.get(kind, STRANGER)


SMALL = BodyAllowance()  # for every sender, what an unknown one may send
FORM = BodyAllowance(person=BodyLimit(2 * MIB, 60))
UPLOAD = BodyAllowance(person=_UPLOAD)
JSON = BodyAllowance(person=_JSON, key=_JSON)
KEY_UPLOAD = BodyAllowance(key=_UPLOAD)
EVENTS = BodyAllowance(key=BodyLimit(20 * MIB, 60, 20 * MIB, 96 * MIB))
MESSAGE = BodyAllowance(key=BodyLimit(8 * MIB, 60, 8 * MIB, 64 * MIB, MOST_VALUES))
QUESTION = BodyAllowance(key=BodyLimit(2 * MIB, 30, 2 * MIB, 16 * MIB, MOST_VALUES))


def declare_request_body_allowance(allowance: BodyAllowance) -> Callable[[View], View]:
    """Declare how much a view, or an operation of the API, may be sent."""

    def decorate_view(view: View) -> View:
        view.body_allowance = allowance  # type: ignore[attr-defined] # read by identity/declarations.py
        return view

    return decorate_view
