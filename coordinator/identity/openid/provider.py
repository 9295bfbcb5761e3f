"""The provider as it describes itself (discovery), and its keys; both kept for an hour."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet

from coordinator.identity.openid.errors import ProviderUnreachable
from coordinator.identity.openid.fetching import (
    fetch_provider_json,
    require_safe_provider_url,
    run_within_deadline,
    set_provider_unresponsive,
)

FETCH_CACHE_SECONDS = 3600.0
NOT_AGAIN_FOR = 5.0  # seconds, after a failure: a provider that is down must not hold every visitor
KEYS_NOT_AGAIN_FOR = 30.0  # seconds, between two looks for an unknown key
# By a private key of the provider's alone: never `none`, and never a secret that both know.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass
class CachedFetch:
    """Something fetched, and when; or that it could not be had. Two threads may fetch it twice, one after the other."""

    fetch: Callable[[], Any]
    value: Any = None
    at: float = float("-inf")
    failed: str = ""
    failed_at: float = float("-inf")

    def get_or_fetch(self, newer_than: float = FETCH_CACHE_SECONDS) -> Any:
        """Return what was fetched within the last `newer_than` seconds, or fetch it."""
        now = time.monotonic()
        if now - self.at < newer_than:
            return self.value
        if self.failed and now - self.failed_at < NOT_AGAIN_FOR:
            raise ProviderUnreachable(self.failed)
        try:
            self.value = run_within_deadline(self.fetch)
        except ProviderUnreachable as problem:
            self.failed, self.failed_at = problem.problem, time.monotonic()
            raise
        self.at, self.failed = time.monotonic(), ""
        return self.value


def fetch_discovery_document() -> dict[str, Any]:
    provider_json = fetch_provider_json(
        settings.OIDC_ISSUER.rstrip("/") + "/.well-known/openid-configuration"
    )
    if provider_json.get("issuer") != settings.OIDC_ISSUER:
        raise ProviderUnreachable(
            f"it calls itself {provider_json.get('issuer')!r}, not {settings.OIDC_ISSUER!r}"
        )
    for name in NEEDED:
        if not isinstance(provider_json.get(name), str):
            raise ProviderUnreachable(f"its discovery document names no {name}")
    for name in (*NEEDED, "userinfo_endpoint", "end_session_endpoint"):
        if provider_json.get(name):
            require_safe_provider_url(str(provider_json[name]))
    return provider_json


def fetch_provider_keys() -> KeySet:
    listed = fetch_provider_json(get_or_fetch_provider_description()["jwks_uri"]).get("keys")
    usable = [
        key
        for key in (listed if isinstance(listed, list) else [])
        if isinstance(key, dict) and key.get("kty") in {"RSA", "EC", "OKP"} and key.get("use", "sig") == "sig"
    ]
    if not usable:
        raise ProviderUnreachable("it lists no keys for signatures")
    supported_keys = [key for key_json in usable for key in import_provider_key_or_empty(key_json)]
    if not supported_keys:
        raise ProviderUnreachable("none of its keys can be read")
    return KeySet(supported_keys)


def import_provider_key_or_empty(listed: dict[str, Any]) -> list[Key]:
    """Return the key; nothing for one of a kind or curve that is not known here, as RFC 7517 (5) has it."""
    try:
        return list(KeySet.import_key_set({"keys": [listed]}).keys)
    except (JoseError, ValueError, KeyError, TypeError):
        return []


_description = CachedFetch(fetch_discovery_document)
_keys = CachedFetch(fetch_provider_keys)


def clear_provider_cache() -> None:
    """Fetch everything anew when it is next needed."""
    for cache in (_description, _keys):
        cache.at, cache.failed = float("-inf"), ""
    set_provider_unresponsive(silent=False)


def get_or_fetch_provider_description() -> dict[str, Any]:
    """Return the provider's discovery document. Raises ProviderUnreachable."""
    description: dict[str, Any] = _description.get_or_fetch()
    return description


def get_or_fetch_provider_keys(*, refetch: bool = False) -> KeySet:
    """Return the provider's keys; `refetch` asks for one that is not among them. Raises ProviderUnreachable."""
    get_or_fetch_provider_description()  # before, since in_time does not nest
    key_set: KeySet = _keys.get_or_fetch(KEYS_NOT_AGAIN_FOR if refetch else FETCH_CACHE_SECONDS)
    return key_set


def accepted_signature_algorithms() -> list[str]:
    """Return the signatures that count, of those that the provider makes."""
    algorithms = get_or_fetch_provider_description().get("id_token_signing_alg_values_supported") or ["RS256"]
    return [name for name in ALGORITHMS if name in algorithms]
