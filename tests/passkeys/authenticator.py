"""An authenticator in software: real keys and signatures, and whatever a test has it do wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import struct
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Authenticator:
    """One passkey. `origin` is what the browser says; the other attributes are what it does."""

    def __init__(self, origin: str = "http://localhost") -> None:
        self.origin = origin
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.credential_id = secrets.token_bytes(32)
        self.handle = b""
        self.count = 0
        self.verifies = True
        self.is_present = True
        self.rp_id = ""  # another than it is asked for

    def create(self, options: dict[str, Any], fmt: str = "none") -> dict[str, Any]:
        """Answer what `navigator.credentials.create` would."""
        numbers = self.key.public_key().public_numbers()
        point = {-2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        public_key = cbor2.dumps({1: 2, 3: -7, -1: 1} | point)
        self.handle = decode(options["user"]["id"])
        attested = bytes(16) + struct.pack(">H", 32) + self.credential_id + public_key
        data = self.data(options["rp"]["id"], ATTESTED) + attested
        statement = cbor2.dumps({"fmt": fmt, "attStmt": {}, "authData": data})
        return self.answer(
            {
                "clientDataJSON": self.client_data("webauthn.create", options["challenge"]),
                "attestationObject": encode(statement),
            }
        )

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        """Answer what `navigator.credentials.get` would."""
        self.count += 1
        data = self.data(options["rpId"])
        client_data = self.client_data("webauthn.get", options["challenge"])
        signed = data + hashlib.sha256(decode(client_data)).digest()
        return self.answer(
            {
                "clientDataJSON": client_data,
                "authenticatorData": encode(data),
                "signature": encode(self.key.sign(signed, ec.ECDSA(hashes.SHA256()))),
                "userHandle": encode(self.handle),
            }
        )

    def answer(self, response: dict[str, Any]) -> dict[str, Any]:
        name = encode(self.credential_id)
        return {
            "id": name,
            "rawId": name,
            "type": "public-key",
            "response": response,
            "clientExtensionResults": {},
        }

    def data(self, rp_id: str, flags: int = 0) -> bytes:
        flags |= (PRESENT if self.is_present else 0) | (VERIFIED if self.verifies else 0)
        return (
            hashlib.sha256((self.rp_id or rp_id).encode()).digest()
            + bytes([flags])
            + struct.pack(">I", self.count)
        )

    def client_data(self, kind: str, challenge: str) -> str:
        return encode(json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode())
