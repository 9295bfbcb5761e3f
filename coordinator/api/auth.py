"""Authentication of REST operations: an API key with one of the operation's scopes.

A key never decides: no operation here approves, denies, grants or edits policy.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from ninja.security.base import AuthBase

from coordinator.actions.people import keys
from coordinator.errors import Forbidden, Unauthorized
from coordinator.identity.keys import LOCAL_PROGRAM, KeyIdentity
from coordinator.identity.scopes import SCOPES

# What a browser says of a request that no other site caused.
HERE = frozenset({"same-origin", "none"})


def parse_api_key_or_none(authorization: str | None, x_api_key: str | None) -> str | None:
    """Return the key in `Authorization: Bearer …` or `X-API-Key`, or None where neither holds one."""
    if authorization:
        kind, _, rest = authorization.partition(" ")
        if kind.lower() == "bearer" and rest.strip():
            return rest.strip()
    return (x_api_key or "").strip() or None


def require_local_caller(host: str, headers: Mapping[str, str | None], forwarded: bool) -> None:
    """Without keys, let only programs on this machine in: raise Forbidden for anybody else's request.

    A page elsewhere can make a browser ask localhost. It then sends Origin, or Sec-Fetch-Site where that is left
    out (GET), or, after rebinding its name to 127.0.0.1, its own Host. A page of ours, the API's own, is
    `same-origin`, an address that somebody typed is `none`. What a proxy passes on (`forwarded`) comes from another
    machine. `headers` are asked for `origin` and `sec-fetch-site`.
    """
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    elsewhere = headers.get("origin") is not None or (headers.get("sec-fetch-site") or "none") not in HERE
    if name not in {"127.0.0.1", "localhost", "[::1]"} or elsewhere or forwarded:
        raise Forbidden(
            "API authentication is off: only programs on this machine may call, no web page and no proxy."
        )


def require_non_browser_request(headers: Mapping[str, str | None]) -> None:
    """Without keys, keep every browser from a request that does something or is held, though it only reads by name.

    Browsers that know no Sec-Fetch headers send no Origin with a GET either; all say what they are.
    """
    from_browser = any(
        headers.get(name) is not None for name in ("origin", "referer", "sec-fetch-site", "sec-fetch-mode")
    )
    if from_browser or (headers.get("user-agent") or "").startswith("Mozilla/"):
        raise Forbidden("API authentication is off: programs may call this, browsers may not.")


class KeyAuth(AuthBase):
    """Asks for an API key with one of `scopes`; `request.auth` is then its KeyIdentity."""

    openapi_type = "http"
    openapi_scheme = "bearer"
    openapi_description = "An API key, as `Authorization: Bearer sbx_…` or `X-API-Key: sbx_…`."

    def __init__(self, *scopes: str) -> None:
        unknown = set(scopes) - set(SCOPES)
        if unknown or not scopes:
            raise ValueError(f"not scopes: {sorted(unknown)}")
        self.scopes = frozenset(scopes)
        super().__init__()

    def __call__(self, request: HttpRequest) -> KeyIdentity:
        """Return who calls; raise Unauthorized or Forbidden."""
        if not settings.API_AUTH:
            forwarded = bool(request.META.get("signalbox.forwarded"))
            require_local_caller(request.get_host(), request.headers, forwarded)
            return LOCAL_PROGRAM
        raw = parse_api_key_or_none(request.headers.get("Authorization"), request.headers.get("X-API-Key"))
        if raw is None:
            raise Unauthorized(
                "An API key is needed: send it as `Authorization: Bearer sbx_…` or `X-API-Key`."
            )
        now = timezone.now()
        identity = keys.authenticate_api_key(
            raw, now, source=str(request.META.get("REMOTE_ADDR") or "unknown")
        )
        if not identity.scopes & self.scopes:
            keys.record_out_of_scope_use(identity, self.scopes, f"{request.method} {request.path}", now)
        identity.require_any_scope(self.scopes)
        return identity


def build_scoped_key_auth(*scopes: str) -> KeyAuth:
    """Return the guard of an operation that a key with any one of `scopes` may call."""
    return KeyAuth(*scopes)
