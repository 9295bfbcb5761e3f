"""Who somebody is: the code for a token, the token verified, and what of it counts here."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from authlib.oidc.core import CodeIDToken
from django.conf import settings
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jws import JWSRegistry

from coordinator.identity.openid import provider
from coordinator.identity.openid.errors import SignInRefused
from coordinator.identity.openid.fetching import Client, get_json, in_time
from coordinator.identity.openid.identities import Identity
from coordinator.identity.roles import ROLES
from coordinator.lib.storable import is_storable

SKEW = 60  # seconds that the provider's clock may differ from ours
LONGEST_SUBJECT = 255  # characters, as the standard has it


def client(**options: Any) -> Client:
    """Return Authlib's client for our registration at the provider."""
    listed = provider.description().get("token_endpoint_auth_methods_supported") or []
    method = "client_secret_basic"
    if not settings.OIDC_CLIENT_SECRET:
        method = "none"
    elif "client_secret_basic" not in listed and "client_secret_post" in listed:
        method = "client_secret_post"
    return Client(
        settings.OIDC_CLIENT_ID,
        settings.OIDC_CLIENT_SECRET or None,
        token_endpoint_auth_method=method,
        code_challenge_method="S256",
        scope=settings.OIDC_SCOPES,
        **options,
    )


def redeem(code: str, *, verifier: str, redirect_uri: str) -> dict[str, Any]:
    """Return the token endpoint's answer for a code. Raises SignInRefused and Unreachable."""
    endpoint = provider.description()["token_endpoint"]

    def ask() -> dict[str, Any]:
        with client(redirect_uri=redirect_uri) as session:
            return dict(
                session.fetch_token(
                    endpoint,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=verifier,
                    redirect_uri=redirect_uri,
                )
            )

    return in_time(ask)


def verify(answer: dict[str, Any], *, nonce: str, asked_at: datetime, now: datetime) -> Identity:
    """Return whom the ID token in a token endpoint's answer names, once all in it holds. Raises SignInRefused."""
    raw = answer.get("id_token")
    if not isinstance(raw, str):
        raise SignInRefused("the answer holds no id_token")
    try:
        token = _signed(raw)
        claims = CodeIDToken(
            token.claims,
            token.header,
            {
                "iss": {"essential": True, "value": settings.OIDC_ISSUER},
                "aud": {"essential": True, "value": settings.OIDC_CLIENT_ID},
                "nonce": {"essential": True},
            },
            {
                "nonce": nonce,
                "client_id": settings.OIDC_CLIENT_ID,
                "access_token": answer.get("access_token"),
            },
        )
        claims.validate(now=int(now.timestamp()), leeway=SKEW)
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as problem:
        raise SignInRefused(f"the id_token: {type(problem).__name__}: {problem}") from None
    if claims["iat"] < asked_at.timestamp() - SKEW:
        raise SignInRefused("the id_token was issued before it was asked for")
    complete = _completed(claims, answer.get("access_token"))
    _require_told_groups(complete)
    return _identity(complete)


def _completed(claims: dict[str, Any], access_token: object) -> dict[str, Any]:
    """Return the claims with what some providers tell at their userinfo door alone; the token's own word counts first.

    Raises SignInRefused where that door speaks of somebody else, and Unreachable.
    """
    endpoint = provider.description().get("userinfo_endpoint")
    lacking = _at(claims, settings.OIDC_GROUPS_CLAIM) is None or not _text(claims, settings.OIDC_NAME_CLAIM)
    if not lacking or not isinstance(endpoint, str) or not isinstance(access_token, str):
        return claims
    told = in_time(lambda: get_json(endpoint, access_token))
    if told.get("sub") != claims["sub"]:
        raise SignInRefused("its userinfo speaks of somebody else")
    return told | claims


def _require_told_groups(claims: dict[str, Any]) -> None:
    """Raise SignInRefused where there are groups that the provider does not tell, as Entra ID does of more than 200.

    No group at all would cost the person their role.
    """
    name = settings.OIDC_GROUPS_CLAIM
    elsewhere = claims.get("_claim_names")
    if _at(claims, name) is None and (
        (isinstance(elsewhere, dict) and name in elsewhere) or claims.get("hasgroups") is True
    ):
        raise SignInRefused(
            f"it tells of {name} elsewhere, for they are too many for a token",
            f"{settings.OIDC_NAME} did not send all of your groups, so you were not signed in and your "
            "role here is unchanged. Ask an administrator to have it send only the groups that have a "
            "role here.",
        )


def _signed(raw: str) -> jwt.Token:
    """Return the token if a key of the provider's signed it; an unknown key is looked for once more."""
    registry = JWSRegistry(algorithms=provider.algorithms(), strict_check_header=False)
    try:
        return jwt.decode(raw, provider.keys(), registry=registry)
    except InvalidKeyIdError:
        return jwt.decode(raw, provider.keys(anew=True), registry=registry)


def _identity(claims: dict[str, Any]) -> Identity:
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT or not is_storable(subject):
        raise SignInRefused("the id_token's sub is no text of 1 to 255 characters")
    return Identity(
        issuer=settings.OIDC_ISSUER,
        subject=subject,
        name=_text(claims, settings.OIDC_NAME_CLAIM),
        role=role_in(claims),
        email=_text(claims, "email") if claims.get("email_verified") is True else "",
        first_name=_text(claims, "given_name"),
        last_name=_text(claims, "family_name"),
        authenticated_at=claims.get("auth_time"),
    )


def _text(claims: dict[str, Any], name: str) -> str:
    found = claims.get(name)
    return found.strip() if isinstance(found, str) and is_storable(found) else ""


def role_in(claims: dict[str, Any]) -> str | None:
    """Return the highest role that the groups in the claims give, or None."""
    given = {settings.OIDC_ROLES.get(group) for group in _groups(claims)}
    return next((role for role in reversed(ROLES) if role in given), None)


def _groups(claims: dict[str, Any]) -> list[str]:
    found = _at(claims, settings.OIDC_GROUPS_CLAIM)
    if isinstance(found, str):
        found = [found]
    return [group for group in found if isinstance(group, str)] if isinstance(found, list) else []


def _at(claims: dict[str, Any], name: str) -> Any:
    """Return the claim of that name, or what lies at the end of a path such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
