"""Passkeys (WebAuthn): what a browser is asked for, and whether its answer proves anything. It reads; actions write.

The library `webauthn` knows the protocol, the encodings and the signatures. What is ours is which answers count: made
for this installation's address (scheme, host and port), by somebody whom the authenticator has verified, for a
challenge that this installation gave out (coordinator.actions.people.passkeys).

A passkey belongs to a host name and works nowhere else. That name is the one of SIGNALBOX_PUBLIC_URL, never the one of
a request's Host header, which whoever sends the request chooses.

The library is loaded when a passkey is first used: it takes 15 MB.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from coordinator.errors import Forbidden
from coordinator.models import Passkey

MAX_ANSWER_CHARACTERS = 16 * 1024  # of what a browser sends: some 1,500, more with a certificate
CEREMONY_MILLISECONDS = 5 * 60 * 1000  # that a person has to unlock a passkey
DEFAULT_PORTS = {"http": 80, "https": 443}
# No attestation is asked for. Browsers then send none, or one that a passkey signs itself. The others hold certificates
# and tokens of makers, which nobody here needs and which would have to be read.
ACCEPTED_ATTESTATIONS = frozenset({"none", "packed"})
UNVERIFIED = "This passkey could not be verified, so nothing was changed. Try again."


class PasskeyRefused(Forbidden):
    """What a browser sent proves nothing. `problem` is for the log."""

    def __init__(self, problem: str, detail: str = UNVERIFIED) -> None:
        super().__init__(detail)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class PasskeyAnswer:
    """What a browser sent, read and not yet verified."""

    credential_id: str  # base64url
    challenge: bytes
    user_handle: str  # base64url; empty where the authenticator sends none
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NewCredential:
    """The public half of a passkey that was just made."""

    credential_id: str  # base64url
    public_key: str  # base64url
    sign_count: int


def relying_party_id() -> str:
    """Return the host name that passkeys of this installation belong to."""
    return urlsplit(settings.PUBLIC_URL).hostname or ""


def relying_party_origin() -> str:
    """Return the address at which passkeys count, as browsers write it: without a default port."""
    parts = urlsplit(settings.PUBLIC_URL)
    port = f":{parts.port}" if parts.port and parts.port != DEFAULT_PORTS.get(parts.scheme) else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


def passkey_configuration_problem_or_empty() -> str:
    """Return why passkeys cannot work at this installation's address; "" where they can."""
    parts = urlsplit(settings.PUBLIC_URL)
    host = relying_party_id()
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return (
            f"Passkeys need a host name, and {host} is an address. An administrator can set "
            "SIGNALBOX_PUBLIC_URL to a name, for example http://localhost:8765 on this machine."
        )
    is_local = host == "localhost" or host.endswith(".localhost")
    if parts.scheme != "https" and not is_local:
        return (
            f"Passkeys need HTTPS, and {settings.PUBLIC_URL} has none. An administrator can put Signalbox behind a "
            "proxy with TLS and set SIGNALBOX_PUBLIC_URL to its https:// address."
        )
    return ""


def passkey_address_problem_or_empty(scheme: str, host: str) -> str:
    """Return why passkeys cannot work at the address that a page was opened at; "" where they can.

    Args:
        scheme: http or https.
        host: The Host header, with the port if there is one.
    """
    if problem := passkey_configuration_problem_or_empty():
        return problem
    if f"{scheme}://{host}".lower() == relying_party_origin():
        return ""
    return f"Passkeys work only at {relying_party_origin()}. Open Signalbox there."


def build_passkey_creation_options(
    challenge: bytes, *, user_handle: str, username: str, full_name: str, existing: Iterable[Passkey]
) -> dict[str, Any]:
    """Return what the browser needs to make a passkey that can sign in without a name."""
    import webauthn  # noqa: PLC0415 - large, and seldom used
    from webauthn.helpers import base64url_to_bytes, structs  # noqa: PLC0415

    options = webauthn.generate_registration_options(
        rp_id=relying_party_id(),
        rp_name="Signalbox",
        user_id=base64url_to_bytes(user_handle),
        user_name=username,
        user_display_name=full_name or username,
        challenge=challenge,
        timeout=CEREMONY_MILLISECONDS,
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.REQUIRED,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        ),
        exclude_credentials=[
            structs.PublicKeyCredentialDescriptor(id=base64url_to_bytes(row.credential_id))
            for row in existing
        ],
    )
    return dict(json.loads(webauthn.options_to_json(options)))


