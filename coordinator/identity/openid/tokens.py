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
from coordinator.identity.openid.fetching import ProviderClient, fetch_provider_json, run_within_deadline
from coordinator.identity.openid.identities import OpenIdIdentity
from coordinator.identity.roles import ROLES
from coordinator.lib.storable import is_storable_text

SKEW = 60  # seconds that the provider's clock may differ from ours
LONGEST_SUBJECT = 255  # characters, as the standard has it


def create_provider_client(**options: Any) -> ProviderClient:
    """Return Authlib's client for our registration at the provider."""
    listed = provider.get_or_fetch_provider_description().get("token_endpoint_auth_methods_supported") or []
    method = "client_secret_basic"
    if not settings.OIDC_CLIENT_SECRET:
        method = "none"
    elif "client_secret_basic" not in listed and "client_secret_post" in listed:
        method = "client_secret_post"
    return ProviderClient(
        settings.OIDC_CLIENT_ID,
        settings.OIDC_CLIENT_SECRET or None,
        token_endpoint_auth_method=method,
        code_challenge_method="S256",
        scope=settings.OIDC_SCOPES,
        **options,
    )


def redeem_authorization_code(code: str, *, verifier: str, redirect_uri: str) -> dict[str, Any]:
    """Return the token endpoint's answer for a code. Raises SignInRefused and Unreachable."""
    endpoint = provider.get_or_fetch_provider_description()["token_endpoint"]

    def fetch_token_answer() -> dict[str, Any]:
        with create_provider_client(redirect_uri=redirect_uri) as session:
            return dict(
                session.fetch_token(
                    endpoint,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=verifier,
                    redirect_uri=redirect_uri,
                )
            )

    return run_within_deadline(fetch_token_answer)


def verify_token_and_build_identity(
    answer: dict[str, Any], *, nonce: str, requested_at: datetime, now: datetime
) -> OpenIdIdentity:
    """Return whom the ID token in a token endpoint's answer names, once all in it holds. Raises SignInRefused."""
    raw = answer.get("id_token")
    if not isinstance(raw, str):
        raise SignInRefused("the answer holds no id_token")
    try:
        token = decode_signed_token(raw)
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
    if claims["iat"] < requested_at.timestamp() - SKEW:
        raise SignInRefused("the id_token was issued before it was asked for")
    complete = fetch_and_merge_userinfo_claims(claims, answer.get("access_token"))
    require_complete_groups(complete)
    return build_identity_from_claims(complete)


def fetch_and_merge_userinfo_claims(claims: dict[str, Any], access_token: object) -> dict[str, Any]:
    """Return the claims with those that some providers send from userinfo alone; the token's claims count first.

    Raises SignInRefused where that endpoint names somebody else, and Unreachable.
    """
    endpoint = provider.get_or_fetch_provider_description().get("userinfo_endpoint")
    lacking = find_claim_by_path(
        claims, settings.OIDC_GROUPS_CLAIM
    ) is None or not storable_text_claim_or_empty(claims, settings.OIDC_NAME_CLAIM)
    if not lacking or not isinstance(endpoint, str) or not isinstance(access_token, str):
        return claims
    userinfo = run_within_deadline(lambda: fetch_provider_json(endpoint, access_token))
    if userinfo.get("sub") != claims["sub"]:
        raise SignInRefused("its userinfo speaks of somebody else")
    return userinfo | claims


def require_complete_groups(claims: dict[str, Any]) -> None:
    """Raise SignInRefused where there are groups that the provider does not tell, as Entra ID does of more than 200.

    No group at all would cost the person their role.
    """
    name = settings.OIDC_GROUPS_CLAIM
    elsewhere = claims.get("_claim_names")
    if find_claim_by_path(claims, name) is None and (
        (isinstance(elsewhere, dict) and name in elsewhere) or claims.get("hasgroups") is True
    ):
        raise SignInRefused(
            f"it tells of {name} elsewhere, for they are too many for a token",
            f"{settings.OIDC_NAME} did not send all of your groups, so you were not signed in and your "
            "role here is unchanged. Ask an administrator to have it send only the groups that have a "
            "role here.",
        )


def decode_signed_token(raw: str) -> jwt.Token:
    """Return the token if a key of the provider's signed it; an unknown key is looked for once more."""
    registry = JWSRegistry(algorithms=provider.accepted_signature_algorithms(), strict_check_header=False)
    try:
        return jwt.decode(raw, provider.get_or_fetch_provider_keys(), registry=registry)
    except InvalidKeyIdError:
        return jwt.decode(raw, provider.get_or_fetch_provider_keys(refetch=True), registry=registry)


def build_identity_from_claims(claims: dict[str, Any]) -> OpenIdIdentity:
    subject = claims["sub"]
    if (
        not isinstance(subject, str)
        or not 0 < len(subject) <= LONGEST_SUBJECT
        or not is_storable_text(subject)
    ):
        raise SignInRefused("the id_token's sub is no text of 1 to 255 characters")
    return OpenIdIdentity(
        issuer=settings.OIDC_ISSUER,
        subject=subject,
        name=storable_text_claim_or_empty(claims, settings.OIDC_NAME_CLAIM),
        role=role_from_claims(claims),
        email=storable_text_claim_or_empty(claims, "email") if claims.get("email_verified") is True else "",
        first_name=storable_text_claim_or_empty(claims, "given_name"),
        last_name=storable_text_claim_or_empty(claims, "family_name"),
        authenticated_at=claims.get("auth_time"),
    )


def storable_text_claim_or_empty(claims: dict[str, Any], name: str) -> str:
    claim = claims.get(name)
    return claim.strip() if isinstance(claim, str) and is_storable_text(claim) else ""


def role_from_claims(claims: dict[str, Any]) -> str | None:
    """Return the highest role that the groups in the claims give, or None."""
    roles = {settings.OIDC_ROLES.get(group) for group in groups_from_claims(claims)}
    return next((role for role in reversed(ROLES) if role in roles), None)


def groups_from_claims(claims: dict[str, Any]) -> list[str]:
    claim = find_claim_by_path(claims, settings.OIDC_GROUPS_CLAIM)
    if isinstance(claim, str):
        claim = [claim]
    return [group for group in claim if isinstance(group, str)] if isinstance(claim, list) else []


def find_claim_by_path(claims: dict[str, Any], name: str) -> Any:
    """Return the claim of that name, or what lies at the end of a path such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    claim_value: Any = claims
    for part in name.split("."):
        claim_value = claim_value.get(part) if isinstance(claim_value, dict) else None
    return claim_value
