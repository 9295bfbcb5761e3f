"""Types that the REST operations share: texts that every database can hold, errors, and the caller."""

from __future__ import annotations

from typing import Annotated, Any, cast

from django.http import HttpRequest
from ninja import Schema
from pydantic import AfterValidator, Field

from coordinator.identity.keys import KeyIdentity

LAST_ID = 2**63 - 1  # the highest id a database gives


def reject_nul_character(text: str) -> str:
    if "\x00" in text:
        raise ValueError("Text must not contain a NUL character")
    return text


def reject_slash(text: str) -> str:
    if "/" in text:
        raise ValueError("An id must not contain a slash, because it is part of paths")
    return text


Text = Annotated[str, AfterValidator(reject_nul_character)]
# An id that a client may choose; every other id is only looked up.
ChosenId = Annotated[Text, Field(min_length=1, max_length=200), AfterValidator(reject_slash)]


class Problem(Schema):
    """Why a request was refused: a sentence, or a list of faults with their places (422)."""

    detail: Any


class Ok(Schema):
    """Done."""

    ok: bool = True


def error_responses(*statuses: int) -> dict[int, type[Problem]]:
    """Return the error answers that an operation documents: these, and those of every operation."""
    return dict.fromkeys(sorted({401, 403, 422, 429, 503, *statuses}), Problem)


def get_request_key_identity(request: HttpRequest) -> KeyIdentity:
    """Return whose key came with the request; operations that ask for one always have it."""
    return cast(KeyIdentity, request.auth)  # type: ignore[attr-defined]
