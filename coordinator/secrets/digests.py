"""Digests of values that may hold secrets: whole, and keyed, so that nobody who reads one can try out guesses.

The key follows from SECRET_KEY, which is not in the database. Equal values have equal digests within one
installation; after the secret key has changed, none of the old digests is met again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from functools import lru_cache
from typing import Any

from django.conf import settings


def keyed_digest(purpose: str, *parts: Any) -> str:
    """Return 64 hexadecimal digits, equal for two calls exactly where purpose and parts are equal as JSON.

    What decides is compared by this, made of the unmasked values; never compare masked text.
    """
    text = json.dumps([purpose, *parts], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return keyed_hmac(text.encode()).hex()


def keyed_hmac(raw: bytes) -> bytes:
    """Return the HMAC-SHA256 of `raw` under this installation's key: 32 bytes."""
    return hmac.digest(derive_digest_key(settings.SECRET_KEY), raw, "sha256")


@lru_cache(maxsize=4)
def derive_digest_key(secret_key: str) -> bytes:
    return hashlib.blake2b(secret_key.encode(), person=b"sbx-masking").digest()
