"""The security headers of every response: from Django, from the edge's endpoints, and of the bridge's own errors.

Django's own middleware sets most of them on its responses. Headers that are already set stay unchanged.
"""

from __future__ import annotations

from django.conf import settings

from coordinator.lib.asgi import Message, Send

SafeHeaders = tuple[tuple[bytes, bytes], ...]
# An answer that is no page: nothing may be run or loaded, whatever a browser takes it for.
NO_PAGE = b"default-src 'none'; frame-ancestors 'none'"


def wrap_send_with_security_headers(send: Send, headers: SafeHeaders) -> Send:
    """Return `send` with what an answer lacks of the `headers` added."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given_headers = {name for name, _ in message["headers"]}
            lacking = [header for header in headers if header[0] not in given_headers]
            message = {**message, "headers": [*message["headers"], *lacking]}
        await send(message)

    return send_with_headers


def build_security_headers() -> SafeHeaders:
    """Return the headers by what is set."""
    headers = [
        (b"content-security-policy", NO_PAGE),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", settings.X_FRAME_OPTIONS.encode()),
        (b"referrer-policy", settings.SECURE_REFERRER_POLICY.encode()),
        (b"cross-origin-opener-policy", settings.SECURE_CROSS_ORIGIN_OPENER_POLICY.encode()),
        (b"permissions-policy", settings.PERMISSIONS_POLICY.encode()),
    ]
    if settings.SECURE_HSTS_SECONDS:
        hsts = f"max-age={settings.SECURE_HSTS_SECONDS}"
        headers.append((b"strict-transport-security", hsts.encode()))
    return tuple(headers)
