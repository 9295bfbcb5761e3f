"""Signed values that a page sends back between pieces of long work.

No process stores them, so any worker can continue the work, also after a restart. Values that lead to a
change are signed for one person and are valid for an hour.
"""

from __future__ import annotations

from typing import Any

from django.core import signing

from coordinator.errors import UnprocessableRequest

LARGEST = 8_000_000  # characters
HOUR = 3600  # seconds


def sign_values_for_purpose(purpose: str, values: Any) -> str:
    """Return JSON-serializable values as a signed text for a hidden field.

    The text can be read only for the same `purpose`.
    """
    return signing.dumps(values, salt=f"signalbox.carried.{purpose}", compress=True)


def sign_values_for_person(person: int, purpose: str, values: Any) -> str:
    """Return values as a text that only this person can use within an hour, by `unsign_values_for_person`.

    `person` is the primary key of the user.
    """
    return sign_values_for_purpose(purpose, [person, values])


def unsign_values_for_person(person: int, purpose: str, text: str) -> Any:
    """Return the values that `sign_values_for_person` signed.

    Raises UnprocessableRequest if the text has no valid signature, is for another person, or is too old.
    """
    user_id, values = unsign_values_of_hidden_field(purpose, text, seconds=HOUR)
    if user_id != person:
        raise UnprocessableRequest("This page belongs to somebody else. Reload it.")
    return values


def unsign_values_of_hidden_field(purpose: str, text: str, *, seconds: int | None = None) -> Any:
    """Return the values that `sign_values_for_purpose` signed.

    Raises UnprocessableRequest if the text has no valid signature or is older than `seconds`.
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
