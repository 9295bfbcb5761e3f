"""By which way a session was signed in: with a password, or at the provider of single sign-on."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest

from coordinator.errors import SignalboxError
from coordinator.identity.session_store import BY_PROVIDER

LONGEST = 4096  # characters, for it goes into an address


def mark_signed_in_at_provider(request: HttpRequest, id_token: str, *, until: datetime) -> None:
    """Note that the provider vouches for this session, which ends at `until`: what changed there is then heard of."""
    request.session[BY_PROVIDER] = id_token if len(id_token) <= LONGEST else ""
    request.session.set_expiry(until)


def mark_signed_in_by_password(request: HttpRequest) -> None:
    """Note that from now on a password vouches for this session, which ends when it would have."""
    request.session.pop(BY_PROVIDER, None)


def session_provider_name(request: HttpRequest) -> str:
    """Return the name of the provider that vouches for this session; empty where a password does."""
    session = getattr(request, "session", None)
    return (
        settings.OIDC_NAME if session is not None and BY_PROVIDER in session and settings.OIDC_ISSUER else ""
    )


def build_provider_sign_out_url(request: HttpRequest) -> str:
    """Return where the provider ends its own sign-in and leads back, for a session of its; empty where it cannot."""
    if not session_provider_name(request):
        return ""
    from coordinator.identity.openid import provider  # noqa: PLC0415 - an extra

    try:
        endpoint = provider.provider_description().get("end_session_endpoint")
    except SignalboxError:
        return ""  # signing out here does not depend on anybody
    if not endpoint:
        return ""
    query_values = {
        "client_id": settings.OIDC_CLIENT_ID,
        "post_logout_redirect_uri": f"{settings.PUBLIC_URL}/ui/sign-in/",
        "id_token_hint": request.session[BY_PROVIDER],
    }
    query = urlencode({name: value for name, value in query_values.items() if value})
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"
