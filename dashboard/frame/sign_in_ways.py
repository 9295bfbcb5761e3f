"""How a session was signed in: with a password, or at the single sign-on provider."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest

from coordinator.errors import SignalboxError
from coordinator.identity.session_store import BY_PROVIDER

LONGEST = 4096  # characters; a longer token does not fit into a URL


def store_provider_sign_in(request: HttpRequest, id_token: str, *, until: datetime) -> None:
    """Mark the session as signed in at the provider.

    It ends at `until`, so that changes there take effect.
    """
    request.session[BY_PROVIDER] = id_token if len(id_token) <= LONGEST else ""
    request.session.set_expiry(until)


def mark_session_password_signed_in(request: HttpRequest) -> None:
    """Mark the session as signed in with a password, no longer at the provider. Its end does not change."""
    request.session.pop(BY_PROVIDER, None)


def session_provider_name(request: HttpRequest) -> str:
    """Return the name of the provider at which the session was signed in; empty if with a password."""
    session = getattr(request, "session", None)
    return (
        settings.OIDC_NAME if session is not None and BY_PROVIDER in session and settings.OIDC_ISSUER else ""
    )


def provider_logout_url_or_empty(request: HttpRequest) -> str:
    """Return the URL that signs the person out at the provider and leads back; empty if there is none."""
    if not session_provider_name(request):
        return ""
    from coordinator.identity.openid import provider  # noqa: PLC0415 - an extra

    try:
        endpoint = provider.get_or_fetch_provider_description().get("end_session_endpoint")
    except SignalboxError:
        return ""  # sign-out here must work even if the provider does not
    if not endpoint:
        return ""
    query_values = {
        "client_id": settings.OIDC_CLIENT_ID,
        "post_logout_redirect_uri": f"{settings.PUBLIC_URL}/ui/sign-in/",
        "id_token_hint": request.session[BY_PROVIDER],
    }
    query = urlencode({name: value for name, value in query_values.items() if value})
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"
