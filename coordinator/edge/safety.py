"""The headers that every answer carries, whoever makes it: Django, the edge's doors, or the bridge in distress.

Django's own middleware sets most of them on its answers; what is there already stays as it is.
"""

from __future__ import annotations

import functools

from django.conf import settings

from coordinator.lib.asgi import Message, Send

# An answer that is no page: nothing may be run or loaded, whatever a browser takes it for.
NO_PAGE = b"default-src 'none'; frame-ancestors 'none'"


def with_safe_headers(send: Send) -> Send:
    """Return `send` with what an answer lacks of the headers added."""
    headers = _headers(
        settings.X_FRAME_OPTIONS,
        settings.SECURE_REFERRER_POLICY,
        settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
        settings.PERMISSIONS_POLICY,
        settings.SECURE_HSTS_SECONDS,
    )

    async def safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name for name, _ in message["headers"]}
            lacking = [header for header in headers if header[0] not in given]
            message = {**message, "headers": [*message["headers"], *lacking]}
        await send(message)

    return safely


@functools.cache
def _headers(
    frames: str, referrer: str, opener: str, permissions: str, hsts_seconds: int
) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers by what is set, made once for all answers."""
    headers = [
        (b"content-security-policy", NO_PAGE),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", frames.encode()),
        (b"referrer-policy", referrer.encode()),
        (b"cross-origin-opener-policy", opener.encode()),
        (b"permissions-policy", permissions.encode()),
    ]
    if hsts_seconds:
        headers.append((b"strict-transport-security", f"max-age={hsts_seconds}".encode()))
    return tuple(headers)
