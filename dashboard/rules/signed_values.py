"""What a page carries along between pieces of long work: signed, so that it comes back as it was sent.

No process has to remember it: any worker goes on, before and after a restart. Where it leads to something
being saved, it is signed for one person and for an hour.
"""

from __future__ import annotations

from typing import Any

from django.core import signing

from coordinator.errors import UnprocessableRequest

LARGEST = 8_000_000  # characters
HOUR = 3600  # seconds


def sign_values_for_hidden_field(purpose: str, values: Any) -> str:
    """Return values (as JSON has them) as a text for a hidden field."""
    return signing.dumps(values, salt=f"signalbox.carried.{purpose}", compress=True)


def sign_values_for_person(person: int, purpose: str, values: Any) -> str:
    """Return values as a text that `unsign_values_for_person` takes from this person (by the key of their row)
    within an hour.
    """
    return sign_values_for_hidden_field(purpose, [person, values])


def unsign_values_for_person(person: int, purpose: str, text: str) -> Any:
    """Return the values of `sign_values_for_person`.

    Raises UnprocessableRequest for a text that is not from here, another's, or too old.
    """
    user_id, values = unsign_values_of_hidden_field(purpose, text, seconds=HOUR)
    if user_id != person:
        raise UnprocessableRequest("This page belongs to somebody else. Reload it.")
    return values


def unsign_values_of_hidden_field(purpose: str, text: str, *, seconds: int | None = None) -> Any:
    """Return the values of `sign_values_for_hidden_field`.

    Raises UnprocessableRequest for a text that is not from here, or older than `seconds`.
    """
    if len(text) > LARGEST:
        raise UnprocessableRequest("This page sent too much data. Reload it.")
    try:
        return signing.loads(text, salt=f"signalbox.carried.{purpose}", max_age=seconds)
    except signing.SignatureExpired:
        raise UnprocessableRequest(
            "This page is more than an hour old and may be out of date. Reload it."
        ) from None
    except signing.BadSignature:
        raise UnprocessableRequest("The saved state of this page cannot be used. Reload it.") from None
