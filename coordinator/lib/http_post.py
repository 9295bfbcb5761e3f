"""Posting bytes to an address that the administrator set: no redirects, a time limit, a bounded answer."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

MOST_ANSWER = 64 * 1024  # bytes that are read of an answer


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer, not an order: headers with secrets would go along to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(NoRedirects)


def post_bytes(url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> tuple[int, str]:
    """Return the answer's status and text. Raises OSError where nobody answers, ValueError for what is no URL."""
    request = urllib.request.Request(url, body, dict(headers), method="POST")  # noqa: S310 - checked by the setting
    try:
        with _opener.open(request, timeout=seconds) as answer:
            return answer.status, answer.read(MOST_ANSWER).decode("utf-8", "replace")
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read(MOST_ANSWER).decode("utf-8", "replace")
