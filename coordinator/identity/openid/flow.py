"""The way to the provider and back: what the browser is sent with, and what it must bring back.

A flow waits in the person's session for ten minutes and is taken out of it by whoever comes back first. It is tied to
the browser twice: by the session's cookie, and by the secret that coordinator.identity.browser_secrets keeps beside it.
"""

from __future__ import annotations

import hmac
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from authlib.common.security import generate_token
from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.urls import reverse

from coordinator.identity import browser_secrets
from coordinator.identity.openid import provider, tokens
from coordinator.identity.openid.errors import SignInRefused
from coordinator.identity.openid.identities import OpenIdIdentity, Purpose
from coordinator.identity.openid.tokens import SKEW

FLOWS_SESSION_KEY = "openid"  # in the session: the flows that are on their way, oldest first
MOST_TABS = 3  # in which one browser may be on its way through a sign-in
GOOD_FOR = 600  # seconds
LONGEST_CODE = 4096  # characters
GONE = (
    "This sign-in was started in another browser, was already used, or took more than ten minutes. Start "
    "again."
)


@dataclass(frozen=True, slots=True)
class SignInFlow:
    """One way to the provider. `secret` is the hash of the browser's secret, `user` who set out."""

    purpose: Purpose
    state: str
    nonce: str
    verifier: str
    secret: str
    goal: str
    at: int  # epoch seconds
    user: int | None = None


def begin_flow_and_build_url(
    session: SessionBase, purpose: Purpose, *, secret: str, goal: str, now: datetime, user: int | None = None
) -> str:
    """Note a flow in the session and return the address at the provider. `secret` is the hash of the browser's.

    Raises Unreachable.
    """
    flow = SignInFlow(
        purpose,
        state=generate_token(43),
        nonce=generate_token(43),
        verifier=generate_token(64),
        secret=secret,
        goal=goal,
        at=int(now.timestamp()),
        user=user,
    )
    # Asked anew whether it is them: for that a sign-in that the provider still holds is not enough.
    more = {} if purpose == "sign in" else {"prompt": "login", "max_age": "0"}
    with tokens.create_provider_client(redirect_uri=provider_redirect_uri()) as client:
        address, _ = client.create_authorization_url(
            provider.get_or_fetch_provider_description()["authorization_endpoint"],
            state=flow.state,
            code_verifier=flow.verifier,
            nonce=flow.nonce,
            **more,
        )
    session[FLOWS_SESSION_KEY] = [*pending_sign_in_flows(session, now), asdict(flow)][-MOST_TABS:]
    return str(address)


def provider_redirect_uri() -> str:
    """Return where the provider sends people back to; it must be registered there."""
    return settings.PUBLIC_URL + reverse("accounts:provider-back")


def consume_sign_in_flow(session: SessionBase, state: str, secret: str, now: datetime) -> SignInFlow:
    """Take the flow with that state out of the session. Raises SignInRefused without one, or for another browser."""
    pending_flows = pending_sign_in_flows(session, now)
    matching_flows = [
        one for one in pending_flows if state and hmac.compare_digest(one["state"].encode(), state.encode())
    ]
    if not matching_flows:  # a stranger's session stays empty, and is not kept
        raise SignInRefused("no flow of this session has that state", GONE)
    session[FLOWS_SESSION_KEY] = [one for one in pending_flows if one not in matching_flows]
    flow = SignInFlow(**matching_flows[0])
    if not hmac.compare_digest(flow.secret, browser_secrets.hash_browser_secret(secret)):
        raise SignInRefused("the browser's secret is not the one that it set out with", GONE)
    return flow


def pending_sign_in_flows(session: SessionBase, now: datetime) -> list[dict[str, Any]]:
    stored_flows = session.get(FLOWS_SESSION_KEY)
    since = now.timestamp() - GOOD_FOR
    return [flow for flow in stored_flows if flow["at"] > since] if isinstance(stored_flows, list) else []


def redeem_and_verify_sign_in(
    flow: SignInFlow, *, code: str, issuer: str, now: datetime
) -> tuple[OpenIdIdentity, str]:
    """Return who came back with `code`, and their ID token as text. Raises SignInRefused and Unreachable.

    `issuer` is who says to have sent them (RFC 9207), "" if nobody does.
    """
    provider_sends_issuer = (
        provider.get_or_fetch_provider_description().get("authorization_response_iss_parameter_supported")
        is True
    )
    if (issuer or provider_sends_issuer) and issuer != settings.OIDC_ISSUER:
        raise SignInRefused(f"the answer comes from {issuer!r}")
    if not 0 < len(code) <= LONGEST_CODE:
        raise SignInRefused("there is no code in the answer")
    answer = tokens.redeem_authorization_code(
        code, verifier=flow.verifier, redirect_uri=provider_redirect_uri()
    )
    requested_at = datetime.fromtimestamp(flow.at, UTC)
    identity = tokens.verify_token_and_build_identity(
        answer, nonce=flow.nonce, requested_at=requested_at, now=now
    )
    if flow.purpose != "sign in":
        require_fresh_authentication(identity, flow)
    return identity, str(answer["id_token"])


def require_fresh_authentication(identity: OpenIdIdentity, flow: SignInFlow) -> None:
    """Refuse a sign-in at the provider that is older than the question."""
    at = identity.authenticated_at
    if isinstance(at, bool) or not isinstance(at, int | float) or at < flow.at - SKEW:
        raise SignInRefused(
            f"auth_time is {at!r}, asked at {flow.at}",
            "The sign-in service did not ask you to sign in again, so nothing was confirmed. Tell an "
            "administrator.",
        )
