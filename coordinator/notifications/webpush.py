"""Web push below its endpoints: who sends (VAPID, RFC 8292), and what only the device can read (RFC 8291, aes128gcm).

Why no library does it: pywebpush brings requests and aiohttp to post by itself, and may post anywhere; what posts here
is `webhooks`, which keeps out of our own networks. What would be left of it are http_ece (no release since 2024, none
as a wheel) and py-vapid (whose keys are files): two key derivations and a signature, which `cryptography` has. The
tests decrypt with http_ece, check the signature with py-vapid, and compare with the example of RFC 8291.

Keys are base64url without padding: points uncompressed (65 bytes), private keys and secrets as they are.
"""

from __future__ import annotations

import base64
import json
import os
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CURVE = ec.SECP256R1()
SALT, SECRET, SCALAR, POINT = 16, 16, 32, 65  # bytes
UNCOMPRESSED = 4  # a point's first byte (SEC 1); another form would go into the keys of a message as it is
RECORD = 4096  # what a push service has to take, all in all (RFC 8030)
# A message is filled up to a multiple of this: its length should not reveal to the push service what is asked.
STEP = 1024
LONGEST = 3 * STEP - 1  # bytes of a message; with its head and tag it stays below RECORD
TOKEN_GOOD_FOR = timedelta(hours=12)  # a push service refuses more than a day


def generate_vapid_key() -> str:
    return encode_base64url(ec.generate_private_key(CURVE).private_numbers().private_value.to_bytes(SCALAR))


def vapid_public_key(private_key: str) -> str:
    """Return what a browser is given as `applicationServerKey`."""
    return encode_base64url(public_key_point(load_private_key(private_key)))


def validate_device_keys(p256dh: str, auth: str) -> None:
    """Raise ValueError unless these are a device's public key, a point of the curve, and its secret."""
    point = decode_base64url(p256dh)
    if len(point) != POINT or point[0] != UNCOMPRESSED:
        raise ValueError("The key is no uncompressed point of the curve.")
    load_public_key(point)
    if len(decode_base64url(auth)) != SECRET:
        raise ValueError("The secret has another length.")


def vapid_authorization_header(endpoint: str, private_key: str, contact: str, now: datetime) -> str:
    """Return the header that names the sender to the push service of `endpoint`; `contact` is `https:` or `mailto:`."""
    parts = urlsplit(endpoint)
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "exp": int((now + TOKEN_GOOD_FOR).timestamp()),
        "sub": contact,
    }
    signed_text = ".".join(
        encode_base64url(json.dumps(part, separators=(",", ":")).encode())
        for part in ({"typ": "JWT", "alg": "ES256"}, claims)
    )
    first, second = decode_dss_signature(
        load_private_key(private_key).sign(signed_text.encode(), ec.ECDSA(SHA256()))
    )
    signature = encode_base64url(first.to_bytes(SCALAR) + second.to_bytes(SCALAR))
    return f"vapid t={signed_text}.{signature},k={vapid_public_key(private_key)}"


def encrypt_push_message(text: bytes, p256dh: str, auth: str) -> bytes:
    """Return `text`, at most LONGEST bytes, for the device alone that has these keys. Raises ValueError."""
    if len(text) > LONGEST:
        raise ValueError(f"A message has at most {LONGEST} bytes, not {len(text)}.")
    filled = text + b"\x02" + bytes(-(len(text) + 1) % STEP)
    return encrypt_push_record(
        filled,
        decode_base64url(p256dh),
        decode_base64url(auth),
        ec.generate_private_key(CURVE),
        os.urandom(SALT),
    )


def encrypt_push_record(
    filled: bytes, device: bytes, auth: bytes, sender: ec.EllipticCurvePrivateKey, salt: bytes
) -> bytes:
    """Return the one record that says `filled`, with its head (RFC 8188); `sender` and `salt` are for one message."""
    own_point = public_key_point(sender)
    shared = sender.exchange(ec.ECDH(), load_public_key(device))
    secret = derive_hkdf_key(shared, auth, b"WebPush: info\0" + device + own_point, 32)
    key = derive_hkdf_key(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = derive_hkdf_key(secret, salt, b"Content-Encoding: nonce\0", 12)
    head = salt + RECORD.to_bytes(4) + len(own_point).to_bytes(1) + own_point
    return head + AESGCM(key).encrypt(nonce, filled, None)


def encode_base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_base64url(text: str) -> bytes:
    """Return the bytes of base64url, padded or not. Raises ValueError."""
    bare = text.rstrip("=")
    return base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True)


def derive_hkdf_key(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


def load_private_key(text: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(decode_base64url(text)), CURVE)


def load_public_key(point: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point)


def public_key_point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
