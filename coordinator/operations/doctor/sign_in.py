"""A check that the single sign-on provider answers, and is set up as Signalbox needs it."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from coordinator.operations.doctor import CheckResult, failed_check, passed_check, warning_check

NAME = "single sign-on"


def iterate_single_sign_on_checks() -> Iterator[CheckResult]:
    """Yield whether people can sign in at the provider; nothing where none is set."""
    if not settings.OIDC_ISSUER:
        return
    from coordinator.identity.openid import provider  # noqa: PLC0415 - an extra
    from coordinator.identity.openid.errors import ProviderUnreachable  # noqa: PLC0415

    try:
        description, keys = (
            provider.get_or_fetch_provider_description(),
            provider.get_or_fetch_provider_keys(),
        )
    except ProviderUnreachable as problem:
        yield failed_check(
            NAME,
            f"{settings.OIDC_ISSUER}: {problem.problem}.",
            "Nobody can sign in with it. Check whether this machine reaches it, and whether SIGNALBOX_OIDC_ISSUER is "
            "what its discovery document says.",
        )
        return
    if not provider.accepted_signature_algorithms():
        yield failed_check(
            NAME,
            f"{settings.OIDC_ISSUER} offers no signature algorithm that Signalbox trusts.",
            f"Let it sign ID tokens with one of: {', '.join(provider.ALGORITHMS)}.",
        )
        return
    if not settings.HTTPS:
        yield warning_check(
            NAME,
            f"The provider sends people back to {settings.PUBLIC_URL}, without TLS.",
            "Put a TLS proxy in front, and set its https:// address in SIGNALBOX_PUBLIC_URL.",
        )
    if "S256" not in description.get("code_challenge_methods_supported", ["S256"]):
        yield warning_check(NAME, "The provider does not know PKCE with S256.", "Turn it on there.")
    yield passed_check(NAME, f"{settings.OIDC_ISSUER} answers and lists {len(keys.keys)} keys")
