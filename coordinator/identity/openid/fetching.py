"""Asking the provider: within a time and a size, and without following it elsewhere."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from django.conf import settings

from coordinator.identity.openid.errors import AuthorizationCodeRefused, ProviderUnreachable, SignInRefused

T = TypeVar("T")
EACH_WAIT = 3.0  # seconds, to connect and for each piece
IN_ALL = 8.0  # seconds
MOST_BYTES = 512 * 1024
# One at a time in a process: a provider that hangs holds one of a worker's few threads, not all of them.
_turn = threading.Lock()
TURN_WITHIN = 2.0  # seconds
REST = 5.0  # seconds for which a provider is not asked that did not answer: whoever comes meanwhile need not wait
_silent_at = float("-inf")


class ProviderClient(OAuth2Session):  # type: ignore[misc] # Authlib has no types
    """Authlib's client, which reads no more than MOST_BYTES of an answer and follows no redirect."""

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        """Ask, and read the whole answer."""
        require_safe_provider_url(url)
        more = {"stream": True, "allow_redirects": False, "timeout": EACH_WAIT}
        answer: requests.Response = super().request(method, url, **options | more)
        with answer:
            body = b""
            for piece in answer.iter_content(16 * 1024):
                body += piece
                if len(body) > MOST_BYTES:
                    raise ProviderUnreachable(f"{url} answers with more than {MOST_BYTES} bytes")
        answer._content = body
        if answer.is_redirect:
            raise ProviderUnreachable(f"{url} redirects, which is not followed")
        return answer


def require_safe_provider_url(url: str) -> None:
    """Refuse an address without TLS, unless the issuer itself is one on this machine."""
    scheme, issuer = urlsplit(url).scheme, urlsplit(settings.OIDC_ISSUER)
    if scheme != "https" and not (
        scheme == "http" == issuer.scheme and issuer.netloc == urlsplit(url).netloc
    ):
        raise ProviderUnreachable(f"{url!r} is no https:// address")


def fetch_provider_json(url: str, access_token: str = "") -> dict[str, Any]:
    """Return the JSON object at `url`, which is shown the access token if there is one."""
    headers = {"Accept": "application/json"}
    if access_token:
        headers["Authorization"] = f"Bearer {access_token}"
    with ProviderClient(settings.OIDC_CLIENT_ID) as client:
        answer = client.request("GET", url, withhold_token=True, headers=headers)
    if answer.status_code != 200:
        raise ProviderUnreachable(f"{url} answers {answer.status_code}")
    decoded = json.loads(answer.content)
    if not isinstance(decoded, dict):
        raise ProviderUnreachable(f"{url} answers with no JSON object")
    return decoded


def run_within_deadline(work: Callable[[], T]) -> T:
    """Return what `work` returns. Raises ProviderUnreachable after IN_ALL seconds, and for whatever requests raises.

    In a thread of its own, since a server that sends a byte now and then keeps within every single timeout.
    """
    if time.monotonic() - _silent_at < REST:
        raise ProviderUnreachable("it did not answer a moment ago")
    if not _turn.acquire(timeout=TURN_WITHIN):
        raise ProviderUnreachable("the requests before take long")
    try:
        done: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()
        threading.Thread(target=put_result_or_error, args=(done, work), name="openid", daemon=True).start()
        try:
            result = done.get(timeout=IN_ALL)
        except queue.Empty:
            set_provider_unresponsive(silent=True)
            raise ProviderUnreachable(f"no whole answer within {IN_ALL:.0f} s") from None
    finally:
        _turn.release()
    if isinstance(result, requests.ConnectionError | requests.Timeout):
        set_provider_unresponsive(silent=True)
    if isinstance(result, ProviderUnreachable | SignInRefused):
        raise result
    if isinstance(result, OAuthError):  # the token endpoint's own word
        raise AuthorizationCodeRefused(f"the token endpoint: {result.error!r}")
    if isinstance(result, requests.RequestException | ValueError | RecursionError):
        raise ProviderUnreachable(f"{type(result).__name__}: {result}")
    if isinstance(result, Exception):
        raise result
    return result


def set_provider_unresponsive(*, silent: bool) -> None:
    """Note that the provider does not answer just now, or forget that it did not."""
    global _silent_at  # noqa: PLW0603 - one provider, one process
    _silent_at = time.monotonic() if silent else float("-inf")


def put_result_or_error(done: queue.SimpleQueue[T | Exception], work: Callable[[], T]) -> None:
    try:
        done.put(work())
    except Exception as problem:
        done.put(problem)
