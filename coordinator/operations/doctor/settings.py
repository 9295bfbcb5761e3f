"""Settings that are allowed each, but do not fit together or do not fit the machine."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.core import checks

from coordinator.lib.listening_sockets import is_loopback
from coordinator.operations.doctor import CheckResult, failed_check, passed_check, warning_check

NAME = "settings"
SHORT_KEY = 50  # characters


def iterate_conflicting_settings_checks() -> Iterator[CheckResult]:
    """Yield what does not fit; `serve` says it too when it starts."""
    if settings.HTTPS and not settings.TRUSTED_PROXIES:
        yield failed_check(
            NAME,
            "SIGNALBOX_PUBLIC_URL is https, but no proxy is trusted: every page redirects to itself endlessly.",
            "Name the address of the proxy that ends TLS in SIGNALBOX_TRUSTED_PROXIES (on this machine: 127.0.0.1).",
        )
    if settings.DEBUG:
        exposed = not is_loopback(settings.BIND_HOST) or settings.HTTPS
        yield (failed_check if exposed else warning_check)(
            NAME, "SIGNALBOX_DEBUG is on: error pages show code and settings.", "Unset SIGNALBOX_DEBUG."
        )
    if not settings.HTTPS and not is_loopback(settings.BIND_HOST):
        yield warning_check(
            NAME,
            f"Others reach {settings.BIND} without TLS: passwords and keys can be read on the way.",
            "Put a TLS proxy in front, and set its https:// address in SIGNALBOX_PUBLIC_URL.",
        )
    if not settings.API_AUTH:
        yield warning_check(
            NAME,
            "SIGNALBOX_API_AUTH is off: any program on this machine may start agents.",
            "Turn it on if other people have accounts on this machine.",
        )
    if settings.AUTO_APPROVE_TYPES:
        yield warning_check(
            NAME,
            f"Approved without a person: {', '.join(settings.AUTO_APPROVE_TYPES)}.",
            "Remove from SIGNALBOX_AUTO_APPROVE_TYPES what a person should decide.",
        )


def iterate_settings_checks() -> Iterator[CheckResult]:
    """Yield what does not fit, and what Django's own checks for a deployment find."""
    conflicting_settings = list(iterate_conflicting_settings_checks())
    if len(settings.SECRET_KEY) < SHORT_KEY:
        conflicting_settings.append(
            warning_check(
                NAME,
                f"SIGNALBOX_SECRET_KEY is shorter than {SHORT_KEY} characters.",
                "Set a long random one. Everybody must then sign in again.",
            )
        )
    for message in checks.run_checks(include_deployment_checks=True):
        if not message.is_silenced() and message.id not in {"security.W009", "security.W018"}:  # said above
            conflicting_settings.append(
                warning_check(NAME, f"{message.id}: {message.msg.splitlines()[0]}", message.hint or "")
            )
    yield from conflicting_settings or [
        passed_check(NAME, f"{settings.PUBLIC_URL}, served on {settings.BIND}")
    ]
