"""Sealing what must be kept or handed out and read by nobody else: encrypted and signed, for one purpose each.

The keys follow from SECRET_KEY, which is not in the database, so that every worker and a restarted server opens what
another one sealed. After the secret key has changed nothing sealed before opens any more.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

NONCE = 12  # bytes


def seal_for_purpose(purpose: str, text: bytes) -> bytes:
    """Return `text` sealed, as URL-safe base64. Only `unseal_for_purpose` with the same purpose opens it."""
    nonce = os.urandom(NONCE)
    return base64.urlsafe_b64encode(
        nonce + sealing_cipher(settings.SECRET_KEY, purpose).encrypt(nonce, text, None)
    )


def unseal_for_purpose(purpose: str, sealed: bytes) -> bytes:
    """Return what was sealed. Raises ValueError for anything that was not sealed here for this purpose."""
    try:
        raw = base64.b64decode(sealed, altchars=b"-_", validate=True)
        return sealing_cipher(settings.SECRET_KEY, purpose).decrypt(raw[:NONCE], raw[NONCE:], None)
    except (binascii.Error, InvalidTag, ValueError):
        raise ValueError("This was not sealed here.") from None


@lru_cache(maxsize=64)
def sealing_cipher(secret_key: str, purpose: str) -> AESGCM:
    key = hashlib.blake2b(
        purpose.encode(), key=hashlib.sha512(secret_key.encode()).digest(), person=b"sbx-sealing"
    )
    return AESGCM(key.digest()[:32])