def build_passkey_request_options(challenge: bytes, allowed: Iterable[Passkey]) -> dict[str, Any]:
    """Return what the browser needs to use a passkey: one of `allowed`, or whichever its person chooses."""
    import webauthn  # noqa: PLC0415
    from webauthn.helpers import base64url_to_bytes, structs  # noqa: PLC0415

    options = webauthn.generate_authentication_options(
        rp_id=relying_party_id(),
        challenge=challenge,
        timeout=CEREMONY_MILLISECONDS,
        user_verification=structs.UserVerificationRequirement.REQUIRED,
        allow_credentials=[
            structs.PublicKeyCredentialDescriptor(id=base64url_to_bytes(row.credential_id)) for row in allowed
        ],
    )
    return dict(json.loads(webauthn.options_to_json(options)))


def parse_passkey_answer(text: str) -> PasskeyAnswer:
    """Return what a browser sent as JSON. Raises PasskeyRefused for what is too long or cannot be read."""
    from webauthn.helpers import base64url_to_bytes, parse_client_data_json  # noqa: PLC0415

    if not 0 < len(text) <= MAX_ANSWER_CHARACTERS:
        raise PasskeyRefused(f"an answer of {len(text)} characters")
    try:
        content = json.loads(text)
        response = content["response"]
        client_data = parse_client_data_json(base64url_to_bytes(response["clientDataJSON"]))
        credential_id, user_handle = content["id"], response.get("userHandle") or ""
        if not (isinstance(credential_id, str) and isinstance(user_handle, str)):
            raise PasskeyRefused("ids that are no text")
    except PasskeyRefused:
        raise
    except Exception as problem:  # foreign text: whatever it causes, it proves nothing
        raise PasskeyRefused(f"unreadable: {type(problem).__name__}: {problem}") from None
    return PasskeyAnswer(credential_id.rstrip("="), client_data.challenge, user_handle.rstrip("="), content)


def hash_passkey_challenge(challenge: bytes) -> str:
    """Return what is stored of a challenge."""
    return hashlib.sha256(challenge).hexdigest()


def verify_new_passkey(answer: PasskeyAnswer) -> NewCredential:
    """Return the passkey that was made. Its challenge must be taken already. Raises PasskeyRefused."""
    import webauthn  # noqa: PLC0415
    from webauthn.helpers import (  # noqa: PLC0415
        base64url_to_bytes,
        bytes_to_base64url,
        parse_attestation_object,
    )

    try:
        attestation = parse_attestation_object(
            base64url_to_bytes(answer.content["response"]["attestationObject"])
        )
        if str(getattr(attestation.fmt, "value", attestation.fmt)) not in ACCEPTED_ATTESTATIONS:
            raise PasskeyRefused(f"an attestation of the kind {attestation.fmt!r}")
        verified = webauthn.verify_registration_response(
            credential=answer.content,
            expected_challenge=answer.challenge,
            expected_rp_id=relying_party_id(),
            expected_origin=relying_party_origin(),
            require_user_verification=True,
        )
    except PasskeyRefused:
        raise
    except Exception as problem:  # foreign bytes
        raise build_passkey_refusal(problem) from None
    return NewCredential(
        bytes_to_base64url(verified.credential_id),
        bytes_to_base64url(verified.credential_public_key),
        verified.sign_count,
    )


def verify_passkey_and_get_counter(answer: PasskeyAnswer, passkey: Passkey) -> int:
    """Return the passkey's new counter, where its owner has just used it. Raises PasskeyRefused.

    The answer's challenge must be taken already. A counter that does not rise is refused: the passkey was copied.
    """
    import webauthn  # noqa: PLC0415
    from webauthn.helpers import base64url_to_bytes  # noqa: PLC0415

    if answer.user_handle and answer.user_handle != passkey.user_handle:
        raise PasskeyRefused("the user handle is another account's")
    try:
        verified = webauthn.verify_authentication_response(
            credential=answer.content,
            expected_challenge=answer.challenge,
            expected_rp_id=relying_party_id(),
            expected_origin=relying_party_origin(),
            credential_public_key=base64url_to_bytes(passkey.public_key),
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
    except Exception as problem:  # foreign bytes
        raise build_passkey_refusal(problem) from None
    return verified.new_sign_count


def build_passkey_refusal(problem: Exception) -> PasskeyRefused:
    """Return the refusal for what the library found, with advice where its person can do something."""
    text = f"{type(problem).__name__}: {problem}"
    if "origin" in text:
        return PasskeyRefused(text, f"Passkeys work only at {relying_party_origin()}. Open Signalbox there.")
    if "verification is required" in text:
        return PasskeyRefused(
            text,
            "Your passkey did not check that it is you. Unlock it with its PIN, your fingerprint or your face.",
        )
    if "sign count" in text:
        return PasskeyRefused(
            text,
            "This passkey's counter went back, as that of a copied passkey does. Sign in another way, remove the "
            "passkey, and tell an administrator.",
        )
    return PasskeyRefused(text)
